"""The texts of errors: PyTorch's class and words first, then GT's operation and the user's line.

Mistakes that shapes and dtypes show are raised at the call, failures on a worker at the first read.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cluster import Cluster, until

import gt
from gt import nn

TOO_LARGE = 2**46  # elements: their bytes exceed what a process can address, so none is allocated

Wrong = tuple[Callable[..., object], str]

SHAPES: list[Wrong] = [
    (lambda m: m.zeros(2, 3) + m.zeros(4), "; add f32[2,3] f32[4]"),
    (lambda m: m.zeros(2, 3) @ m.zeros(2, 3), "; matmul f32[2,3] f32[2,3]"),
    (lambda m: m.zeros(3) @ m.zeros(4), "; matmul f32[3] f32[4]"),
    (lambda m: m.matmul(m.zeros(2, 3, 4), m.zeros(2, 5, 4)), "; matmul f32[2,3,4] f32[2,5,4]"),
    (lambda m: m.cat([m.zeros(2, 3), m.zeros(2, 4)]), "; cat f32[2,3] f32[2,4]"),
    (lambda m: m.stack([m.zeros(2, 3), m.zeros(2, 4)]), ""),
    (lambda m: m.zeros(2, 3).reshape(4), "; reshape f32[2,3]"),
    (lambda m: m.zeros(2, 3).expand(3, 3), "; expand f32[2,3]"),
    (lambda m: m.zeros(2, 3).permute(0), "; permute f32[2,3]"),
    (lambda m: m.zeros(2, 3).sum(5), "; sum f32[2,3]"),
    (lambda m: m.zeros(2, 3)[5], ""),
    (lambda m: m.zeros(2, 3)[0, 0, 0], ""),
    (lambda m: m.zeros(2, 3).transpose(0, 7), ""),
    (
        lambda m: m.where(m.zeros(2) > 0, m.zeros(3), m.zeros(4)),
        "; where bool[2] f32[3] f32[4]",
    ),
    (lambda m: m.nn.Linear(3, 4)(m.zeros(2, 5)), "; linear f32[2,5] f32[4,3] f32[4]"),
    (
        lambda m: m.nn.functional.linear(m.zeros(2, 3), m.zeros(4, 5)),
        "; linear f32[2,3] f32[4,5] _",
    ),
    (lambda m: m.nn.LayerNorm(4)(m.zeros(2, 5)), "; layer_norm f32[2,5] f32[4] f32[4]"),
    (
        lambda m: m.nn.functional.cross_entropy(m.zeros(2, 5), m.zeros(3, dtype=m.int64)),
        "; cross_entropy f32[2,5] i64[3] _",
    ),
    (lambda m: m.zeros(2, 3).gather(0, m.zeros(2, dtype=m.int64)), "; gather f32[2,3] i64[2]"),
    (lambda m: m.zeros(2, 3).split([1, 2, 3]), ""),
    (lambda m: m.zeros(2, requires_grad=True).backward(), ""),
    (lambda m: m.ones(2).item(), ""),
    (lambda m: bool(m.ones(2)), ""),
    (lambda m: bool(m.ones(0)), ""),
]

DTYPES: list[Wrong] = [
    (lambda m: m.zeros(2, 2) @ m.zeros(2, 2, dtype=m.float64), "; matmul f32[2,2] f64[2,2]"),
    (lambda m: m.zeros(2, 2) @ m.zeros(2, 2, dtype=m.int64), "; matmul f32[2,2] i64[2,2]"),
    (lambda m: m.zeros(2, 3).gather(1, m.zeros(2, 3)), "; gather f32[2,3] f32[2,3]"),
    (lambda m: m.nn.functional.embedding(m.zeros(2), m.zeros(3, 4)), "; embedding f32[3,4] f32[2]"),
    (lambda m: m.tensor([1, 2]).mean(), "; mean i64[2]"),
    (lambda m: m.tensor([True]) - m.tensor([True]), "; sub bool[1] bool[1]"),
    (lambda m: -m.tensor([True]), "; neg bool[1]"),
    (lambda m: m.ones(2) & m.ones(2), "; bitwise_and f32[2] f32[2]"),
    (lambda m: m.tensor([1, 2]).softmax(0), "; softmax i64[2]"),
    (lambda m: m.tensor([1, 2]).add_(1.5), ""),
    (lambda m: m.tensor([1, 2]).requires_grad_(), ""),
    (lambda m: m.tensor([1.0, "a"]), ""),
]


def raised(act: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at class and text
        act()
    return caught.value


def line_after() -> int:
    """The line that follows the call of this function."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno + 1


