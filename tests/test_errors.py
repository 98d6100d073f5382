"""The texts of errors: PyTorch's class and words first, then GT's operation and the user's line.

Mistakes that shapes and dtypes show are raised at the call, failures on a worker at the first read.
"""

import inspect
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from cluster import Cluster

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
        "; nll_loss f32[2,5] i64[3] _",
    ),
    (lambda m: m.zeros(2, 3).gather(0, m.zeros(2, dtype=m.int64)), "; gather f32[2,3] i64[2]"),
    (lambda m: m.zeros(2, 3).split([1, 2, 3]), ""),
    (lambda m: m.zeros(2, requires_grad=True).backward(), ""),
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


def called(op: str, line: int) -> str:
    """The part of the text that names the operation and this file's line."""
    return f"\n  in `{op}`, called at {__file__}:{line}"


def check_at_the_call(wrong: Callable[..., object], suffix: str) -> None:
    ours, theirs = raised(lambda: wrong(gt)), raised(lambda: wrong(torch))
    assert isinstance(ours, type(theirs))
    assert isinstance(ours, gt.Error)
    assert str(ours) == f"{theirs}{suffix}"


@pytest.mark.parametrize(("wrong", "suffix"), SHAPES, ids=range(len(SHAPES)))
def test_shapes_at_the_call(wrong: Callable[..., object], suffix: str) -> None:
    check_at_the_call(wrong, suffix)


@pytest.mark.parametrize(("wrong", "suffix"), DTYPES, ids=range(len(DTYPES)))
def test_dtypes_at_the_call(wrong: Callable[..., object], suffix: str) -> None:
    check_at_the_call(wrong, suffix)


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
    assert str(error) == f"{theirs}{called('gather', line)}"


def test_embedding_out_of_range_is_pytorchs_index_error() -> None:
    words, table = gt.tensor([7]), gt.ones(3, 2)
    line = line_after()
    rows = nn.functional.embedding(words, table)
    error = raised(rows.tolist)
    theirs = raised(lambda: torch.nn.functional.embedding(torch.tensor([7]), torch.ones(3, 2)))
    assert isinstance(error, IndexError)
    assert isinstance(theirs, IndexError)
    assert str(error) == f"{theirs}{called('embedding', line)}"


def test_index_select_out_of_range_is_pytorchs_index_error() -> None:
    index, table = gt.tensor([7]), gt.ones(3, 2)
    line = line_after()
    rows = table.index_select(0, index)
    error = raised(rows.tolist)
    theirs = raised(lambda: torch.ones(3, 2).index_select(0, torch.tensor([7])))
    assert isinstance(error, IndexError)
    assert str(error) == f"{theirs}{called('index_select', line)}"


@pytest.mark.parametrize("read", ["item", "tolist", "numpy", "__repr__", "__bool__", "__float__"])
def test_every_read_raises(read: str) -> None:
    line = line_after()
    lost = gt.zeros(1).gather(0, gt.tensor([5]))
    for _ in range(2):
        assert str(raised(getattr(lost, read))).endswith(called("gather", line))


def test_dependents_inherit_the_root_cause() -> None:
    index = gt.tensor([9])
    line = line_after()
    first = gt.zeros(3).gather(0, index)
    second = first + 1
    third = (second.reshape(1, 1) @ gt.ones(1, 4)).sum()
    for dependent in (third, second, first):
        error = raised(dependent.tolist)
        assert str(error).startswith("index 9 is out of bounds for dimension 0 with size 3")
        assert str(error).endswith(called("gather", line))
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
    assert str(error) == "index out of range in self" + called("embedding", model.line)


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
    assert isinstance(error, gt.WorkerError)
    assert "allocate" in str(error)
    assert str(error).endswith(called("full", line))
    assert gt.ones(2).tolist() == [1.0, 1.0]


def test_synchronize_raises_what_nobody_has_read() -> None:
    gt.synchronize()
    index = gt.tensor([4])
    line = line_after()
    lost = gt.zeros(2).gather(0, index)
    del index
    assert str(raised(gt.synchronize)).endswith(called("gather", line))
    gt.synchronize()  # once is enough
    assert str(raised(lost.tolist)).endswith(called("gather", line))


def test_synchronize_is_silent_about_a_failure_that_was_read() -> None:
    lost = gt.zeros(2).gather(0, gt.tensor([4]))
    raised(lost.tolist)
    gt.synchronize()


def program(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", f"import gt\n{code}"], capture_output=True, text=True, timeout=60
    )


GATHER = "index 4 is out of bounds for dimension 0 with size 2\n  in `gather`, called at <string>:2"
SELECT = "index out of range in self\n  in `index_select`, called at <string>:3"
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
    ended = program(f"{LOST}{LOST_TOO}gt.ones(1).item()")
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


NUMPY_WORKER = f"""
huge = gt.full(({TOO_LARGE},), 1.0)
try: huge.sum().item()
except gt.OutOfMemoryError as error: print(str(error).splitlines()[1].split(",")[0])
try: gt.ones(3).gather(0, gt.tensor([5])).tolist()
except IndexError as error: print(error)
print(gt.ones(2).tolist())
"""


def test_a_numpy_worker_reports_the_same_way() -> None:
    with Cluster(1) as cluster:
        client = cluster.client(NUMPY_WORKER)
        out, errors = client.communicate(timeout=60)
    first, *middle, last = out.splitlines()
    assert errors == ""
    assert first == "  in `full`"
    assert "out of bounds" in middle[0]
    assert middle[1].startswith("  in `gather`, called at <string>:")
    assert last == "[1.0, 1.0]"
