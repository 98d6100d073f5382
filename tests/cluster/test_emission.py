"""An instruction that was inferred lately is emitted as it was at first."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import gt

REPEATS = 4  # the first two infer, those after them find what was inferred

SHAPES = [((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0, 3), (1, 3)), ((), (2,))]
DTYPES = ["float32", "float64", "int64", "bool"]
BINARY = ["add", "sub", "mul", "div", "eq", "lt", "pow", "maximum", "matmul"]
UNARY = ["exp", "neg", "abs", "sqrt", "sign", "isnan", "sum", "t"]


def _outcome(library: object, name: str, operands: list[object]) -> str:
    try:
        result = getattr(library, name)(*operands)
    except (RuntimeError, IndexError):
        return "refused"
    return f"{str(result.dtype).split('.')[-1]} {tuple(result.shape)} {result.tolist()}"


@pytest.mark.parametrize("name", BINARY + UNARY)
def test_results_are_torchs_each_time(name: str) -> None:
    for shapes in SHAPES:
        for left in DTYPES:
            for right in DTYPES if name in BINARY else DTYPES[:1]:
                sides = []
                for library in (gt, torch):
                    dtypes = [getattr(library, left), getattr(library, right)]
                    pairs = zip(shapes, dtypes, strict=True)
                    operands = [library.ones(shape, dtype=dtype) for shape, dtype in pairs]
                    operands = operands[: 2 if name in BINARY else 1]
                    sides.append([_outcome(library, name, operands) for _ in range(REPEATS)])
                ours, theirs = sides
                assert len(set(ours)) == 1, f"{name} {shapes} {left} {right}: {ours}"
                assert ours[0] == theirs[0], f"{name} {shapes} {left} {right}"


def test_numbers_and_attributes_are_not_mixed_up() -> None:
    x = gt.ones(2, 3)
    for _ in range(REPEATS):
        for number in (2, 2.5, True, -1):
            assert (x.int() * number).dtype == getattr(
                gt, str((torch.ones(2, 3).int() * number).dtype).split(".")[-1]
            )
        for dim in (0, 1, -1):
            for keepdim in (False, True):
                ours = x.sum(dim=dim, keepdim=keepdim)
                theirs = torch.ones(2, 3).sum(dim=dim, keepdim=keepdim)
                assert (ours.shape, ours.tolist()) == (tuple(theirs.shape), theirs.tolist())


def test_another_default_dtype_is_seen() -> None:
    x = gt.tensor([1, 2])
    for _ in range(REPEATS):
        assert (x / x).dtype == gt.float32
    gt.set_default_dtype(gt.float64)
    try:
        assert (x / x).dtype == gt.float64
    finally:
        gt.set_default_dtype(gt.float32)
    assert (x / x).dtype == gt.float32


def test_grad_mode_and_leaves_are_seen() -> None:
    x, w = gt.ones(3), gt.ones(3)
    for _ in range(REPEATS):
        assert not (x * w).requires_grad
    w.requires_grad_()
    for _ in range(REPEATS):
        y = x * w
        assert y.requires_grad
        with gt.no_grad():
            assert not (x * w).requires_grad
    y.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [1.0, 1.0, 1.0]


def test_a_value_outlives_its_variable_and_a_written_variable_its_value() -> None:
    x = gt.ones(3, requires_grad=True)
    y = x * 2
    z = (y * y).sum()  # saves y's value
    copy, view = y.detach().clone(), y.detach()
    del y
    gc.collect()
    others = [gt.zeros(3) + k for k in range(8)]  # entries and slots that are free are taken
    z.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8.0, 8.0, 8.0]
    assert copy.tolist() == view.tolist() == [2.0, 2.0, 2.0]
    view.mul_(3)
    copy.add_(1)
    assert (view.tolist(), copy.tolist()) == ([6.0] * 3, [3.0] * 3)
    assert [other.tolist() for other in others] == [[float(k)] * 3 for k in range(8)]


def test_a_destructor_may_emit_and_write() -> None:
    seen: list[object] = []

    class Loud(gt.Tensor):
        def __del__(self) -> None:
            self += 1
            seen.append((self + self).tolist())

    keeper = gt.ones(2)
    for _ in range(REPEATS):
        loud = Loud(keeper * 2)
        ghost = weakref.ref(loud)
        del loud
        assert ghost() is None
        keeper + keeper
    assert seen == [[6.0, 6.0]] * REPEATS
    assert keeper.tolist() == [1.0, 1.0]