def called(failed: str, line: int) -> str:
    """The part of the text that names the operation with its operands, and this file's line."""
    return f"; {failed}\n  in `{failed.split(maxsplit=1)[0]}`, called at {__file__}:{line}"


def check_at_the_call(wrong: Callable[..., object], suffix: str) -> None:
    ours, theirs = raised(lambda: wrong(gt)), raised(lambda: wrong(torch))
    assert isinstance(ours, type(theirs))
    assert isinstance(ours, gt.Error)
    assert str(ours) == f"{theirs}{suffix}"


@pytest.mark.parametrize(("wrong", "suffix"), SHAPES, ids=range(len(SHAPES)))
def test_shapes_at_the_call(wrong: Callable[..., object], suffix: str) -> None:
    check_at_the_call(wrong, suffix)
    assert isinstance(raised(lambda: wrong(gt)), (gt.ShapeError, IndexError, ValueError))


@pytest.mark.parametrize(("wrong", "suffix"), DTYPES, ids=range(len(DTYPES)))
def test_dtypes_at_the_call(wrong: Callable[..., object], suffix: str) -> None:
    check_at_the_call(wrong, suffix)
    if suffix:
        assert isinstance(raised(lambda: wrong(gt)), gt.DtypeError)


def test_what_is_wrong_with_a_gradient_is_neither_shape_nor_dtype() -> None:
    x, y = gt.ones(2, requires_grad=True), gt.ones(2)
    loss = (x * x).sum()
    loss.backward()
    assert type(raised(loss.backward)) is gt.errors.InvalidUse
    assert type(raised(lambda: y.sum().backward())) is gt.errors.NotDifferentiable
    assert type(raised(lambda: gt.autograd.grad(x.sum(), y))) is gt.errors.NotDifferentiable
    assert type(raised(lambda: x.add_(1))) is gt.errors.InvalidUse


def test_a_mistake_at_the_call_leaves_the_session_usable() -> None:
    x = gt.ones(2)
    raised(lambda: x + gt.ones(3))
    assert (x + 1).tolist() == [2.0, 2.0]
    gt.synchronize()


def test_gather_out_of_range_is_raised_at_the_read() -> None:
    index = gt.tensor([5])
    line = line_after()
    picked = gt.zeros(3).gather(0, index)
    error = raised(picked.tolist)
    theirs = raised(lambda: torch.zeros(3).gather(0, torch.tensor([5])))
    assert isinstance(error, gt.WorkerError)
    assert str(error) == f"{theirs}{called('gather f32[3] i64[1]', line)}"


def test_embedding_out_of_range_is_pytorchs_index_error() -> None:
    words, table = gt.tensor([7]), gt.ones(3, 2)
    line = line_after()
    rows = nn.functional.embedding(words, table)
    error = raised(rows.tolist)
    theirs = raised(lambda: torch.nn.functional.embedding(torch.tensor([7]), torch.ones(3, 2)))
    assert isinstance(error, IndexError)
    assert isinstance(theirs, IndexError)
    assert str(error) == f"{theirs}{called('embedding f32[3,2] i64[1]', line)}"


def test_index_select_out_of_range_is_pytorchs_index_error() -> None:
    index, table = gt.tensor([7]), gt.ones(3, 2)
    line = line_after()
    rows = table.index_select(0, index)
    error = raised(rows.tolist)
    theirs = raised(lambda: torch.ones(3, 2).index_select(0, torch.tensor([7])))
    assert isinstance(error, IndexError)
    assert str(error) == f"{theirs}{called('index_select f32[3,2] i64[1]', line)}"


@pytest.mark.parametrize("read", ["item", "tolist", "numpy", "__repr__", "__bool__", "__float__"])
def test_every_read_raises(read: str) -> None:
    line = line_after()
    lost = gt.zeros(1).gather(0, gt.tensor([5]))
    for _ in range(2):
        assert str(raised(getattr(lost, read))).endswith(called("gather f32[1] i64[1]", line))


