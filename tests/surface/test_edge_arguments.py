"""Arguments at the edge of what functions take: of numbers, of None, of dtypes without a kernel."""

import pytest
import torch

import gt

TAKEN = """
m.movedim(m.tensor(2.0), 0, -1)
m.tensor(2.0).moveaxis(-1, 0)
m.slice_scatter(m.ones(3, 2), m.zeros(1, 2), 0, None, 1)
m.slice_scatter(m.ones(3, 2), m.zeros(1, 2), start=2, end=None)
m.slice_scatter(m.ones(3, 2), m.zeros(3, 2), 0, None, None, 1)
m.ones(3, 4).slice_scatter(m.zeros(3, 2), 1, None, None, 2)
m.nn.functional.relu6(m.tensor([1, 9]))
m.round(m.tensor([1.26, 2.0]), decimals=1)
m.round(m.tensor([1, 2]))
m.nanmean(m.tensor([1.0, float("nan")]), dtype=m.float64)
""".strip().splitlines()
REFUSED = """
m.tensor(2.0).unflatten(0, (-1,))
m.tensor([2.0]).unflatten(0, ())
m.nn.functional.hardswish(m.tensor([1, 2]))
m.nn.functional.hardsigmoid(m.tensor([1, 2]))
m.nn.functional.hardsigmoid(m.tensor([True]))
m.nn.functional.hardswish(m.tensor([1j]))
m.nn.functional.hardtanh(m.tensor([True]))
m.nn.functional.relu6(m.tensor([True]))
m.round(m.tensor([1, 2]), decimals=1)
m.meshgrid(m.ones(2), m.ones(2, dtype=m.int64), indexing="ij")
m.cartesian_prod(m.ones(2), m.ones(2, dtype=m.int64))
m.nanmean(m.ones(2), dtype=m.int64)
""".strip().splitlines()


@pytest.mark.parametrize("expression", TAKEN)
def test_taken(expression):
    ours, theirs = (eval(expression, {"m": m}) for m in (gt, torch))
    assert repr(ours.dtype).partition(".")[2] == repr(theirs.dtype).partition(".")[2]
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("expression", REFUSED)
def test_refused(expression):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - PyTorch says which class it is
        eval(expression, {"m": torch})
    with pytest.raises(theirs.type) as ours:
        eval(expression, {"m": gt})
    first, other = (str(x.value).splitlines()[0] for x in (ours, theirs))
    assert first.startswith(other)


WRITES = """
x[x > 0] = m.tensor(2)
x[x > 0] = m.tensor([[2.5]], dtype=m.float64)
x[:, x[0] > 0] = m.tensor(2.5, dtype=m.float64)
x[0, x[0] > 0] = m.tensor(2)
x[m.tensor([True, False])] = m.tensor(7)
x.long()[x > 0] = m.tensor(2.5)
x.index_put_((x > 0,), m.tensor(2.5, dtype=m.float64))
x = m.index_put(x, (x > 0,), m.tensor(2))
x = m.tensor(2.0).index_copy(0, m.tensor([0]), m.tensor([3.0]))
x = m.tensor(2.0).index_copy_(0, m.tensor([0]), m.tensor([3.0]))
""".strip().splitlines()
WRONG_WRITES = """
x[[0]] = m.tensor(2)
x[x > 0] = m.tensor([1, 2])
x[x[:, 0] > 0, [0]] = m.tensor(2)
m.index_put(x, (x > 0,), m.tensor(2), True)
x.index_copy(0, m.tensor([0]), m.ones(2))
x.index_copy_(1, m.tensor([0]), m.ones(2, 1, 1))
""".strip().splitlines()


def written(m, line):
    names = {"m": m, "x": m.tensor([[1.0, -1.0], [2.0, -3.0]])}
    exec(line, names)
    return names["x"]


@pytest.mark.parametrize("line", WRITES)
def test_one_element_is_filled_in_where_masks_say(line):
    ours, theirs = written(gt, line), written(torch, line)
    assert repr(ours.dtype).partition(".")[2] == repr(theirs.dtype).partition(".")[2]
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("line", WRONG_WRITES)
def test_other_writes_are_refused(line):
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        written(torch, line)
    with pytest.raises(theirs.type) as ours:
        written(gt, line)
    assert str(ours.value)[:40] == str(theirs.value)[:40]


def test_a_filled_element_has_a_gradient():
    slopes = []
    for m in (gt, torch):
        value = m.tensor(2.0, dtype=m.float64, requires_grad=True)
        x = m.ones(3)
        x[m.tensor([True, False, True])] = value
        (x * x).sum().backward()
        slopes.append((str(value.grad.dtype).split(".")[1], value.grad.item()))
    assert slopes[0] == slopes[1]
