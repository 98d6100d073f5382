"""A worker from outside: words in, answers out, in a thread and in processes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from worker_frames import ThreadWorker  # noqa: E402  torch may be absent
from worker_rings import WorkerRings  # noqa: E402
from worker_words import (  # noqa: E402
    DONE,
    F32,
    FAILED_REPLY,
    FAILURE,
    REPLY,
    Answer,
    answers,
    full,
    op,
    read,
)

from gt.worker.pytorch import kernels  # noqa: E402
from gt.worker.reference import kernels as reference  # noqa: E402

_READ_MS = 30_000
BACKENDS = [kernels.backend(torch.device("cpu")), reference.backend()]


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def worker(request: pytest.FixtureRequest) -> Iterator[ThreadWorker]:
    with ThreadWorker(request.param) as worker:
        yield worker


@pytest.fixture
def torch_worker() -> Iterator[ThreadWorker]:
    with ThreadWorker(BACKENDS[0]) as worker:
        yield worker


def test_instructions_run(worker: ThreadWorker) -> None:
    steps = [
        full(0, (2, 3), 2.0),
        full(1, (3,), 3.0),
        op("sub", (2,), (0, 1)),
        op("sub", (3,), ([10], 2)),
    ]
    steps += [op("cat", (4,), (2, 3), (0,)), read(4, 12)]
    (answer,) = answers(worker.run(b"".join(steps)))
    assert answer.floats == [-1.0] * 6 + [11.0] * 6


def test_bytes_go_in_and_out(worker: ThreadWorker) -> None:
    for dtype, name in enumerate(reference.DTYPES):
        width = reference.from_bytes(b"", name, (0,)).itemsize
        data = bytes(place % 2 for place in range(50_000 * width))
        steps = [op("upload", (0,), (), ((50_000,), dtype), payload=data[:32_768])]
        steps += [
            op("chunk", (), (0,), (offset,), payload=data[offset : offset + 32_768])
            for offset in range(32_768, len(data), 32_768)
        ]
        (answer,) = answers(worker.run(b"".join([*steps, read(0, 50_000), op("free", (), (0,))])))
        assert answer.data == data


def test_a_view_is_read_in_order(worker: ThreadWorker) -> None:
    steps = [op("arange", (0,), (), (0, 6, 1, F32)), op("reshape", (1,), (0,), ((2, 3),))]
    steps += [op("permute", (2,), (1,), ((1, 0),)), op("free", (), (0, 1)), read(2, 6)]
    (answer,) = answers(worker.run(b"".join(steps)))
    assert answer.floats == [0, 3, 1, 4, 2, 5]


def test_an_expanded_value_is_never_overwritten(worker: ThreadWorker) -> None:
    steps = [full(0, (1,), 1.0), op("expand", (1,), (0,), ((3,),)), op("free", (), (0,))]
    steps += [op("exp", (2,), (1,)), op("free", (), (1,)), op("neg", (3,), (2,)), read(3, 3)]
    (answer,) = answers(worker.run(b"".join(steps)))
    np.testing.assert_allclose(answer.floats, -np.exp([1.0] * 3), rtol=1e-6)


def test_assignment_to_a_part_of_a_consumed_value(worker: ThreadWorker) -> None:
    steps = [full(0, (4,), 1.0), full(1, (2,), 5.0)]
    steps += [op("slice_scatter", (2,), (0, 1), (0, 1, 3, 1), consumes=1), read(2, 4)]
    (answer,) = answers(worker.run(b"".join(steps)))
    assert answer.floats == [1.0, 5.0, 5.0, 1.0]


def test_a_failure_has_torchs_text_and_no_more(torch_worker: ThreadWorker) -> None:
    steps = [full(0, (2, 3), 1.0), full(1, (4,), 1.0), op("add", (2,), (0, 1), tag=41)]
    first, second = answers(torch_worker.run(b"".join([*steps, op("neg", (3,), (2,)), read(3, 1)])))
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2, 3).add(torch.ones(4))
    assert (first.kind, second.kind, first.tag) == (FAILURE, FAILED_REPLY, 41)
    assert first.text == second.text == f"{raised.value}; add f32[2,3] f32[4]"


def test_the_same_attributes_but_for_a_sign(worker: ThreadWorker) -> None:
    steps = [full(0, (1,), 0.0), full(1, (1,), -0.0), read(0, 1, 1), read(1, 1, 2)]
    signs = [np.signbit(answer.floats[0]) for answer in answers(worker.run(b"".join(steps)))]
    assert signs == [False, True]


def test_operands_over_which_an_optimizer_writes(torch_worker: ThreadWorker) -> None:
    attrs = (0.1, 0.9, 0.0, 0.0, False, False, False)
    steps = [full(0, (3,), 1.0), full(1, (3,), 2.0), full(2, (3,), 4.0)]
    plain = op("sgd", (3, 4), (0, 1, 2), attrs)
    over = op("sgd", (5, 6), (0, 1, 2), attrs, consumes=0b101)
    reads = [read(slot, 3, slot) for slot in (3, 4, 5, 6)]
    first, second, third, fourth = answers(
        torch_worker.run(b"".join([*steps, plain, over, *reads]))
    )
    assert (first.data, second.data) == (third.data, fourth.data)


class Worker:
    """A worker process and the dispatcher's end of it."""

    def __init__(
        self, index: int, *arguments: str, program: tuple[str, ...] = ("-m", "gt.worker")
    ) -> None:
        self.connection = WorkerRings(index)
        control = self.connection.worker_fd()
        command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", *program]
        self.process = subprocess.Popen(
            [*command, "--threads", "1", "--control-fd", str(control), *arguments],
            pass_fds=[control],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self.connection.hand_over()

    def write(self, *steps: bytes) -> None:
        self.connection.write(b"".join(steps))

    def answers(self, count: int) -> list[Answer]:
        """At least that many answers, and what else has come."""
        data = b""
        while len(found := answers(data)) < count:
            data += self.connection.read(_READ_MS)
        return found

    def end(self) -> int:
        """Closes the control socket; the worker has to notice."""
        self.connection.close()
        return self.process.wait(timeout=10)


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    both = [Worker(0), Worker(1)]
    both[0].connection.introduce(both[1].connection)
    yield both
    for worker in both:
        worker.end()


def test_a_worker_ends_with_its_dispatcher() -> None:
    worker = Worker(0, "--backend", "numpy")
    worker.write(full(0, (2,), 1.5), read(0, 2), op("synchronize", (), (), (7,)))
    first, second = worker.answers(2)
    assert (first.floats, second.kind, second.request) == ([1.5, 1.5], DONE, 7)
    assert worker.end() == 0


def test_workers_together(workers: list[Worker]) -> None:
    """Reductions of one hop and of two, and a gather larger than the rings."""
    large = 300_000
    for place, worker in enumerate(workers):
        for slot, size in ((0, 5), (1, large)):
            worker.write(full(slot, (size,), 1.0 + place))
            worker.write(op("all_reduce", (10 + slot,), (slot,), ((0, 1), "sum", 100 + slot)))
        worker.write(op("all_gather", (12,), (1,), ((0, 1), 0, (large, large), 102)))
        worker.write(
            read(10, 5, 1),
            read(11, large, 2),
            op("slice", (13,), (12,), (0, large - 1, large + 1, 1)),
            read(13, 2, 3),
        )
    for worker in workers:
        small, wide, edge = _whole(worker, {1: 20, 2: 4 * large, 3: 8})
        assert small.floats == [3.0] * 5
        assert set(wide.floats) == {3.0}
        assert edge.floats == [1.0, 2.0]


def _resident(worker: Worker) -> int:
    """Bytes of memory that a worker holds."""
    lines = pathlib.Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def test_what_others_send_ahead_is_put_aside_up_to_a_limit(workers: list[Worker]) -> None:
    sender, receiver = workers
    limit, size, count = 256 << 20, 8 << 20, 14
    sender.write(full(0, (size,), 3.0))
    receiver.write(op("synchronize", (), (), (1,)))
    receiver.answers(1)
    before = _resident(receiver)
    for tag in range(1, 1 + count):
        sender.write(op("send", (), (0,), (1, tag)))
    # The receiver has been told of none of them: it takes what comes until it holds enough.
    same = last = 0
    while last < before + limit or same < 20:
        now = _resident(receiver)
        same, last = (same + 1 if now == last else 0), now
        time.sleep(0.01)
    assert last < before + limit + (64 << 20)
    for tag in range(1, 1 + count):
        receiver.write(op("receive", (tag,), (), (0, tag, (size,), F32)))
        receiver.write(
            op("sum", (100 + tag,), (tag,), (None, False, None)) + op("free", (), (tag,))
        )
        receiver.write(read(100 + tag, 1, tag))
    assert [answer.floats for answer in receiver.answers(count)] == [[3.0 * size]] * count


def _whole(worker: Worker, sizes: dict[int, int]) -> list[Answer]:
    """Answers of so many bytes, by request; a long one comes in chunks."""
    return _whole_of_all([worker], sizes)[0]


def _whole_of_all(workers: Sequence[Worker], sizes: dict[int, int]) -> list[list[Answer]]:
    """The answers of each worker, taken as they come, as a dispatcher does.

    A worker whose ring of answers is full takes no part in collectives until somebody has read it.
    """
    data = [b""] * len(workers)
    found: list[dict[int, Answer]] = [{} for _ in workers]
    deadline = time.monotonic() + _READ_MS / 1000
    while waiting := [place for place, own in enumerate(found) if not _is_whole(own, sizes)]:
        for place in waiting:
            with contextlib.suppress(TimeoutError):
                data[place] += workers[place].connection.read(_READ_MS if len(waiting) == 1 else 1)
                found[place] = {answer.request: answer for answer in answers(data[place])}
                deadline = time.monotonic() + _READ_MS / 1000
            for answer in found[place].values():
                assert answer.kind == REPLY, answer.text
        assert time.monotonic() < deadline, f"no answer of workers {waiting} in {_READ_MS} ms"
    return [[own[request] for request in sizes] for own in found]


def _is_whole(found: dict[int, Answer], sizes: dict[int, int]) -> bool:
    return all(
        request in found and len(found[request].data) >= size for request, size in sizes.items()
    )


@pytest.fixture(scope="module")
def four() -> Iterator[list[Worker]]:
    """They have no values before a test, nor after it."""
    all_four = [Worker(index) for index in range(4)]
    for one, other in itertools.combinations(all_four, 2):
        one.connection.introduce(other.connection)
    yield all_four
    for worker in all_four:
        worker.end()


def _shards(dtype: torch.dtype, members: int, size: int) -> list[torch.Tensor]:
    torch.manual_seed(3)
    if dtype is torch.bool:
        return [torch.rand(size) < 0.5 for _ in range(members)]
    if dtype.is_floating_point:
        return [torch.randn(size).to(dtype) for _ in range(members)]
    low = 0 if dtype is torch.uint8 else -100
    return [torch.randint(low, 100, (size,)).to(dtype) for _ in range(members)]


def _reduced(reduce_op: str, shards: list[torch.Tensor]) -> torch.Tensor:
    """By torch, in order; half precision is rounded once, at the end."""
    function = {"sum": torch.add, "prod": torch.mul, "max": torch.maximum, "min": torch.minimum}
    wide = torch.float32 if shards[0].dtype in (torch.float16, torch.bfloat16) else shards[0].dtype
    return functools.reduce(function[reduce_op], [one.to(wide) for one in shards]).to(
        shards[0].dtype
    )


def _numbers(tensor: torch.Tensor) -> bytes:
    return tensor.flatten().contiguous().view(torch.uint8).numpy().tobytes()


def test_every_dtype_is_reduced_as_torch_does(four: list[Worker]) -> None:
    """In one hop and in two, on all members alike."""
    tag = 0
    for (code, dtype), size in itertools.product(enumerate(kernels.DTYPES), (3, 9_001)):
        shards = _shards(dtype, len(four), size)
        for reduce_op in ("sum", "max", "min", "prod"):
            if dtype is torch.bool and reduce_op == "sum":
                continue
            if dtype.is_complex and reduce_op != "sum":
                continue  # they have no order
            tag += 1
            for worker, shard in zip(four, shards, strict=True):
                worker.write(
                    *_uploaded(0, shard, code),
                    op("all_reduce", (1,), (0,), ((0, 1, 2, 3), reduce_op, tag)),
                    read(1, size, tag),
                    op("free", (), (0, 1)),
                )
            expected = _numbers(_reduced(reduce_op, shards))
            for worker in four:
                (answer,) = _whole(worker, {tag: len(expected)})
                assert answer.data == expected, (dtype, size, reduce_op)


def test_shards_change_hands(four: list[Worker]) -> None:
    """Each collective with uneven and empty shards, larger than a slab, against torch."""
    whole = torch.randn(1_000, 700, generator=torch.Generator().manual_seed(5))
    rows, columns = (400, 0, 599, 1), (0, 350, 1, 349)
    members = (0, 1, 2, 3)
    f32 = kernels.DTYPES.index(torch.float32)
    by_rows, by_columns = whole.split(rows), whole.split(columns, dim=1)
    scattered = (whole * 4).split(columns, dim=1)
    for place, worker in enumerate(four):
        worker.write(
            *_uploaded(0, by_rows[place], f32),
            op("all_to_all", (1,), (0,), (members, 0, rows, 1, columns, 21)),
            op("all_gather", (2,), (0,), (members, 0, rows, 22)),
            op("all_gather", (3,), (1,), (members, 1, columns, 23)),
            op("reduce_scatter", (4,), (2,), (members, "sum", 1, columns, 24)),
            op("broadcast", (5,), (2 if place == 3 else None,), (members, 3, whole.shape, f32, 25)),
        )
    for place, worker in enumerate(four):
        wanted = [by_columns[place], whole, whole, scattered[place], whole]
        for slot, value in enumerate(wanted, 1):
            numbers = value.flatten()
            for start in {0, numbers.numel() // 2, max(0, numbers.numel() - 2_000)}:
                window = numbers[start : start + 2_000]
                worker.write(op("read", (), (slot,), (9, start, window.numel())))
                (answer,) = _whole(worker, {9: 4 * window.numel()})
                assert answer.data == _numbers(window), (place, slot, start)
        worker.write(op("free", (), tuple(range(6))))


def _uploaded(slot: int, value: torch.Tensor, dtype: int) -> list[bytes]:
    data = _numbers(value.contiguous())
    chunks = [data[start : start + 32_768] for start in range(0, len(data), 32_768)] or [b""]
    size = tuple(value.shape)
    steps = [op("upload", (slot,), (), (size, dtype), payload=chunks[0])]
    for place, chunk in enumerate(chunks[1:], 1):
        steps.append(op("chunk", (), (slot,), (place * 32_768,), payload=chunk))
    return steps


def test_a_worker_answers_while_it_sends(workers: list[Worker]) -> None:
    """The other one takes nothing in until the first has answered."""
    first, second = workers
    large = 2_000_000
    send = op("send", (), (0,), (1, 31))
    second.process.send_signal(signal.SIGSTOP)
    try:
        first.write(full(0, (large,), 2.0), send, op("free", (), (0,)), full(0, (2,), 5.0))
        first.write(op("add", (1,), (0, 0)), read(1, 2, 4))
        assert first.answers(1)[0].floats == [10.0, 10.0]
    finally:
        second.process.send_signal(signal.SIGCONT)
    f32 = kernels.DTYPES.index(torch.float32)
    second.write(op("receive", (0,), (), (0, 31, (large,), f32)), op("read", (), (0,), (9, 7, 2)))
    assert second.answers(1)[0].floats == [2.0, 2.0]
    first.write(op("synchronize", (), (), (7,)))
    assert first.answers(1)[0].kind == DONE


def test_an_idle_worker_takes_in_what_is_for_nobody(workers: list[Worker]) -> None:
    first, second = workers
    large = 2_000_000
    # The second has no operand and says so; the first has sent by then, or hears of it.
    second.write(op("send", (), (8,), (0, 41)), op("all_reduce", (1,), (8,), ((0, 1), "sum", 42)))
    assert [answer.kind for answer in second.answers(2)] == [FAILURE, FAILURE]
    first.write(full(0, (large,), 2.0), op("all_reduce", (1,), (0,), ((0, 1), "sum", 42)))
    first.write(op("synchronize", (), (), (7,)), full(2, (2,), 3.0), read(2, 2, 9))
    done, answer = first.answers(2)
    assert (done.kind, answer.floats) == (DONE, [3.0, 3.0])


def test_many_collectives_in_flight_give_the_same_bits_again(four: list[Worker]) -> None:
    """Reductions of all and of two, and values that cross, with computation between."""
    size, count = 150_001, 8
    shards = _shards(torch.float32, len(four), size)
    f32 = kernels.DTYPES.index(torch.float32)
    pairs, everyone = ((0, 1), (2, 3)), (0, 1, 2, 3)
    found: list[list[bytes]] = []
    for run in range(2):
        for place, (worker, shard) in enumerate(zip(four, shards, strict=True)):
            worker.write(*_uploaded(0, shard, f32))
            partner = 3 - place
            for turn in range(count):
                base, tag = 10 * (turn + 1), 1000 * (run + 1) + 10 * turn
                group = pairs[place // 2]
                worker.write(
                    op("mul", (base,), (0, [1.0 + turn])),
                    op("all_reduce", (base + 1,), (base,), (everyone, "sum", tag)),
                    op("send", (), (base,), (partner, tag + 2 + place)),
                    op("all_reduce", (base + 2,), (base,), (group, "sum", tag + 1)),
                    op("receive", (base + 3,), (), (partner, tag + 2 + partner, (size,), f32)),
                    op("mul", (base + 4,), (0, [0.5])),
                    op("free", (), (base,)),
                )
            for turn in range(count):
                one, two, three, four_ = (10 * (turn + 1) + slot for slot in (1, 2, 3, 4))
                worker.write(
                    op("add", (one + 5,), (one, two)),
                    op("sub", (one + 6,), (one + 5, three)),
                    op("add", (one + 7,), (one + 6, four_)),
                    op("free", (), (one, two, three, four_, one + 5, one + 6)),
                )
        results = []
        for place, worker in enumerate(four):
            own, theirs = shards[place], shards[3 - place]
            for turn in range(count):
                worker.write(read(10 * (turn + 1) + 8, size, turn + 1))
                factor = 1.0 + turn
                scaled = [shard * factor for shard in shards]
                two = scaled[place // 2 * 2] + scaled[place // 2 * 2 + 1]
                expected = _reduced("sum", scaled) + two - theirs * factor + own * 0.5
                (answer,) = _whole(worker, {turn + 1: 4 * size})
                assert answer.data == _numbers(expected), (run, place, turn)
                results.append(answer.data)
            worker.write(op("free", (), (0, *(10 * (turn + 1) + 8 for turn in range(count)))))
        found.append(results)
    assert found[0] == found[1]


def test_failures_and_losses_reach_the_others(workers: list[Worker]) -> None:
    first, second = workers
    first.write(full(0, (2,), 1.0), full(1, (3,), 1.0), op("add", (2,), (0, 1), tag=77))
    first.write(op("all_reduce", (3,), (2,), ((0, 1), "sum", 5)))
    second.write(full(0, (2,), 1.0), op("all_reduce", (3,), (0,), ((0, 1), "sum", 5)), read(3, 1))
    (failure,) = first.answers(1)
    (inherited,) = second.answers(1)
    assert (inherited.kind, inherited.tag, inherited.text) == (FAILED_REPLY, 77, failure.text)
    second.end()
    first.connection.lost(1)
    first.write(op("all_reduce", (4,), (0,), ((0, 1), "sum", 6)), read(4, 1))
    lost = first.answers(2)[0]
    assert lost.text == "worker 1 is gone"