def test_dependents_inherit_the_root_cause() -> None:
    index = gt.tensor([9])
    line = line_after()
    first = gt.zeros(3).gather(0, index)
    second = first + 1
    third = (second.reshape(1, 1) @ gt.ones(1, 4)).sum()
    for dependent in (third, second, first):
        error = raised(dependent.tolist)
        assert str(error).startswith("index 9 is out of bounds for dimension 0 with size 3")
        assert str(error).endswith(called("gather f32[3] i64[1]", line))
    assert gt.ones(2).tolist() == [1.0, 1.0]


class Words(nn.Module):
    """An embedding whose `forward` notes its own line."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(3, 4)
        self.line = 0

    def forward(self, words: gt.Tensor) -> gt.Tensor:
        self.line = line_after()
        rows = self.table(words)
        return rows.sum()


def test_the_line_in_a_modules_forward_is_named() -> None:
    model = Words()
    total = model(gt.tensor([7]))
    error = raised(total.item)
    assert isinstance(error, gt.Error)
    assert str(error) == "index out of range in self" + called(
        "embedding f32[3,4] i64[1]", model.line
    )


def test_a_failing_gradient_names_the_forwards_line() -> None:
    weight, index = gt.ones(3, requires_grad=True), gt.tensor([9])
    doubled = weight * 2
    line = line_after()
    picked = doubled.gather(0, index)
    picked.sum().backward()
    assert weight.grad is not None
    error = raised(weight.grad.tolist)
    assert str(error).startswith("index 9 is out of bounds for dimension 0 with size 3")
    assert str(error).endswith(f", called at {__file__}:{line}")
    raised(picked.tolist)


def test_a_tensor_that_no_memory_holds() -> None:
    line = line_after()
    huge = gt.full((TOO_LARGE,), 1.0)
    error = raised(huge.sum().item)
    theirs = raised(lambda: torch.full((TOO_LARGE,), 1.0))
    assert isinstance(error, gt.OutOfMemoryError)
    assert isinstance(error, type(theirs))
    assert str(error) == f"{theirs}{called('full', line)}"
    assert gt.ones(2).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.linalg.inv(m.zeros(2, 2)),
        lambda m: m.linalg.cholesky(-m.eye(3)),
        lambda m: m.linalg.solve(m.zeros(2, 2), m.ones(2, 1)),
    ],
)
def test_a_matrix_without_an_inverse(call: Callable[[Any], Any]) -> None:
    theirs = raised(lambda: call(torch))
    assert isinstance(theirs, torch.linalg.LinAlgError)
    error = raised(lambda: call(gt).tolist())
    assert isinstance(error, gt.linalg.LinAlgError)
    text, line = str(error).splitlines()
    assert text.startswith(f"{theirs}; aten::linalg_")
    assert f"called at {__file__}:" in line


@pytest.mark.parametrize("value", [1.5, -0.25, float("nan")])
def test_a_cross_entropy_of_no_probability(value: float) -> None:
    def call(m: Any) -> Any:
        return m.nn.functional.binary_cross_entropy(m.tensor([0.5, value]), m.tensor([1.0, 1.0]))

    theirs = raised(lambda: call(torch))
    error = raised(lambda: call(gt).item())
    assert str(error).startswith(f"{theirs}; binary_cross_entropy f32[2] f32[2]")


def test_synchronize_raises_what_nobody_has_read() -> None:
    gt.synchronize()
    index = gt.tensor([4])
    line = line_after()
    lost = gt.zeros(2).gather(0, index)
    del index
    assert str(raised(gt.synchronize)).endswith(called("gather f32[2] i64[1]", line))
    gt.synchronize()  # once is enough
    assert gt.ones(1).tolist() == [1.0]  # and no warning either, which would be an error here
    assert str(raised(lost.tolist)).endswith(called("gather f32[2] i64[1]", line))


def test_synchronize_is_silent_about_a_failure_that_was_read() -> None:
    lost = gt.zeros(2).gather(0, gt.tensor([4]))
    raised(lost.tolist)
    gt.synchronize()


def test_the_next_read_warns_of_what_nobody_has_read() -> None:
    index = gt.tensor([4])
    line = line_after()
    lost = gt.zeros(2).gather(0, index)
    lost_too = gt.zeros(2, 3).index_select(0, index) + 1
    with pytest.warns(gt.UnreadFailureWarning) as warned:
        assert gt.ones(1).item() == 1.0
    texts = [str(one.message) for one in warned]
    assert [(one.filename, one.lineno) for one in warned] == [
        (__file__, line),
        (__file__, line + 1),
    ]
    assert texts[0] == (
        "a failure that nobody has read: index 4 is out of bounds for dimension 0 with size 2"
        + called("gather f32[2] i64[1]", line)
    )
    assert texts[1].endswith(called("index_select f32[2,3] i64[1]", line + 1))
    gt.synchronize()  # told once
    assert gt.ones(1).item() == 1.0
    raised(lost.tolist)
    raised(lost_too.tolist)


def test_two_failures_of_one_line_are_two_warnings() -> None:
    index = gt.tensor([4])
    lost = [gt.zeros(2).gather(0, index) for _ in range(2)]
    with pytest.warns(gt.UnreadFailureWarning) as warned:
        gt.ones(1).item()
    assert len(warned) == len(lost)


def test_a_read_that_fails_warns_of_nothing_and_is_warned_of_no_more() -> None:
    index = gt.tensor([4])
    lost, other = gt.zeros(2).gather(0, index), gt.zeros(3).gather(0, index)
    assert "size 3" in str(raised(other.tolist))
    with pytest.warns(gt.UnreadFailureWarning, match="size 2") as warned:
        gt.ones(1).item()
    assert len(warned) == 1
    raised(lost.tolist)


def program(code: str, backend: str = "numpy") -> "subprocess.CompletedProcess[str]":
    """On workers that begin at once: what is asked is what the client prints."""
    environment = os.environ | {"GT_BACKEND": backend}
    command = [sys.executable, "-c", f"import gt\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


GATHER = (
    "index 4 is out of bounds for dimension 0 with size 2; gather f32[2] i64[1]\n"
    "  in `gather`, called at <string>:2"
)
SELECT = (
    "index out of range in self; index_select f32[2] i64[1]\n"
    "  in `index_select`, called at <string>:3"
)
LOST = "a = gt.zeros(2).gather(0, gt.tensor([4]))\n"
LOST_TOO = "b = gt.zeros(2).index_select(0, gt.tensor([9]))\n"
UNREAD = "gt: a failure that nobody has read:\n"


def test_an_unread_failure_is_printed_at_exit() -> None:
    ended = program(LOST)
    assert ended.returncode == 0
    assert ended.stderr == f"{UNREAD}{GATHER}\n"


def test_an_unread_failure_of_a_tensor_that_is_gone_is_printed_too() -> None:
    assert program(f"{LOST}del a").stderr == f"{UNREAD}{GATHER}\n"


def test_dependents_of_an_unread_failure_are_not_printed() -> None:
    assert program(f"{LOST}b = a + 1; c = b.sum()").stderr == f"{UNREAD}{GATHER}\n"


def test_several_unread_failures_are_printed_in_their_order() -> None:
    ended = program(f"{LOST}{LOST_TOO}")
    assert ended.stderr == f"{UNREAD}{GATHER}\n{UNREAD}{SELECT}\n"


def test_a_failure_that_was_read_is_not_printed() -> None:
    ended = program(f"{LOST}try: a.tolist()\nexcept gt.Error as error: print(error)")
    assert ended.stdout == f"{GATHER}\n"
    assert ended.stderr == ""


def test_a_session_without_workers_ends_at_once_all_the_same() -> None:
    with Cluster(0) as cluster:
        assert cluster.run("x = gt.ones(2) + 1") == ""


def test_a_forked_child_ends_without_a_word() -> None:
    fork = "import os\nif os.fork() == 0: raise SystemExit\nos.wait()\nprint((a + 1).tolist())"
    ended = program(f"a = gt.ones(2)\n{fork}")
    assert (ended.stdout, ended.stderr) == ("[2.0, 2.0]\n", "")


WARNED = "UnreadFailureWarning: a failure that nobody has read: "


def test_what_a_read_has_warned_of_is_not_printed_at_the_end() -> None:
    ended = program(f"{LOST}gt.ones(1).item()")
    told = f"<string>:2: {WARNED}{GATHER}\n"
    assert ended.stderr.startswith(told)
    # Python 3.13 knows the text of a line given by -c, and shows that of a warning.
    assert ended.stderr.removeprefix(told) in ("", f"  {LOST}")


def test_of_very_many_unread_failures_the_latest_are_told_and_the_others_counted() -> None:
    ended = program(f"for _ in range(70):\n    {LOST}")
    assert ended.stderr.count(UNREAD) == 65
    assert f"{UNREAD}6 earlier ones, whose texts were not kept\n" in ended.stderr


SPREAD = """
gt.gpu_workers(2)
x, index = gt.ones(6, 4), gt.full((6, 4), 9, dtype=gt.int64)
lost = gt.distribute(x, dim=0).gather(1, gt.distribute(index, dim=0))
try: lost.tolist()
except gt.Error as error: print(error)
"""


def test_of_shards_the_whole_tensors_shapes_are_named() -> None:
    ended = program(SPREAD)
    assert ended.stderr == ""
    assert ended.stdout == (
        "index 9 is out of bounds for dimension 1 with size 4; gather f32[6,4] i64[6,4]\n"
        "  in `gather`, called at <string>:5\n"
    )


LOST_WORKERS = f"""
gt.gpu_workers(2)
x = gt.distribute(gt.ones(6, 4), dim=0)
w = gt.full((3,), 2.0)
v = w * 3
y = x - 2
total = (y + v.sum()).sum()
gt.synchronize()
gt.cancel()  # values from before it are not made again
import os, signal, sys
sys.path.append({str(Path(__file__).parent.parent / "cluster")!r})
from worker_processes import worker_processes
for worker in worker_processes(): os.kill(worker, signal.SIGKILL)
for lost in (w, v, y, total):
    try: lost.tolist()
    except gt.WorkerError as error: print(str(error).splitlines()[1])
