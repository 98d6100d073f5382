"""rms_norm as PyTorch's: dtypes, gradients of gradients, mistakes, autocast, cuts of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from spread_session import workers  # noqa: E402

import gt  # noqa: E402

HALVES = {"float16": 2e-3, "bfloat16": 2e-2}
TOLERANCE = {"float32": 2e-6, "float64": 1e-12, **HALVES}
SHAPES = [((3, 4), 1), ((2, 3, 4), 2), ((5,), 1), ((0, 4), 1), ((3, 0), 1)]


def drawn(library: Any, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return library.tensor(numbers.tolist(), dtype=getattr(library, dtype)).reshape(shape)


def results(
    library: Any,
    case: tuple[tuple[int, ...], int],
    dtypes: tuple[str, str | None],
    eps: float | None,
) -> list[Any]:
    """The norm, the gradients of input and weight, and the gradients of their squares."""
    (shape, count), (dtype, of_weight) = case, dtypes
    leaves = [drawn(library, shape, dtype, 0)]
    if of_weight is not None:
        leaves.append(drawn(library, shape[-count:], of_weight, 1))
    for leaf in leaves:
        leaf.requires_grad_()
    out = library.nn.functional.rms_norm(leaves[0], shape[-count:], *leaves[1:], eps=eps)
    total = (out * drawn(library, shape, dtype, 2)).sum()
    plain = library.autograd.grad(total, leaves, retain_graph=True)
    again = library.autograd.grad(total, leaves, create_graph=True)
    second = library.autograd.grad(sum((one * one).sum() for one in again), leaves)
    return [out, *plain, *again, *second]


def numbers(x: Any) -> np.ndarray:
    return np.array(x.detach().double().tolist()).reshape(tuple(x.shape))


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("eps", [None, 1e-2])
@pytest.mark.parametrize("of_weight", ["none", "same", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_values_and_first_and_second_gradients(
    dtype: str, of_weight: str, eps: float | None
) -> None:
    """A weight of another dtype too, rows without elements, and no rows."""
    dtypes = (dtype, {"none": None, "same": dtype}.get(of_weight, of_weight))
    for case in SHAPES:
        ours, theirs = (results(library, case, dtypes, eps) for library in (gt, torch))
        for one, other in zip(ours, theirs, strict=True):
            assert str(one.dtype).split(".")[1] == str(other.dtype).split(".")[1]
            assert tuple(one.shape) == tuple(other.shape)
            expected = numbers(other)
            bound = TOLERANCE[dtype] * max(1.0, np.abs(expected).max(initial=0))
            np.testing.assert_allclose(numbers(one), expected, rtol=0, atol=bound)


def test_squares_beyond_half_precision() -> None:
    """They are made and added in float32, in the gradients of gradients as well."""
    x = [300.0, -200.0, 250.0, 100.0]
    found = []
    for library in (gt, torch):
        leaf = library.tensor(x, dtype=library.float16, requires_grad=True)
        out = library.nn.functional.rms_norm(leaf, (4,))
        weights = library.tensor([100.0, 2.0, -3.0, 4.0], dtype=library.float16)
        (slope,) = library.autograd.grad((out * weights).sum(), leaf, create_graph=True)
        (second,) = library.autograd.grad((slope * 100).sum(), leaf)
        found.append([numbers(out), numbers(slope), numbers(second)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=4e-3, atol=1e-4)


REFUSED = {
    "no dimension": lambda t: ((t.ones(2, 3), ()), RuntimeError),
    "fewer dimensions": lambda t: ((t.ones(3), (2, 3)), ValueError),
    "another shape": lambda t: ((t.ones(2, 5, 3), (4, 3)), RuntimeError),
    "another weight": lambda t: ((t.ones(2, 3), (3,), t.ones(2)), RuntimeError),
    "another weight of another dtype": lambda t: (
        (t.ones(2, 3), (3,), t.ones(2).double()),
        RuntimeError,
    ),
    "integers": lambda t: ((t.ones(2, 3, dtype=t.int32), (3,)), NotImplementedError),
    "integers and an eps": lambda t: (
        (t.ones(2, 3, dtype=t.int64), (3,), None, 0.1),
        NotImplementedError,
    ),
    "truths": lambda t: ((t.ones(2, 3, dtype=t.bool), (3,)), NotImplementedError),
    "integers of another shape": lambda t: ((t.ones(2, 3, dtype=t.int32), (4,)), RuntimeError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses(name: str) -> None:
    texts = []
    for library in (torch, gt):
        arguments, error = REFUSED[name](library)
        with pytest.raises(error) as raised:
            library.nn.functional.rms_norm(*arguments)
        texts.append(str(raised.value))
    theirs, ours = texts
    assert ours.startswith(theirs)


def test_complex_numbers() -> None:
    found = []
    for library in (gt, torch):
        parts = [drawn(library, (3, 4), "float64", seed) for seed in (0, 1)]
        x = library.complex(*parts).requires_grad_()
        weight = drawn(library, (4,), "float64", 2)
        out = library.nn.functional.rms_norm(x, (4,), weight)
        out.abs().sum().backward()
        found.append([np.array(one.detach().tolist()) for one in (out, x.grad)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("of_weight", ["float32", "bfloat16"])
def test_autocast_of_a_gpu_computes_and_answers_in_float32(of_weight: str) -> None:
    """The policy of PyTorch's CUDA operator; on the CPU the dtype stays."""
    x = gt.tensor([[1.0, 2.0, 3.0]], dtype=gt.bfloat16)
    weight = gt.tensor([1.1, 2.2, 3.3], dtype=getattr(gt, of_weight))
    with gt.autocast("cuda"):
        wide = gt.nn.functional.rms_norm(x, (3,), weight)
    assert wide.dtype == gt.float32
    exact = gt.nn.functional.rms_norm(x.float(), (3,), weight.float())
    np.testing.assert_array_equal(wide.numpy(), exact.numpy())
    with gt.autocast("cpu"):
        assert gt.nn.functional.rms_norm(x, (3,), weight).dtype == gt.bfloat16


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_rows_that_are_cut(dtype: str, dim: int) -> None:
    """The result stays where the input is; a cut of rows gives shares of the weight's gradient."""
    whole, cut = [], []
    with workers(3):
        for found in (whole, cut):
            x = drawn(gt, (6, 3, 5), dtype, 0)
            x = (gt.distribute(x, dim=dim) if found is cut else x).requires_grad_()
            weight = drawn(gt, (5,), dtype, 1).requires_grad_()
            out = gt.nn.functional.rms_norm(x, (5,), weight)
            if found is cut:
                assert repr(out.layout).startswith(f"shard({dim})")
            (out * drawn(gt, (6, 3, 5), dtype, 2)).sum().backward()
            found += [numbers(one) for one in (out, x.grad, weight.grad)]
    for one, other in zip(cut, whole, strict=True):
        bound = TOLERANCE[dtype] * np.abs(other).max() * 4
        np.testing.assert_allclose(one, other, rtol=0, atol=bound)
