"""Gradients of one expression in GT against torch.autograd, in float64: first and second ones."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from gt import _core
from gt._core import call


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def positive(*shape: int, seed: int = 0) -> torch.Tensor:
    return normal(*shape, seed=seed).abs() + 0.5


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def upload(x: torch.Tensor) -> _core.Tensor:
    dtype = getattr(_core, str(x.dtype).removeprefix("torch."))
    return _core.from_bytes(x.numpy().tobytes(), tuple(x.shape), dtype, x.is_floating_point())


def first(result: object) -> object:
    return result[0] if isinstance(result, tuple) else result


def leaves(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]


def same(ours: _core.Tensor | None, theirs: torch.Tensor | None, what: str) -> None:
    if ours is None or theirs is None:
        got = None if ours is None else ours.detach().numpy()
        empty = ours is None and (theirs is None or not theirs.any())
        assert empty, f"{what}: {got} {theirs}"
        return
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: {ours.shape} {theirs.shape}"
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(force=True), rtol=1e-9, atol=1e-9, err_msg=what
    )


def check(
    ours: Callable[..., object],
    theirs: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    second: bool = True,
) -> None:
    """Compare the result, all gradients, and the gradients of the gradients' squares."""
    mine, other = [upload(x) for x in inputs], leaves(inputs)
    out, expected = first(ours(*mine)), first(theirs(*other))
    same(out, expected, "result")
    weight = normal(*expected.shape, seed=7)
    out.backward(call("cast", upload(weight).detach(), dtype=out.dtype))
    grads = torch.autograd.grad(
        expected,
        [x for x in other if x.requires_grad],
        weight.to(expected.dtype),
        allow_unused=True,
    )
    for number, (x, g) in enumerate(zip([x for x in mine if x.requires_grad], grads, strict=True)):
        same(x.grad, g, f"gradient {number}")
    if second:
        check_second(ours, theirs, inputs, weight)


def check_second(
    ours: Callable[..., object],
    theirs: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    weight: torch.Tensor,
) -> None:
    mine, other = [upload(x) for x in inputs], leaves(inputs)
    first(ours(*mine)).backward(upload(weight).detach(), create_graph=True)
    tracked = [x for x in other if x.requires_grad]
    grads = torch.autograd.grad(
        first(theirs(*other)), tracked, weight, create_graph=True, allow_unused=True
    )
    total = sum((g * g).sum() for g in grads if g is not None)
    if not total.requires_grad:
        return
    expected = torch.autograd.grad(total, tracked, allow_unused=True)
    gradients = [x.grad for x in mine if x.requires_grad]
    for x in mine:
        x.grad = None
    square = [(g * g).sum() for g in gradients if g is not None]
    loss = square[0]
    for more in square[1:]:
        loss = loss + more
    if loss.requires_grad:
        loss.backward()
    for number, (x, g) in enumerate(
        zip([x for x in mine if x.requires_grad], expected, strict=True)
    ):
        same(x.grad, g, f"second gradient {number}")
