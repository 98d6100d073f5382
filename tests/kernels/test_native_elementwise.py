"""Elementwise rows of the native backend beside PyTorch: infinities, NaN, any strides."""

import math

import numpy as np
import pytest
from kernel_module import on_every_path

from gt.worker.native.kernels import NATIVE
from gt.worker.own_calls import kernels_run

torch = pytest.importorskip("torch")

SPECIAL = [math.nan, -0.0, 0.0, math.inf, -math.inf, 1e-40, -2.5, 2.5, 3e38, -3e38]
ROWS = {
    **{name: (getattr(torch, name), ()) for name in (
        "sign", "rsqrt", "round", "trunc", "reciprocal", "expm1", "log2", "log10", "tan",
    )},
    "leaky_relu": (torch.nn.functional.leaky_relu, (0.1,)),
    "elu": (torch.nn.functional.elu, (1.0,)),
    "elu by 0.3": (torch.nn.functional.elu, (0.3,)),
    **{f"clamp {low} {high}": (torch.clamp, (low, high)) for low, high in (
        (-1, 1), (None, 0.5), (-1.5, None), (2, 1), (math.nan, 1.0),
    )},
    **{f"pow {power}": (torch.pow, (power,)) for power in (
        0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 2.0, 3.0,
    )},
}  # fmt: skip

pytestmark = on_every_path


def _views():
    random = np.random.default_rng(0).standard_normal((37, 6)).astype(np.float32) * 3
    special = np.array(SPECIAL * 5, np.float32)
    return [special, random, random.T, random[::2], random[0, 0], random[:0], random.astype(float)]


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_as_pytorch(name):
    function, arguments = ROWS[name]
    for x in _views():
        with np.errstate(all="ignore"):
            found = NATIVE[name.split()[0]](x, *arguments)
            wanted = function(torch.tensor(x).double(), *arguments).numpy().astype(x.dtype)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-45)


@pytest.mark.parametrize("slope", [0.01, -1.0])
def test_gradient_of_leaky_relu(slope):
    for x in _views()[:-1]:
        grad = np.flip(x).copy()
        wanted = torch.ops.aten.leaky_relu_backward(
            torch.tensor(grad), torch.tensor(x), slope, False
        )
        for one in (x, x.copy()):
            found = NATIVE["leaky_relu_backward"](grad, one, slope)
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_gradient_of_elu(alpha):
    for x in _views()[:-1]:
        grad = np.flip(np.nan_to_num(x, posinf=3, neginf=-3)).copy()
        leaf = torch.tensor(x).double().requires_grad_()
        (wanted,) = torch.autograd.grad(
            torch.nn.functional.elu(leaf, alpha), leaf, torch.tensor(grad).double()
        )
        with np.errstate(all="ignore"):
            found = NATIVE["elu_backward"](grad, x, alpha)
            wanted = wanted.numpy().astype(np.float32)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_squared_errors(reduction):
    random = np.random.default_rng(2)
    for size in ((), (1,), (37, 6), (5000,)):
        x, y = (np.asarray(random.standard_normal(size), np.float32) for _ in range(2))
        leaf = torch.tensor(x).double().requires_grad_()
        wanted = torch.nn.functional.mse_loss(leaf, torch.tensor(y).double(), reduction=reduction)
        found = NATIVE["mse_loss"](x, y, reduction)
        assert (found.shape, found.dtype) == (tuple(wanted.shape), np.float32)
        np.testing.assert_allclose(found, wanted.detach(), rtol=1e-6)
        grad = np.full(found.shape, 0.7, np.float32)
        (wanted,) = torch.autograd.grad(wanted, leaf, torch.tensor(grad).double())
        found = NATIVE["mse_loss_backward"](grad, x, y, reduction)
        assert (found.shape, found.dtype) == (size, np.float32)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-12)


def test_softplus_of_rows_and_of_others():
    """By a kernel where they are contiguous, else numpy's: the same numbers."""
    x = np.linspace(-8, 8, 60).astype(np.float32).reshape(6, 10)
    grad = x[::-1].copy()
    for beta, threshold in ((1.0, 20.0), (2.0, 3.0)):
        for order in ("C", "F"):
            one, other = np.asarray(x, order=order), np.asarray(grad, order=order)
            wide = torch.tensor(x, dtype=torch.float64).requires_grad_()
            wanted = torch.nn.functional.softplus(wide, beta, threshold)
            (slopes,) = torch.autograd.grad(wanted, wide, torch.tensor(grad).double())
            before = kernels_run()
            found = NATIVE["softplus"](one, beta, threshold)
            of_grad = NATIVE["softplus_backward"](other, one, beta, threshold)
            assert kernels_run() - before == (2 if order == "C" else 0)
            np.testing.assert_allclose(found, wanted.detach(), rtol=1e-6)
            np.testing.assert_allclose(of_grad, slopes, rtol=1e-6)
