"""Gradients of operators that PyTorch composes of others, without a second run of the operator.

Each is what PyTorch's autograd computes, by the same kernels. A function returns None for forms
that it does not cover: then the operator runs again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

aten = torch.ops.aten
# Divisors of PyTorch's transforms: none, the root of the length, the length.
_PLAIN, _ROOT, _LENGTH = 0, 1, 2


def recorded(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    *,
    create_graph: bool = False,
) -> tuple[Tensor, ...]:
    """Gradients of the inputs by PyTorch's autograd; zeros for an input that no output depends on.

    This is `torch.autograd.grad` without its check of shapes, whose first call imports a second's
    worth of modules; shapes here are those of the results.
    """
    gradients = torch.autograd.graph._engine_run_backward(  # noqa: SLF001 - it has no other name
        tuple(outputs),
        tuple(cotangents),
        create_graph,  # keep the graph if its gradient is wanted too
        create_graph,
        tuple(inputs),
        True,  # an input may be unused
        accumulate_grad=False,
    )
    pairs: Iterable[tuple[Tensor | None, Tensor]] = zip(gradients, inputs, strict=True)
    return tuple(
        torch.zeros_like(x, requires_grad=create_graph) if grad is None else grad
        for grad, x in pairs
    )


def avg_pool1d_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
) -> Tensor:
    """Gradient of avg_pool1d, as that of an image one pixel high."""
    image: Tensor = aten.avg_pool2d_backward(
        grad.unsqueeze(-2), x.unsqueeze(-2), [1, *kernel_size], [1, *(stride or kernel_size)],
        [0, *padding], ceil_mode, count_include_pad, None,
    )  # fmt: skip
    return image.squeeze(-2)


def matmul_backward(
    grad: Tensor, left: Tensor, right: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None] | None:
    """Gradients of a product of matrices [..., m, k] and [..., k, n] with equal batches; None for
    others.
    """
    if left.dim() < 2 or left.shape[:-2] != right.shape[:-2] or left.dtype != right.dtype:
        return None
    return (
        grad.matmul(right.mH) if mask[0] else None,
        left.mH.matmul(grad) if mask[1] else None,
    )


def fft_rfft_backward(
    grad: Tensor, x: Tensor, n: int | None, dim: int, norm: str | None
) -> Tensor | None:
    """The gradient of rfft: the half that `rfft` omits counts as zero, and the result is real."""
    if n not in {None, x.shape[dim]}:
        return None
    missing = x.shape[dim] - grad.shape[dim]
    sizes = list(grad.shape)
    sizes[dim] = missing
    whole = torch.cat([grad, grad.new_zeros(sizes)], dim) if missing else grad
    gradient: Tensor = aten._fft_c2c(whole, [dim % x.dim()], _division(norm, back=False), False)  # noqa: SLF001
    return torch.real(gradient).contiguous()


def fft_irfft_backward(
    grad: Tensor, x: Tensor, n: int | None, dim: int, norm: str | None
) -> Tensor | None:
    """The gradient of irfft: elements of the transform that stand for two count twice."""
    length = 2 * (x.shape[dim] - 1) if n is None else n
    if not x.is_complex() or x.shape[dim] != length // 2 + 1:
        return None
    gradient: Tensor = aten._fft_r2c(grad, [dim % x.dim()], _division(norm, back=True), True)  # noqa: SLF001
    gradient.narrow(dim, 1, grad.shape[dim] - gradient.shape[dim]).mul_(2)
    return gradient


def _division(norm: str | None, *, back: bool) -> int:
    """Divisor of the transform forward (or `back`); its gradient has the same one."""
    divides = {"ortho": _ROOT, "forward": _PLAIN if back else _LENGTH}
    return divides.get(norm or "", _LENGTH if back else _PLAIN)