"""


def test_of_a_lost_worker_the_users_own_operator_and_line_are_named() -> None:
    ended = program(LOST_WORKERS)
    made = {5: "full", 6: "mul", 7: "sub", 8: "sum"}
    lines = (f"  in `{name}`, called at <string>:{line}\n" for line, name in made.items())
    assert ended.stdout == "".join(lines)
    assert all(line.startswith("gt: worker ") for line in ended.stderr.splitlines())


def test_of_a_value_from_long_ago_the_line_is_still_named() -> None:
    later = "gt.synchronize()\nfor _ in range(70_000): later = w + 1\n"
    ended = program(LOST_WORKERS.replace("gt.synchronize()\n", later))
    assert ended.stdout == "".join(f"  made at <string>:{line}\n" for line in (5, 6, 7, 8))
    assert all(line.startswith("gt: worker ") for line in ended.stderr.splitlines())


CONNECTED = f"""
def show(read):
    try: read()
    except gt.Error as error: print(type(error).__name__, error)
huge = gt.full(({TOO_LARGE},), 1.0)
show(huge.sum().item)
show(gt.ones(3).gather(0, gt.tensor([5])).tolist)
show(gt.ones(3, 2).index_select(0, gt.tensor([-4])).tolist)
show(gt.nn.functional.embedding(gt.tensor([7]), gt.ones(3, 2)).tolist)
print(gt.ones(2).tolist())
"""
SAID = """WorkerError index 5 is out of bounds for dimension 0 with size 3; gather f32[3] i64[1]
  in `gather`, called at <string>:9
