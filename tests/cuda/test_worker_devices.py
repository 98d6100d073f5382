"""Collectives from device to device, on a device that is played (tests/cuda/played_device.py).

What comes out is compared with the same collectives by bytes, to the last bit.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import random
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
from cluster import Cluster
from device_reductions import check_reductions
from test_worker import (
    F32,
    Worker,
    _numbers,
    _uploaded,
    _whole,
    answers,
    full,
    op,
    read,
)

from gt.worker import startup
from gt.worker.pytorch import cuda_memory
from gt.worker.pytorch import devices as torch_devices

DEVICE = str(pathlib.Path(__file__).parent / "played_device.py")
Group = list[Worker]


def _introduced(workers: Group) -> Group:
    for one, other in itertools.combinations(workers, 2):
        one.connection.introduce(other.connection)
    return workers


@contextlib.contextmanager
def _played(*modes: str) -> Iterator[Group]:
    """Workers whose devices are in these modes."""
    started: Group = []
    with pytest.MonkeyPatch.context() as patch:
        for index, mode in enumerate(modes):
            patch.setenv("PLAYED", mode)
            started.append(Worker(index, "--backend", "pytorch", program=(DEVICE,)))
    yield _introduced(started)
    for worker in started:
        worker.end()


@pytest.fixture(scope="module")
def four() -> Iterator[Group]:
    """They have no values before a test, nor after it."""
    with _played("", "", "", "") as workers:
        yield workers


def _told(worker: Worker, request: int) -> str:
    """Answer to a read of a failed value."""
    data = b""
    while True:
        data += worker.connection.read(30_000)
        for answer in answers(data):
            if answer.text and answer.request == request:
                return answer.text


def _mapped(worker: Worker) -> int:
    """Workers of whose memory it has mapped some."""
    lines = pathlib.Path(f"/proc/{worker.process.pid}/maps").read_text().splitlines()
    names = {line.split("played by ")[1].split()[0] for line in lines if "played by " in line}
    return len(names - {str(worker.process.pid)})


def test_every_dtype_is_reduced_the_same_to_the_last_bit(four: Group) -> None:
    """In one hop and in two, over the operand and not."""
    check_reductions(four, (3, 20_001), (float("nan"), float("inf"), -0.0, 0.0))  # a full ring too
    assert all(_mapped(worker) >= 3 for worker in four), "it went by bytes"


def test_shards_change_hands(four: Group) -> None:
    """Each collective with uneven and empty shards, against torch."""
    whole = torch.randn(60, 7, 50, generator=torch.Generator().manual_seed(5))
    rows, columns, last = (30, 0, 29, 1), (3, 0, 1, 3), (0, 25, 1, 24)
    members, f32 = (0, 1, 2, 3), F32
    by_rows, by_columns, by_last = (
        whole.split(rows),
        whole.split(columns, dim=1),
        whole.split(last, dim=2),
    )
    backend = "device"
    for place, worker in enumerate(four):
        root = (2 if place == 3 else None,)
        worker.write(
            *_uploaded(0, by_rows[place], f32),
            op("all_to_all", (1,), (0,), (members, 0, rows, 1, columns, 21, backend)),
            op("all_gather", (2,), (0,), (members, 0, rows, 22, backend)),
            op("all_gather", (3,), (1,), (members, 1, columns, 23, backend)),
            op("reduce_scatter", (4,), (2,), (members, "sum", 1, columns, 24, backend)),
            op("broadcast", (5,), root, (members, 3, whole.shape, f32, 25, backend)),
            op("all_to_all", (6,), (1,), (members, 1, columns, 2, last, 26, backend)),
            op("all_to_all", (7,), (6,), (members, 2, last, 1, columns, 27, backend)),
            op("all_to_all", (8,), (0,), (members, 0, rows, 0, rows[::-1], 28, backend)),
        )
        if place < 2:
            peer = 1 - place
            worker.write(
                op("send", (), (2,), (peer, 30 + place, backend)),
                op("receive", (9,), (), (peer, 30 + peer, whole.shape, f32, backend)),
            )
    scattered = (whole * 4).split(columns, dim=1)
    reversed_rows = whole.split(rows[::-1])
    for place, worker in enumerate(four):
        expected = [by_columns[place], whole, whole, scattered[place], whole, by_last[place]]
        expected += [by_columns[place], reversed_rows[place], *([whole] if place < 2 else [])]
        for slot, value in enumerate(expected, 1):
            if value.numel():
                worker.write(read(slot, value.numel(), slot))
                (answer,) = _whole(worker, {slot: value.nbytes})
                assert answer.data == _numbers(value), (place, slot)
        worker.write(op("free", (), tuple(range(10 if place < 2 else 9))))


def test_memory_is_taken_again_while_others_read(four: Group) -> None:
    """Operands are overwritten and freed at once; every sum is still that of the values then."""
    rng = random.Random(3)
    rounds, everyone = 120, (0, 1, 2, 3)
    sizes = [rng.choice([1, 700, 20_000]) for _ in range(rounds)]
    for place, worker in enumerate(four):
        for number, size in enumerate(sizes):
            pair = (place // 2 * 2, place // 2 * 2 + 1)
            worker.write(
                full(0, (size,), float(place + number)),
                op("all_reduce", (1,), (0,), (everyone, "sum", 2 * number, "device")),
                op("all_gather", (2,), (0,), (pair, 0, (size, size), 2 * number + 1, "device")),
                # Over the operand where it may be, then freed and taken again.
                op("mul", (3,), (0, [7]), consumes=1),
                op("free", (), (0, 3)),
                full(4, (size,), -1.0),
                op("free", (), (4,)),
                op("slice", (5,), (2,), (0, size - 1, size + 1, 1)),
                read(1, 1, 2 * number),
                read(5, 2, 2 * number + 1),
                op("free", (), (1, 2, 5)),
            )
    for place, worker in enumerate(four):
        values = {answer.request: answer.floats for answer in worker.answers(2 * rounds)}
        for number in range(rounds):
            assert values[2 * number] == [4.0 * number + 6], number
            first = float(place // 2 * 2 + number)
            assert values[2 * number + 1] == [first, first + 1], number


@pytest.mark.parametrize("mode", ["private", "shut"])
def test_who_cannot_be_read_makes_all_go_by_bytes(mode: str) -> None:
    with _played("", "", mode) as workers:
        _check_all_by_bytes(workers)


def _check_all_by_bytes(workers: Group) -> None:
    for place, worker in enumerate(workers):
        for number, size in enumerate((5, 9_001, 5)):
            attrs = ((0, 1, 2), "sum", 10 + number, "device")
            worker.write(
                full(0, (size,), 1.0 + place),
                op("all_reduce", (1,), (0,), attrs),
                op("free", (), (0,)),
                read(1, size, number),
                op("free", (), (1,)),
            )
        # Two that can go on from device to device.
        if place < 2:
            worker.write(
                full(0, (3,), 2.0), op("all_reduce", (1,), (0,), ((0, 1), "sum", 9, "device"))
            )
            worker.write(read(1, 3, 9))
    for place, worker in enumerate(workers):
        sizes = {0: 20, 1: 4 * 9_001, 2: 20} | ({9: 12} if place < 2 else {})
        first, large, again, *rest = _whole(worker, sizes)
        assert first.floats == again.floats == [6.0] * 5
        assert set(large.floats) == {6.0}
        assert [answer.floats for answer in rest] == [[4.0] * 3] * len(rest)
    assert _mapped(workers[0]) > 0 == _mapped(workers[2])


def test_a_failed_operand_and_a_killed_worker() -> None:
    """The others hear of it, wait for nobody, and go on among themselves."""
    with _played("", "", "", "") as workers:
        _check_losses(workers)


def _check_losses(four: Group) -> None:
    everyone, size = (0, 1, 2, 3), 20_000
    reduce = op("all_reduce", (1,), (0,), (everyone, "sum", 1, "device"), tag=7)
    for worker in four[1:]:
        worker.write(full(0, (size,), 1.0), reduce, read(1, 1, 1))
    four[0].write(reduce, read(1, 1, 1))
    texts = {_told(worker, 1) for worker in four}
    assert texts == {"slot 0 holds no value"}
    # One has its part in flight with the others, who wait for the last.
    dying = op("all_reduce", (2,), (0,), (everyone, "sum", 2, "device"), tag=8)
    for worker in four[1:]:
        worker.write(dying)
    four[3].write(read(0, 1, 2))
    assert four[3].answers(1)[-1].floats == [1.0]
    four[3].process.kill()
    four[3].process.wait()
    for worker in four[:3]:
        worker.connection.lost(3)
    four[0].write(full(0, (size,), 1.0), dying)
    for worker in four[:3]:
        worker.write(op("all_reduce", (3,), (0,), ((0, 1, 2), "sum", 3, "device")), read(2, 1, 2))
        assert "worker 3 is gone" in _told(worker, 2)
        # The others' part in the third may still be to come: nobody waits for it here.
        worker.write(read(3, size, 3))
    for worker in four[:3]:
        assert set(_whole(worker, {3: 4 * size})[0].floats) == {3.0}


def test_what_others_have_stays_mapped_up_to_a_limit() -> None:
    closed: list[int] = []

    class Opening:
        domain = ""

        def open(self, name: bytes) -> int:
            return int(name)

        def close(self, opened: int) -> None:
            closed.append(opened)

    devices = torch_devices.Devices(Opening())  # type: ignore[arg-type]
    count = torch_devices.OPENED_MAX
    buffers = [torch_devices.BorrowedBuffer(b"%d" % number, 0, 1) for number in range(count + 2)]
    for one in buffers[:count]:
        devices.open(b"a", one, needed=4)
    assert devices.open(b"a", buffers[0], needed=4) == 0
    devices.open(b"a", buffers[count], needed=4)
    assert closed == [1], "the one that was not used for longest"
    devices.open(b"a", buffers[count + 1], needed=count + 1)
    assert closed == [1], "what is in use together stays"
    # A worker that comes back is another one.
    devices.met(5, b"a")
    devices.met(5, b"b")
    assert len(closed) == count + 2
    assert not devices.opened


def test_a_reduction_in_blocks_covers_everything_once() -> None:
    for rows, run in ((1, 10_000_000), (3, 5_000_000), (5_000_000, 3), (7, 11), (0, 4), (4, 0)):
        total = 0
        for first, count, start, length in torch_devices.blocks(rows, run):
            assert 0 < count * length <= torch_devices.BLOCK
            assert first + count <= rows
            assert start + length <= run
            total += count * length
        assert total == rows * run


def test_workers_take_gpus_in_turn() -> None:
    assert [startup.gpu_of(index, 4) for index in (0, 1, 3, 4, 9)] == [0, 1, 3, 0, 1]
    assert [startup.gpu_of(index, 1) for index in (0, 5)] == [0, 0]
    assert startup.gpu_of(None, 8) == 0


def test_gpus_that_reach_each_other_say_the_same() -> None:
    first = cuda_memory.domain_text("host", ["GPU-b", "GPU-a"])
    assert first == cuda_memory.domain_text("host", ["GPU-a", "GPU-b"])
    assert first != cuda_memory.domain_text("other", ["GPU-a", "GPU-b"])
    assert first != cuda_memory.domain_text("host", ["GPU-a"])


MODEL = """
import numpy as np
from gt import nn
from gt.nn import functional
numbers = np.arange(64 * 32, dtype=np.float64).reshape(64, 32) % 17
mesh = gt.DeviceMesh((3,))
x = gt.distribute(gt.tensor(numbers), mesh, 0)
w = gt.tensor(np.ones((8, 32)) * 0.01, requires_grad=True)
for step in range(5):
    loss = functional.relu(functional.linear(x, w)).sum() * 0.001
    loss.backward()
    with gt.no_grad():
        w -= 0.001 * w.grad
        w.grad = None
    print(f"{loss.item():.12f}")
print(float(gt.distribute(x, mesh).sum().item()), numbers.sum())
"""


def test_a_dispatcher_sends_values_from_device_to_device() -> None:
    """A model over three workers has the losses of the same on workers that know only bytes."""
    printed = []
    for program in (["-m", "gt.worker"], [DEVICE]):
        with Cluster(workers=0, backend="pytorch") as cluster:
            cluster.command[1:3] = program
            for _ in range(3):
                cluster.add_worker()
            cluster.wait_for_workers()
            printed.append(cluster.run(MODEL))
            paths = [f"/proc/{worker.pid}/maps" for worker in cluster.workers]
            mapped = [pathlib.Path(path).read_text().count("played by") for path in paths]
    assert printed[0] == printed[1]
    assert min(mapped) > 0
