"""Batch norm by GT's own kernels: beside float64, in every engine, and what is PyTorch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernel_arrays import run
from kernel_module import on_every_path

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from test_aten_rows import bits  # noqa: E402

from gt import _kernels  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.native import reductions  # noqa: E402
from gt.worker.own_calls import kernels_run  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402

EPSILON = float(np.finfo(np.float32).eps)
EPS = 1e-5
# Columns, rows shorter and longer than what is added at once, with tails; over several tasks.
SHAPES = [
    (2, 1), (7, 5), (64, 130), (3, 600), (1000, 3), (2, 3, 8), (5, 4, 3, 7), (4, 2, 5000),
    (40, 3, 7, 7), (9, 70, 4, 4), (1, 2, 33), (2, 1, 16, 70),
]  # fmt: skip


def drawn(*size: int, seed: int = 0) -> torch.Tensor:
    """Far from zero beside how far apart its numbers are."""
    generator = torch.Generator().manual_seed(seed + sum(size))
    return torch.randn(size, generator=generator) * 2 + 30


def _exact(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, grad: torch.Tensor
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """In float64: out, mean, rstd, var; the gradients of x, weight and bias."""
    wide = x.double().requires_grad_()
    one, zero = (torch.full((x.shape[1],), n, dtype=torch.float64) for n in (1, 0))
    leaves = [
        (given.double() if given is not None else otherwise).requires_grad_()
        for given, otherwise in ((weight, one), (bias, zero))
    ]
    out = torch.nn.functional.batch_norm(wide, None, None, *leaves, training=True, eps=EPS)
    others = [dim for dim in range(x.dim()) if dim != 1]
    biased = wide.var(others, correction=0)
    found = [out, wide.mean(others), (biased + EPS).rsqrt(), wide.var(others)]
    gradients = torch.autograd.grad(out, [wide, *leaves], grad.double())
    return [one.detach() for one in found], list(gradients)


def _run(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    grad: torch.Tensor,
    threads: int = 1,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    results = run(_kernels, "batch_norm", x, weight, bias, EPS, threads=threads)
    assert results is not None
    forward = [torch.from_numpy(one) for one in results]
    saved = (grad, x, forward[1], forward[2], weight)
    slopes = run(_kernels, "batch_norm_backward", *saved, threads=threads)
    assert slopes is not None
    return forward, [torch.from_numpy(one) for one in slopes]


def _close(found: torch.Tensor, wanted: torch.Tensor, terms: float, of: float = 1e-30) -> None:
    """Beside the largest of what is wanted, or what it is the difference `of`."""
    size = max(wanted.abs().max().item(), of)
    error = (found.double() - wanted).abs().max().item() / size
    assert error <= terms * EPSILON, error / EPSILON


@on_every_path
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("has_weight", [True, False])
def test_values_and_gradients(shape: tuple[int, ...], has_weight: bool) -> None:
    """Statistics to the last bits; the same bits with three threads."""
    x, grad = drawn(*shape), drawn(*shape, seed=1) - 30
    weight, bias = (drawn(shape[1], seed=n) if has_weight else None for n in (2, 3))
    found, gradients = _run(x, weight, bias, grad)
    wanted, slopes = _exact(x, weight, bias, grad)
    if math.prod(shape) > shape[1]:
        steep = wanted[2].max().item() * (1.0 if weight is None else weight.abs().max().item())
        # The mean's rounding is one of x's, seen as steep as the result is.
        _close(found[0], wanted[0], 2.0, x.abs().max().item() * steep)
        for one, other, terms in zip(found[1:], wanted[1:], (1.0, 2.0, 2.0), strict=True):
            _close(one, other, terms)
        count = math.prod(shape) / shape[1]
        steepest = grad.abs().max().item() * steep
        for one, other, of in zip(gradients, slopes, (steepest, count, count), strict=True):
            _close(one, other, 128.0, of)
    again = _run(x, weight, bias, grad, threads=3)
    assert all(map(torch.equal, (*found, *gradients), (*again[0], *again[1])))


@on_every_path
@pytest.mark.parametrize("shape", [(5, 4), (4, 4, 3, 7)], ids=str)
def test_what_is_no_number_or_infinite_stays_in_its_channel(shape: tuple[int, ...]) -> None:
    """An infinite number enters the mean, first or not, like in PyTorch."""
    x = drawn(*shape)
    x[0, 0], x[1, 1], x[0, 2] = torch.inf, -torch.inf, torch.nan
    found, _ = _run(x, None, None, x)
    running, var = torch.zeros(4), torch.zeros(4)
    theirs = torch.native_batch_norm(x, None, None, running, var, True, 1.0, EPS)
    assert found[1].tolist()[:2] == [torch.inf, -torch.inf]
    for ours, other in zip(found, (*theirs, var), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-4, equal_nan=True)


def test_a_constant_channel_has_no_spread() -> None:
    x = torch.full((6, 2, 9), 0.1)
    (out, mean, rstd, var), _ = _run(x, None, None, x)
    assert out.eq(0).all()
    assert mean.eq(0.1).all()
    assert var.eq(0).all()
    assert torch.allclose(rstd, torch.tensor(EPS).rsqrt(), rtol=2 * EPSILON)


def test_what_the_kernel_does_not_take() -> None:
    """Few numbers of a channel beside each other, and operands that do not fit each other."""
    x, weight = torch.ones(2, 3, 8), torch.ones(3)

    def takes(x: object, weight: object, bias: object) -> bool:
        return run(_kernels, "batch_norm", x, weight, bias, EPS) is not None

    assert takes(x, weight, None)
    for other in (x[:, :, :7], x[:0], x[0, 0], x.double(), x > 0):
        assert not takes(other, weight, None)
    for other in (weight[:2], weight.double(), torch.ones(4)):
        assert not takes(x, other, None)
        assert not takes(x, None, other)
    saved = [x, x, weight, weight, None]
    for place in range(4):
        wrong = [one[1:] if at == place else one for at, one in enumerate(saved)]
        assert run(_kernels, "batch_norm_backward", *wrong) is None


# Operands of several strides; the second one of each pair is the gradient.
OPERANDS = {
    "rows": (drawn(6, 5, 4, 9), drawn(6, 5, 4, 9, seed=1)),
    "channels last": (
        drawn(4, 3, 5, 5).to(memory_format=torch.channels_last),
        drawn(5, 3, 4, 5, seed=1).transpose(0, 2),
    ),
    "columns": (drawn(9, 20).t(), drawn(20, 9, seed=1)),
}


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("has_weight", [True, False])
def test_engines_have_one_result(aten_helper: Trial, name: str, has_weight: bool) -> None:  # noqa: F811
    """The bits of Python's in the ATen engine and without PyTorch; a strided weight too."""
    x, grad = OPERANDS[name]
    channels = x.shape[1]
    weight, bias = (drawn(channels, 2, seed=n)[:, 1] if has_weight else None for n in (2, 3))
    before = kernels_run()
    with torch.inference_mode():
        made = kernels.TORCH["batch_norm"](x, weight, bias, EPS)
        ours = aten_helper.run("batch_norm", [x, weight, bias], [EPS])
        assert ours is not None
        saved = [grad, x, made[1], made[2], weight]
        slopes = kernels.TORCH["batch_norm_backward"](*saved)
        ours_of_slopes = aten_helper.run("batch_norm_backward", saved, [])
        assert ours_of_slopes is not None
    assert kernels_run() == before + 4
    assert bits(ours) == bits(made)
    assert bits(ours_of_slopes) == bits(slopes)
    rows = reductions.kernels()
    arrays = [None if one is None else one.numpy() for one in (x, weight, bias)]
    alone = rows["batch_norm"](*arrays, EPS)
    assert all(np.array_equal(one, other.numpy()) for one, other in zip(alone, made, strict=True))
    given = [None if one is None else one.numpy() for one in saved]
    alone = rows["batch_norm_backward"](*given)
    assert all(np.array_equal(one, other.numpy()) for one, other in zip(alone, slopes, strict=True))
    exact, exact_slopes = _exact(x, weight, bias, grad)
    for one, other in zip((*made, *slopes), (*exact, *exact_slopes), strict=True):
        _close(one, other, 2000.0)