IndexOutOfRange index out of range in self; index_select f32[3,2] i64[1]
  in `index_select`, called at <string>:10
IndexOutOfRange index out of range in self; embedding f32[3,2] i64[1]
  in `embedding`, called at <string>:11
[1.0, 1.0]
"""


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_workers_of_a_dispatcher_report_the_same_way(backend: str) -> None:
    with Cluster(1, backend=backend) as cluster:
        cluster.wait_for_workers()  # or the client says on standard error that it waits for one
        client = cluster.client(CONNECTED)
        out, errors = client.communicate(timeout=60)
    assert errors == ""
    first, second, rest = out.split("\n", maxsplit=2)
    assert first.startswith("OutOfMemoryError ")
    assert first.endswith("; full")
    assert second == "  in `full`, called at <string>:7"
    assert rest == SAID


NO_WORKER = """
gt.connect({address!r}, worker_seconds=0.1)
x = gt.ones(2)
for wait in (x.tolist, gt.synchronize):
    try: wait()
    except gt.NoWorker as error: print(error)
print(input())
print((x + 1).tolist())
"""


def test_where_no_worker_joins_reading_and_waiting_end_and_the_session_goes_on() -> None:
    with Cluster(0) as cluster:
        client = cluster.client(NO_WORKER.format(address=cluster.address))
        texts = [client.stdout.readline() for _ in range(2)]
        cluster.add_worker()
        cluster.wait_for_workers()
        out, errors = client.communicate("now\n", timeout=60)
    assert (out, errors) == ("now\n[2.0, 2.0]\n", "")
    for text in texts:
        assert text.startswith(f"dispatcher at {cluster.address}, by shared memory: ")
        assert "no worker has joined it within 0.1 s" in text


@pytest.mark.parametrize("settings", [{}, {"GT_NO_RING": "1"}])
def test_who_waits_for_the_first_worker_is_told_so_with_the_command(settings) -> None:
    with Cluster(0) as cluster:
        client = cluster.client("print(gt.ones(2).tolist())", **settings)
        line = client.stderr.readline()
        cluster.add_worker()
        out, errors = client.communicate(timeout=60)
    host, port = cluster.address.split(":")
    assert line.startswith(f"gt: dispatcher at {cluster.address}, by ")
    assert line.endswith(
        f": waiting for a worker. Start one: `python -m gt.worker --host {host} -p {port}`\n"
    )
    assert (out, errors) == ("[1.0, 1.0]\n", "")


ALL_GONE = """
x = gt.ones(2)
print(x.tolist(), flush=True)
input()
for read in (x.tolist, gt.ones(3).tolist):
    try: read()
    except gt.WorkerError as error: print(error)
