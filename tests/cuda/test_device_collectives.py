"""Collectives of workers by GT's own CUDA kernels: processes, a played device, the emulator.

What comes out is compared with the same collectives by bytes, to the last bit. On a GPU:
tests/gpu/test_gpu_collectives.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from cluster import Cluster
from device_reductions import check_reductions
from emulator_build import CMAKE, build
from test_worker import F32, Worker, _numbers, _uploaded, _whole, full, op, read
from test_worker_devices import DEVICE, MODEL, Group, _introduced, _told

pytestmark = [
    pytest.mark.skipif(CMAKE is None, reason="cmake is not installed"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def library() -> Path:
    return build("cuda_stand_in") / "libcuda_stand_in.so"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A line for each kernel of a collective, of all workers."""
    path = tmp_path / "launched"
    path.touch()
    return path


@contextlib.contextmanager
def _environment(library: Path, log: Path, seconds: float = 60) -> Iterator[pytest.MonkeyPatch]:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setenv("PLAYED_DRIVER", str(library))
        patch.setenv("PLAYED_LOG", str(log))
        patch.setenv("PLAYED_SECONDS", str(seconds))
        patch.setenv("GT_KERNELS", "on")
        yield patch


@pytest.fixture
def group(library: Path, log: Path) -> Iterator[Callable[..., Group]]:
    """Workers by the mode of each one's device, with these settings; `off`: without kernels."""
    started: Group = []

    def start(modes: list[str], seconds: float = 60) -> Group:
        with _environment(library, log, seconds) as patch:
            for index, mode in enumerate(modes):
                patch.setenv("GT_KERNELS", "off" if mode == "off" else "on")
                patch.setenv("PLAYED", mode.removeprefix("off"))
                started.append(Worker(index, "--backend", "pytorch", program=(DEVICE,)))
        return _introduced(started)

    yield start
    for worker in started:
        worker.end()


def _launched(log: Path) -> Counter[str]:
    return Counter(log.read_text().split())


