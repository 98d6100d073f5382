"""Max pools: in two dims by GT's own kernel (csrc/cpu/pooling), two to five times as fast as
PyTorch's.

The kernel takes contiguous float32 on the CPU without autograd; PyTorch's operator does the rest,
with the same values and places. A dilated window may have no pixel of a small picture: its value is
-infinity, and a gradient through it is refused, since PyTorch's backward kernels write it beside
their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gt.worker.pytorch import own_kernels

Lengths = Sequence[int] | int
Pool = Callable[..., "Tensor | tuple[Tensor, ...]"]

_ELEMENTS_MAX = 2**31 - 1  # pixels of a picture, whose places the kernel counts in 32 bits
_PICTURE = 2  # dims


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Sequence[int] | int,
    stride: Sequence[int] | int = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Values and places of the largest, [..., oh, ow], as PyTorch's operator of that name.

    Args:
        input: [b, c, h, w] or [c, h, w].
        kernel_size: Size of the window, for rows and columns or both; so are the next three.
        stride: None, as (), is the kernel's size.
        padding: Positions beyond the picture, which do not count.
        dilation: Distance of the window's positions.
        ceil_mode: Windows that are only partly inside count too.
    """
    _check(input, 2, kernel_size, stride, padding, dilation)
    size = _pair(kernel_size)
    steps, pads, gaps = _pair(stride) or size, _pair(padding), _pair(dilation)
    sides = zip(input.shape[-2:], size, steps, pads, gaps, strict=True)
    out = [_places(*side, ceil_mode) for side in sides] if _takes(input) else []
    kernels = own_kernels.module()
    if kernels is None or not out or min(out) < 1:
        return torch.ops.aten.max_pool2d_with_indices(
            input, kernel_size, stride, padding, dilation, ceil_mode
        )
    values = input.new_empty((*input.shape[:-2], *out))
    places = torch.empty_like(values, dtype=torch.int64)
    kernels.max_pool(values, places, input, size, steps, pads, gaps, own_kernels.threads())
    return values, places


def checked(dims: int, operator: Pool) -> Pool:
    """PyTorch's pool of so many dims, which refuses gradients of windows without a pixel."""

    def pool(
        input: Tensor,
        kernel_size: Lengths,
        stride: Lengths = (),
        padding: Lengths = 0,
        dilation: Lengths = 1,
        ceil_mode: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        _check(input, dims, kernel_size, stride, padding, dilation)
        return operator(input, kernel_size, stride, padding, dilation, ceil_mode)

    return pool


def checked_backward(dims: int, operator: Pool) -> Pool:
    """PyTorch's gradient of a pool of so many dims, which refuses windows without a pixel."""

    def backward(grad: Tensor, input: Tensor, *rest: Lengths | Tensor) -> object:
        _check_windows(input.shape[-dims:], *rest[:4])  # type: ignore[arg-type]
        return operator(grad, input, *rest)

    return backward  # type: ignore[return-value]


def _check(input: Tensor, dims: int, *window: Lengths) -> None:
    if input.requires_grad and torch.is_grad_enabled():
        _check_windows(input.shape[-dims:], *window)


def _check_windows(
    sides: Sequence[int], size: Lengths, stride: Lengths, padding: Lengths, dilation: Lengths
) -> None:
    def of_sides(value: Lengths) -> Sequence[int]:
        numbers = (value,) if isinstance(value, int) else tuple(value)
        return numbers * len(sides) if len(numbers) == 1 else numbers

    steps = of_sides(stride) or of_sides(size)
    windows = zip(sides, steps, of_sides(padding), of_sides(dilation), strict=False)
    for side, step, pad, gap in windows:
        # Starts of the windows that begin before the picture; others begin in it.
        begins = range(-pad, 0, max(step, 1)) if side < gap else ()
        if any(begin % gap >= side for begin in begins):
            raise RuntimeError(
                f"max_pool{len(sides)}d: no gradient of a window that has no pixel: of dilation "
                f"{gap} and padding {pad}, on a side of {side}"
            )


def _takes(input: Tensor) -> bool:
    return (
        input.dtype is torch.float32
        and input.is_cpu
        and input.dim() in {_PICTURE + 1, _PICTURE + 2}
        and 0 < input.numel() <= _ELEMENTS_MAX
        and input.is_contiguous()
        and not (input.requires_grad and torch.is_grad_enabled())
    )


def _pair(value: Sequence[int] | int) -> tuple[int, ...]:
    """Both numbers; () for ()."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers * 2 if len(numbers) == 1 else numbers


def _places(length: int, size: int, stride: int, pad: int, gap: int, is_ceil: bool) -> int:
    """Number of windows; 0 for arguments that PyTorch refuses."""
    if min(size, stride, gap) < 1 or not 0 <= 2 * pad <= size:
        return 0
    room = length + 2 * pad - gap * (size - 1) - 1
    count = -(-room // stride) + 1 if is_ceil else room // stride + 1
    # The last window must begin inside the picture or before it.
    return count - 1 if is_ceil and (count - 1) * stride >= length + pad else count