gt.synchronize()
"""


def test_where_all_workers_are_gone_reading_and_waiting_end() -> None:
    with Cluster(1) as cluster:
        cluster.wait_for_workers()
        client = cluster.client(ALL_GONE)
        assert client.stdout.readline() == "[1.0, 1.0]\n"
        cluster.kill_worker(0)
        until(lambda: "worker 0 is gone" in cluster.log)
        out, errors = client.communicate("now\n", timeout=60)
    first, place, advice, second, other, advice_again = out.splitlines()
    assert all(line.startswith("gt: worker 0 is gone: ") for line in errors.splitlines())
    host, port = cluster.address.split(":")
    assert advice == advice_again == f"  Start one: `python -m gt.worker --host {host} -p {port}`"
    assert first.startswith("worker 0 is gone (")
    assert place == "  in `full`, called at <string>:4"
    assert second == "no worker is connected to the dispatcher"
    assert other == "  in `full`, called at <string>:7"


DISPATCHER_GONE = """
x = gt.ones(2)
print(x.tolist(), flush=True)
input()
try: x.tolist()
except gt.ConnectionLost as error: print(error)
try: x + 1
except gt.ConnectionLost as error: print(error)
"""


@pytest.mark.parametrize("way", ["ring", "tcp"])
def test_once_it_is_known_that_the_dispatcher_is_gone_emitting_raises(way: str) -> None:
    with Cluster(1) as cluster:
        cluster.wait_for_workers()
        client = cluster.client(DISPATCHER_GONE, **({"GT_NO_RING": "1"} if way == "tcp" else {}))
        assert client.stdout.readline() == "[1.0, 1.0]\n"
        cluster.server.kill()
        cluster.server.wait()
        out, errors = client.communicate("now\n", timeout=60)
    assert errors == ""
    at_the_read, at_the_emit = out.splitlines()
    assert at_the_read.startswith("the connection to the dispatcher is gone: ")
    assert at_the_emit == at_the_read


COUNTED = """
x = gt.ones(2) + 1
x.tolist()
known = gt.debug.stats()
print([known[name] for name in ("workers", "values", "instructions", "bytes", "moved_bytes")])
"""


@pytest.mark.parametrize("ring", ["0", "1"])
def test_a_connected_session_counts_what_it_knows(ring: str) -> None:
    with Cluster(1) as cluster:
        cluster.wait_for_workers()
        printed = cluster.run(COUNTED, GT_NO_RING=ring)
    assert printed == "[1, 1, 2, 8, 0]\n"


def test_what_torch_warns_of_is_a_line_of_the_workers_log_once_for_each_text() -> None:
    code = "for n in (1, 1): print(gt.ones(n).var().item())\ngt.ones(1, 2).var(0).tolist()"
    ended = program(code, backend="pytorch")
    with pytest.warns(UserWarning, match="degrees of freedom") as warned:
        torch.ones(1).var()
    text = " ".join(str(warned[0].message).split()).partition(" (Triggered internally")[0]
    assert ended.stdout == "nan\nnan\n"
    assert ended.stderr == f"gt.worker: in `var`: UserWarning: {text}\n"