@pytest.mark.parametrize("count", [2, 3, 4])
def test_sums_have_the_bits_of_the_same_by_bytes(
    group: Callable[..., Group], log: Path, count: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """In one shot, in two, and of what no kernel takes; with NaN, infinity and a negative zero."""
    workers = group([""] * count)
    check_reductions(workers, (3, 301, 9_001), (float("nan"), float("inf"), -0.0, 0.0))
    # float32, bfloat16 and float16.
    launched = _launched(log)
    assert launched == {
        "all_reduce_one_shot": 3 * count,
        "all_reduce_two_shot": 3 * count,
    }
    told = capfd.readouterr().err
    assert told.count("copies do all_reduce in place of GT's own CUDA kernel") > 3
    assert told.count("which does not take max of torch.float32 (operand (3,)); told once") == count
    assert told.count("which does not take more than 2048 bytes") == count


@pytest.mark.parametrize("count", [2, 3])
def test_shards_change_hands(
    group: Callable[..., Group], log: Path, count: int, capfd: pytest.CaptureFixture[str]
) -> None:
    workers = group([""] * count)
    members, rows = tuple(range(count)), 2
    whole = torch.randn(count * rows, 7, 5, generator=torch.Generator().manual_seed(5))
    even, uneven = (rows,) * count, (count * rows - 1, *[0] * (count - 2), 1)
    columns = (7, *[0] * (count - 1))
    backend = "device"
    for place, worker in enumerate(workers):
        root = (0 if place == 1 else None,)
        worker.write(
            *_uploaded(0, whole[place * rows : (place + 1) * rows] + 0, F32),
            *_uploaded(9, whole.split(uneven)[place] + 0, F32),
            op("all_gather", (1,), (0,), (members, 0, even, 20, backend)),
            op("all_gather", (2,), (0,), (members, 0, even, 21, backend)),
            op("reduce_scatter", (3,), (2,), (members, "sum", 0, even, 22, backend)),
            op("broadcast", (4,), root, (members, 1, (rows, 7, 5), F32, 23, backend)),
            op("all_gather", (5,), (9,), (members, 0, uneven, 24, backend)),
            op("all_to_all", (6,), (0,), (members, 0, even, 1, columns, 25, backend)),
        )
    scattered = (whole * count).split(rows)
    for place, worker in enumerate(workers):
        expected = [whole, whole, scattered[place], whole[rows : 2 * rows], whole]
        expected += [whole.split(columns, dim=1)[place]]
        for slot, value in enumerate(expected, 1):
            if value.numel():
                worker.write(read(slot, value.numel(), slot))
                (answer,) = _whole(worker, {slot: value.nbytes})
                assert answer.data == _numbers(value.contiguous()), (place, slot)
    assert _launched(log) == dict.fromkeys(("reduce_scatter", "broadcast"), count) | {
        "all_gather": 2 * count
    }
    told = capfd.readouterr().err
    assert told.count("which does not take shards that are uneven, or not one behind") == count
    assert told.count("copies do all_to_all in place") == count


def test_memory_is_taken_again_while_kernels_meet(group: Callable[..., Group], log: Path) -> None:
    """Two groups that overlap, operands overwritten and freed at once, and copies between."""
    workers, rounds, everyone = group([""] * 3), 40, (0, 1, 2)
    waiting = [number for number in range(rounds) if number % 4 < 2]
    for place, worker in enumerate(workers):
        for number in range(rounds):
            pair = (0, 1) if number % 2 else (1, 2)
            worker.write(
                full(0, (33,), float(place + number)),
                op("all_reduce", (1,), (0,), (everyone, "sum", 3 * number, "device")),
            )
            # The sum of all is launched before it is read: what a pair sums next goes by a kernel.
            if number in waiting:
                worker.write(read(1, 1, rounds + number))
            if place in pair:
                attrs = (pair, "sum", 3 * number + 1, "device")
                worker.write(op("all_reduce", (2,), (0,), attrs), op("free", (), (2,)))
            worker.write(
                op("all_reduce", (3,), (1,), (everyone, "max", 3 * number + 2, "device")),
                op("mul", (4,), (0, [7]), consumes=1),
                op("free", (), (0, 4)),
                full(5, (33,), -1.0),
                read(3, 33, number),
                op("free", (), (1, 3, 5)),
            )
        worker.write(op("synchronize", (), (), (2 * rounds,)))
    for worker in workers:
        answers = worker.answers(rounds + len(waiting) + 1)
        values = {answer.request: answer.floats for answer in answers}
        for number in range(rounds):
            assert values[number] == [3.0 * number + 3] * 33, number
    launched = _launched(log)["all_reduce_one_shot"]
    assert launched >= 3 * rounds + 2 * len(waiting), "the sums of all, and of pairs"


def test_a_member_without_kernels_makes_all_go_by_copies(
    group: Callable[..., Group], log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workers = group(["", "", "off"])
    for place, worker in enumerate(workers):
        for tag in range(4):
            attrs = ((0, 1, 2), "sum", 10 + tag, "device")
            worker.write(full(0, (5,), 1.0 + place), op("all_reduce", (1,), (0,), attrs))
            worker.write(read(1, 5, tag), op("free", (), (0, 1)))
        if place < 2:
            for tag in range(2):
                attrs = ((0, 1), "sum", 20 + tag, "device")
                worker.write(full(0, (5,), 1.0 + place), op("all_reduce", (1,), (0,), attrs))
                worker.write(read(1, 5, 4 + tag), op("free", (), (0, 1)))
    for place, worker in enumerate(workers):
        floats = [answer.floats for answer in worker.answers(6 if place < 2 else 4)]
        assert floats == [[6.0] * 5] * 4 + [[3.0] * 5] * (len(floats) - 4)
    assert _launched(log) == {"all_reduce_one_shot": 4}
    told = capfd.readouterr().err
    assert told.count("which does not take what worker 2 does not offer") == 2


def test_a_worker_that_dies_in_a_kernel_fails_what_the_others_hold_and_they_go_on(
    group: Callable[..., Group], log: Path
) -> None:
    """By `kill -9` in the middle of the third: those who waited name it, and go on."""
    workers = group(["", "", "dies:3"], seconds=0.1)
    everyone = (0, 1, 2)
    for worker in workers:
        worker.write(full(0, (5,), 1.0))
        for tag in range(4):
            attrs = (everyone, "sum", tag, "device")
            worker.write(op("all_reduce", (1 + tag,), (0,), attrs, tag=7 + tag))
    workers[2].process.wait(timeout=60)
    for worker in workers[:2]:
        worker.connection.lost(2)
        worker.write(op("neg", (8,), (3,)), read(8, 1, 1))
    for worker in workers[:2]:
        text = _told(worker, 1)
        assert "worker 2 has not come to a collective on the devices within 0.1 s" in text
        # Whatever it held may follow from that one.
        worker.write(read(0, 1, 2))
        assert _told(worker, 2) == text
    for worker in workers[:2]:
        worker.write(op("free", (), tuple(range(5))), full(0, (5,), 2.0))
        for tag in range(3):
            attrs = ((0, 1), "sum", 50 + tag, "device")
            worker.write(op("all_reduce", (1 + tag,), (0,), attrs))
        worker.write(read(3, 5, 3))
    before = sum(_launched(log).values())
    for worker in workers[:2]:
        answers = {answer.request: answer for answer in worker.answers(1)}
        assert answers[3].floats == [4.0] * 5
    assert before >= 2 * 2


@pytest.mark.parametrize("late", [None, 0, 3])
def test_groups_that_overlap_sum_in_any_order_of_arrival(
    group: Callable[..., Group], log: Path, late: int | None
) -> None:
    """One member computes for long before it begins each sum; it may belong to every group."""
    workers = group([""] * 4)
    groups = [(0, 1, 2), (1, 2, 3), (0, 1, 2, 3), (0, 2), (1, 3), (3, 0, 1)]
    sums = list(itertools.product((3, 301), groups))
    for place, worker in enumerate(workers):
        worker.write(full(0, (256, 256), 0.5))
        for number, (size, members) in enumerate(sums):
            if place not in members:
                continue
            delay = [op("matmul", (1,), (0, 0)), op("free", (), (1,))] if place == late else []
            attributes = (members, "sum", number, "device")
            worker.write(*delay * 5, full(2, (size,), float(place + 1)))
            worker.write(op("all_reduce", (10 + number,), (2,), attributes), op("free", (), (2,)))
    for place, worker in enumerate(workers):
        own = [number for number, (_, members) in enumerate(sums) if place in members]
        worker.write(*(read(10 + number, sums[number][0], number) for number in own))
        answers = _whole(worker, {number: 4 * sums[number][0] for number in own})
        for number, answer in zip(own, answers, strict=True):
            size, members = sums[number]
            assert answer.floats == [float(sum(members) + len(members))] * size, (place, number)
    assert _launched(log), "all went by copies"


def test_all_pairs_at_once(group: Callable[..., Group], log: Path) -> None:
    """Every two of three workers sum, in flight together, many times."""
    workers, rounds = group([""] * 3), 20
    pairs = list(itertools.combinations(range(3), 2))
    for place, worker in enumerate(workers):
        worker.write(full(0, (9,), 1.0 + place))
        for number in range(rounds):
            for slot, pair in enumerate(pairs, 1):
                if place in pair:
                    attrs = (pair, "sum", 3 * number + slot, "device")
                    worker.write(op("all_reduce", (slot,), (0,), attrs))
            worker.write(
                op("free", (), tuple(s for s, pair in enumerate(pairs, 1) if place in pair))
            )
        worker.write(op("synchronize", (), (), (1,)))
        # The members' places decide which sums above use kernels; one after the other, all of them
        # do.
        mine = [pair for pair in pairs if place in pair]
        for number, pair in enumerate(mine, 2):
            attrs = (pair, "sum", 3 * rounds + pairs.index(pair) + 1, "device")
            worker.write(op("all_reduce", (7 + number,), (0,), attrs))
            worker.write(read(7 + number, 9, number))
    for place, worker in enumerate(workers):
        sums = [answer.floats for answer in worker.answers(3) if answer.request > 1]
        assert sums == [[2.0 + a + b] * 9 for a, b in pairs if place in (a, b)]
    assert _launched(log)["all_reduce_one_shot"] % 2 == 0
    assert _launched(log)["all_reduce_one_shot"] >= 2 * len(pairs)


IN_SINGLE = MODEL.replace("np.float64", "np.float32").replace(
    "np.ones((8, 32)) * 0.01", "np.full((8, 32), 0.01, np.float32)"
)


def test_a_dispatcher_has_sums_go_by_kernels_and_a_new_worker_joins(
    library: Path, log: Path
) -> None:
    """A model over three workers has the losses of the same on workers that know only bytes."""
    printed = []
    for program in (["-m", "gt.worker"], [DEVICE]):
        with _environment(library, log), Cluster(workers=0, backend="pytorch") as cluster:
            cluster.command[1:3] = program
            for _ in range(3):
                cluster.add_worker()
            cluster.wait_for_workers()
            printed.append(cluster.run(IN_SINGLE))
            before = sum(_launched(log).values())
            cluster.kill_worker(1)
            cluster.add_worker()
            cluster.wait_for_workers()
            printed.append(cluster.run(IN_SINGLE))
            after = sum(_launched(log).values())
    assert len(set(printed)) == 1
    assert 0 < before < after