@pytest.mark.parametrize(
    "x",
    [drawn(6, 5).double(), drawn(3, 2, 7), drawn(0, 5), drawn(3, 4, 0)],
    ids=["float64", "seven beside each other", "no rows", "no inner"],
)
def test_others_are_pytorchs(aten_helper: Trial, x: torch.Tensor) -> None:  # noqa: F811
    before = kernels_run()
    with torch.inference_mode():
        assert aten_helper.run("batch_norm", [x, None, None], [EPS]) is None
        out, mean, rstd, var = kernels.TORCH["batch_norm"](x, None, None, EPS)
        slopes = kernels.TORCH["batch_norm_backward"](x, x, mean, rstd, None)
        ours = aten_helper.run("batch_norm_backward", [x, x, mean, rstd, None], [])
    assert kernels_run() == before
    if not x.numel():
        assert out.shape == slopes[0].shape == x.shape
        return
    assert ours is not None
    assert bits(ours) == bits(slopes)
    running, spread = torch.zeros_like(mean), torch.zeros_like(var)
    theirs = torch.native_batch_norm(x, None, None, running, spread, True, 1.0, EPS)
    assert bits((out, mean, rstd, var)) == bits((*theirs, spread))


def test_without_kernels_it_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GT_KERNELS", "off")
    x, before = drawn(4, 3, 9), kernels_run()
    with torch.inference_mode():
        made = kernels.TORCH["batch_norm"](x, None, None, EPS)
        slopes = kernels.TORCH["batch_norm_backward"](x, x, made[1], made[2], None)
    assert kernels_run() == before
    theirs = torch.native_batch_norm(x, None, None, torch.zeros(3), torch.zeros(3), True, 1.0, EPS)
    assert bits(made[:3]) == bits(theirs)
    assert slopes[0].shape == x.shape


def test_one_least_width_of_channels_holds_everywhere(aten_helper: Trial) -> None:  # noqa: F811
    """The loops take a channel's numbers from eight on: in Python, in the helper, without torch."""
    for inner in (7, 8):
        x, before = drawn(3, 2, inner), kernels_run()
        with torch.inference_mode():
            kernels.TORCH["batch_norm"](x, None, None, EPS)
            ours = aten_helper.run("batch_norm", [x, None, None], [EPS])
        reductions.kernels()["batch_norm"](x.numpy(), None, None, EPS)
        is_taken = inner == 8
        assert kernels_run() == before + (3 if is_taken else 0)
        assert (ours is not None) == is_taken
