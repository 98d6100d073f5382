"""Collectives from device to device between workers that share the GPUs there are, often one.

Without MPS the processes take turns on a GPU, so these say what is right and nothing of time.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from device_reductions import check_reductions  # noqa: E402
from test_worker import F32, Worker, _numbers, _uploaded, _whole, full, op, read  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

PROGRAM = pathlib.Path(__file__).parent.parent / "layouts" / "gpt_layouts.py"


@pytest.fixture(params=[2, 3, 4])
def group(request):
    workers = [
        Worker(index, "--backend", "pytorch", "--id", str(index)) for index in range(request.param)
    ]
    for one, other in itertools.combinations(workers, 2):
        one.connection.introduce(other.connection)
    yield workers
    for worker in workers:
        worker.end()


@pytest.fixture(params=[2, 3, 4])
def kernel_group(request, monkeypatch):
    """Workers whose sums go by kernels that wait on the device for each other."""
    monkeypatch.setenv("GT_KERNELS", "on")
    workers = [
        Worker(index, "--backend", "pytorch", "--id", str(index)) for index in range(request.param)
    ]
    for one, other in itertools.combinations(workers, 2):
        one.connection.introduce(other.connection)
    yield workers
    for worker in workers:
        worker.end()


def test_kernels_sum_to_the_same_last_bit(kernel_group, capfd):
    """In one shot, in two, and what is left to copies."""
    check_reductions(kernel_group, (3, 90_001))
    for worker in kernel_group:
        worker.end()  # it has written what it has to say
    told = capfd.readouterr().err
    assert "PyTorch runs in place of GT's own CUDA kernels" not in told
    for dtype in ("float32", "bfloat16", "float16"):
        assert f"does not take sum of torch.{dtype}" not in told
        assert f"does not take max of torch.{dtype}" in told
    assert "does not offer" not in told


def _answered(worker, requests):
    """Answers to the reads with these numbers; other answers are dropped."""
    found = {}
    while found.keys() != set(requests):
        found |= {one.request: one for one in worker.answers(1) if one.request in requests}
    return found


def _check_sums(workers, members, size, tag):
    """Three sums of ones; the first number of each."""
    for worker in workers:
        worker.write(full(0, (size,), 1.0))
        for number in range(3):
            attrs = (members, "sum", tag + number, "device")
            reduce = op("all_reduce", (1,), (0,), attrs)
            worker.write(reduce, read(1, 1, 50 + number), op("free", (), (1,)))
        worker.write(op("free", (), (0,)))
    for worker in workers:
        for answer in _answered(worker, (50, 51, 52)).values():
            assert answer.floats == [float(len(members))], answer.text


def test_kernels_that_wait_for_a_killed_worker_end_and_name_it(kernel_group):
    """It is killed before it begins, or while its operand is computed: the others go on."""
    everyone, size = tuple(range(len(kernel_group))), 300_000
    _check_sums(kernel_group, everyone, size, 0)
    for worker in kernel_group:
        worker.write(full(0, (size,), 1.0))
    dead = kernel_group.pop()
    for _ in range(50):
        dead.write(op("mul", (1,), (0, [1.0])), op("free", (), (1,)))
    for worker in (dead, *kernel_group):
        worker.write(op("all_reduce", (1,), (0,), (everyone, "sum", 9, "device")))
    dead.process.kill()
    dead.end()
    for worker in kernel_group:
        worker.connection.lost(len(kernel_group))
        worker.write(read(1, 1, 2))
    for worker in kernel_group:
        answer = _answered(worker, (2,))[2]
        failed = f"worker {len(kernel_group)}" in answer.text
        assert failed or answer.floats == [float(len(everyone))]
        worker.write(op("free", (), (0, 1)))
    if len(kernel_group) > 1:
        _check_sums(kernel_group, everyone[:-1], size, 20)


def test_every_dtype_is_reduced_the_same_to_the_last_bit(group):
    check_reductions(group, (3, 90_001))


def test_shards_change_hands(group):
    count = len(group)
    whole = torch.randn(61, 7, 50, generator=torch.Generator().manual_seed(5))
    rows, columns = [0] * count, [0] * count
    rows[0], rows[-1], columns[0], columns[-1] = 60, 1, 2, 5
    rows, columns, members = tuple(rows), tuple(columns), tuple(range(count))
    shards, scattered = whole.split(rows), (whole * count).split(columns, dim=1)
    for place, worker in enumerate(group):
        root = (2 if place == count - 1 else None,)
        worker.write(
            *_uploaded(0, shards[place], F32),
            op("all_to_all", (1,), (0,), (members, 0, rows, 1, columns, 21, "device")),
            op("all_gather", (2,), (0,), (members, 0, rows, 22, "device")),
            op("reduce_scatter", (3,), (2,), (members, "sum", 1, columns, 24, "device")),
            op("broadcast", (4,), root, (members, count - 1, whole.shape, F32, 25, "device")),
        )
    for place, worker in enumerate(group):
        expected = [whole.split(columns, dim=1)[place], whole, scattered[place], whole]
        for slot, value in enumerate(expected, 1):
            if value.numel():
                worker.write(read(slot, value.numel(), slot))
                (answer,) = _whole(worker, {slot: value.nbytes})
                assert answer.data == _numbers(value), (place, slot)


def test_memory_is_taken_again_while_others_read(group):
    rounds, everyone, size = 200, tuple(range(len(group))), 300_000
    for place, worker in enumerate(group):
        for number in range(rounds):
            worker.write(
                full(0, (size,), float(place + number)),
                op("all_reduce", (1,), (0,), (everyone, "sum", number, "device")),
                op("mul", (2,), (0, [7]), consumes=1),
                op("free", (), (0, 2)),
                full(3, (size,), -1.0),
                op("free", (), (3,)),
                op("amax", (4,), (1,), (None, False)),
                op("amin", (5,), (1,), (None, False)),
                read(4, 1, 2 * number),
                read(5, 1, 2 * number + 1),
                op("free", (), (1, 4, 5)),
            )
    total = sum(range(len(group)))
    for worker in group:
        values = {answer.request: answer.floats for answer in worker.answers(2 * rounds)}
        for request, floats in values.items():
            assert floats == [float(len(group) * (request // 2) + total)], request


def test_a_killed_worker_is_told_of_and_the_others_go_on(group):
    everyone, size = tuple(range(len(group))), 300_000
    for worker in group:
        worker.write(full(0, (size,), 1.0), op("synchronize", (), (), (1,)))
        worker.answers(1)
    dead = group.pop()
    dead.process.kill()
    dead.end()
    for worker in group:
        worker.connection.lost(len(group))
        worker.write(
            op("all_reduce", (1,), (0,), (everyone, "sum", 1, "device")),
            op("all_reduce", (2,), (0,), (everyone[:-1], "sum", 2, "device")),
            read(1, 1, 1),
            read(2, 1, 2),
        )
    for worker in group:
        answers = {answer.request: answer for answer in worker.answers(3) if answer.request}
        assert "is gone" in answers[1].text
        assert answers[2].floats == [float(len(group))]


@pytest.mark.parametrize("layout", ["tp2", "dp2"])
def test_a_gpt_has_the_losses_of_one_worker(layout, tmp_path):
    def losses(name):
        done = subprocess.run(
            [
                sys.executable, str(PROGRAM), name, "--dtype", "float64", "--steps", "20",
                "--config", str(tmp_path / f"{name}.yaml"),
            ],
            env=os.environ | {"GT_BACKEND": "pytorch", "GT_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["losses"]

    assert losses(layout) == pytest.approx(losses("one"), rel=1e-9)


def test_a_worker_keeps_no_more_than_it_shared(group):
    """After many collectives a device holds little more than after a few."""
    everyone, size = tuple(range(len(group))), 1_000_000

    def used():
        free, total = torch.cuda.mem_get_info()
        return total - free

    def rounds(first, count):
        for worker in group:
            for tag in range(first, first + count):
                worker.write(
                    full(0, (size,), 1.0),
                    op("all_reduce", (1,), (0,), (everyone, "sum", tag, "device")),
                    op("free", (), (0, 1)),
                )
            worker.write(op("synchronize", (), (), (first + 1,)))
        for worker in group:
            worker.answers(1)
        return used()

    few = rounds(0, 100)
    assert rounds(100, 400) <= few + len(group) * (64 << 20)
