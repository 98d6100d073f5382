"""Batch norm in training: one instruction and one for its gradients, over cut batches too."""

from collections.abc import Iterator

import pytest
import torch
from spread_session import workers

import gt
from gt import _core

SHAPES = [(5, 3), (5, 3, 4), (4, 3, 2, 5)]
DIMS = [None, 0, 1]


def derivatives(
    lib, shape: tuple[int, ...], *, is_affine: bool, dim: int | None = None
) -> list[torch.Tensor]:
    """Result, running statistics, gradients and theirs, of the same numbers with either library."""
    generator = torch.Generator().manual_seed(1)
    sizes = [shape, (3,), (3,), (3,), (3,)]
    values = [torch.rand(size, generator=generator, dtype=torch.float64) for size in sizes]
    tensors = [lib.from_numpy(value.numpy()) for value in values]
    if dim is not None:
        tensors[0] = gt.distribute(tensors[0], dim=dim)
    x, mean, var, weight, bias = tensors
    leaves = [x, weight, bias] if is_affine else [x]
    for leaf in leaves:
        leaf.requires_grad_()
    parameters = (weight, bias) if is_affine else (None, None)
    y = lib.nn.functional.batch_norm(x, mean, var, *parameters, True, 0.3, 1e-3)
    first = lib.autograd.grad((y * y * y).sum(), leaves, retain_graph=True)
    again = lib.autograd.grad((y * y * y).sum(), leaves, create_graph=True)
    second = lib.autograd.grad(sum((g * g).sum() for g in again), leaves)
    return [torch.from_numpy(v.detach().numpy()) for v in (y, mean, var, *first, *again, *second)]


@pytest.fixture(scope="module", params=[1, 2])
def count(request: pytest.FixtureRequest) -> Iterator[int]:
    with workers(request.param):
        yield request.param


@pytest.mark.parametrize("is_affine", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_derivatives(count: int, shape: tuple[int, ...], is_affine: bool) -> None:
    theirs = derivatives(torch, shape, is_affine=is_affine)
    for dim in DIMS[:1] if count == 1 else DIMS:
        ours = derivatives(gt, shape, is_affine=is_affine, dim=dim)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_one_instruction_and_one_for_the_gradients() -> None:
    layer = gt.nn.BatchNorm2d(3)
    x = gt.randn(4, 3, 5, 5).requires_grad_()
    seed = gt.ones(4, 3, 5, 5)
    before = _core.stats()["instructions"]
    out = layer(x)
    forward = _core.stats()["instructions"] - before
    gt.autograd.grad(out, [x, layer.weight, layer.bias], seed)
    backward = _core.stats()["instructions"] - before - forward
    assert forward <= 6, "the norm, and a step and a copy of what runs"
    assert backward <= 3


def test_a_cut_batch_is_reduced_and_not_gathered() -> None:
    with workers(2):
        x = gt.distribute(gt.randn(6, 3, 4, 4), dim=0).requires_grad_()
        layer = gt.nn.BatchNorm2d(3)
        before = gt.debug.stats()
        layer(x).sum().backward()
        after = gt.debug.stats()
    assert after["all_gathers"] == before["all_gathers"]
    assert after["all_reduces"] > before["all_reduces"]


def test_an_empty_batch_moves_nothing() -> None:
    layer = gt.nn.BatchNorm1d(3)
    x = gt.ones(0, 3, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.shape == (0, 3)
    assert layer.weight.grad.tolist() == [0.0, 0.0, 0.0]
    assert layer.running_mean.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_parameters_of_other_channels_are_refused(name: str) -> None:
    for lib in (torch, gt):
        with pytest.raises(RuntimeError, match="should contain 3 elements not 4"):
            lib.nn.functional.batch_norm(
                lib.ones(2, 3), None, None, **{name: lib.ones(4)}, training=True
            )
