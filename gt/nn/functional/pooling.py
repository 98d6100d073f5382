"""Pooling: the largest element, or the p-norm, of windows over the last dimensions.

Averages (avg_pool1d to avg_pool3d, adaptive_avg_pool1d) come directly from PyTorch's schemas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidValue
from gt.nn.functional.pooled import (
    OptionalSizes,
    Pooled,
    Sizes,
    adaptive_max_pool,
    max_pool,
)
from gt.tensors.aten.call import call


@max_pool
def max_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """The largest element of each window.

    Args:
        input: [batch, channels, n] or [channels, n].
        kernel_size: The window.
        stride: Distance of two windows; as the window if not given.
        padding: Width of minus infinity at both ends; at most half of the window.
        dilation: Distance of two elements of a window.
        ceil_mode: Whether windows may begin inside and end outside.
        return_indices: Whether to return (values, indices) instead of values.

    Raises:
        ShapeError: Another number of dimensions, or windows that do not fit.
    """
    return _max_pool(
        1,
        input,
        (kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode),
        return_indices,
    )


@max_pool
def max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """The largest element of each window over [batch, channels, height, width] or
    without a batch.
    """
    return _max_pool(
        2,
        input,
        (kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode),
        return_indices,
    )


@max_pool
def max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Pooled:
    """The largest element of each window over [batch, channels, depth, height, width], also
    unbatched.
    """
    return _max_pool(
        3,
        input,
        (kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode),
        return_indices,
    )


def _max_pool(count: int, input: Tensor, windows: tuple[object, ...], indices: bool) -> Pooled:
    # The gradient needs the places: without them the windows would be searched again.
    has_gradient = count > 1 and input.requires_grad and _core.is_grad_enabled()
    if indices or has_gradient:
        values, places = call(f"max_pool{count}d_with_indices", (input, *windows), {})
        return (values, places) if indices else values  # type: ignore[return-value]
    pooled: Tensor = call(f"max_pool{count}d", (input, *windows), {})
    return pooled


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The inverse of max_pool1d: values at their places, zero elsewhere.

    Args:
        input: [batch, channels, n] or [channels, n].
        indices: The places, as max_pool1d returned them, in the input's shape.
        kernel_size: The window that was pooled.
        stride: Distance of two windows; as the window if not given.
        padding: Width at both ends.
        output_size: The size before pooling, if several sizes pool to one.

    Raises:
        ValueError: An output_size that does not pool to the input's.
    """
    size = _unpooled_size(1, input, kernel_size, stride, padding, output_size)
    unpooled: Tensor = call(
        "max_unpool2d", (input.unsqueeze(-1), indices.unsqueeze(-1), [*size, 1]), {}
    )
    return unpooled.squeeze(-1)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The inverse of max_pool2d: values at their places, zero elsewhere."""
    size = _unpooled_size(2, input, kernel_size, stride, padding, output_size)
    unpooled: Tensor = call("max_unpool2d", (input, indices, size), {})
    return unpooled


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The inverse of max_pool3d: values at their places, zero elsewhere."""
    size = _unpooled_size(3, input, kernel_size, stride, padding, output_size)
    steps = each(kernel_size if stride is None else stride, 3)
    unpooled: Tensor = call("max_unpool3d", (input, indices, size, steps, each(padding, 3)), {})
    return unpooled


def _unpooled_size(
    count: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    output_size: Sequence[int] | None,
) -> list[int]:
    windows, pads = each(kernel_size, count), each(padding, count)
    steps = each(kernel_size if stride is None else stride, count)
    sizes = input.shape[-count:]
    default = [
        (size - 1) * step + window - 2 * pad
        for size, step, window, pad in zip(sizes, steps, windows, pads, strict=True)
    ]
    if output_size is None:
        return default
    wanted = list(output_size)[2:] if len(output_size) == count + 2 else list(output_size)
    if len(wanted) != count:
        raise ValueError(
            f"output_size should be a sequence containing {count} or {count + 2} elements, but it "
            f"has a length of '{len(wanted)}'"
        )
    for dim, (size, middle, step) in enumerate(zip(wanted, default, steps, strict=True)):
        low, high = middle - step, middle + step
        if not low < size < high:
            raise ValueError(
                f'invalid output_size "{wanted}" (dim {dim} must be between {low} and {high})'
            )
    return wanted


def adaptive_avg_pool2d(input: Tensor, output_size: OptionalSizes) -> Tensor:
    """The mean of windows whose size follows from the output's size.

    Args:
        input: [batch, channels, height, width] or [channels, height, width].
        output_size: Sizes of the windowed dimensions; None keeps the input's.

    Raises:
        ValueError: The input has too few dimensions for the sizes.
        ShapeError: Another number of dimensions.
    """
    return _adaptive_avg_pool(2, input, _with_defaults(output_size, input))


def adaptive_avg_pool3d(input: Tensor, output_size: OptionalSizes) -> Tensor:
    """The mean of adaptive windows over [batch, channels, depth, height, width] or
    without a batch.
    """
    return _adaptive_avg_pool(3, input, _with_defaults(output_size, input))


def _adaptive_avg_pool(count: int, input: Tensor, size: object) -> Tensor:
    """Equal windows are a mean or an avg_pool, which keep a cut image cut."""
    windows = _even_windows(count, input, size)
    name, arguments = f"adaptive_avg_pool{count}d", size
    if windows is not None and windows == list(input.shape[-count:]):
        return input.mean(tuple(range(-count, 0)), keepdim=True)
    # PyTorch's avg_pool3d has no kernel for half precision.
    if windows is not None and input.dtype in {_core.float32, _core.float64}:
        name, arguments = f"avg_pool{count}d", windows
    pooled: Tensor = call(name, (input, arguments), {})
    return pooled


def _even_windows(count: int, input: Tensor, size: object) -> list[int] | None:
    """The size of equal adjacent windows that give the output's sizes; None if there is none, or
    under an autocast that lists other operators.
    """
    sizes = [size] * count if isinstance(size, int) else size
    is_image = input.ndim - count in {1, 2} and input.is_floating_point() and 0 not in input.shape
    if not is_image or not isinstance(sizes, list) or len(sizes) != count:
        return None
    lengths, is_plain = input.shape[-count:], _core.autocast_region() is None
    windows = [
        old // new if isinstance(new, int) and new > 0 and old % new == 0 else 0
        for old, new in zip(lengths, sizes, strict=True)
    ]
    return windows if is_plain and all(windows) else None


@adaptive_max_pool
def adaptive_max_pool1d(
    input: Tensor, output_size: OptionalSizes, return_indices: bool = False
) -> Pooled:
    """The largest element of windows whose size follows from the output's size.

    Args:
        input: [batch, channels, n] or [channels, n].
        output_size: Sizes of the windowed dimensions; None keeps the input's, of two or three.
        return_indices: Whether to return (values, indices) instead of values.

    Raises:
        ShapeError: Another number of dimensions.
    """
    return _adaptive_max_pool(1, input, output_size, return_indices)


@adaptive_max_pool
def adaptive_max_pool2d(
    input: Tensor, output_size: OptionalSizes, return_indices: bool = False
) -> Pooled:
    """The largest element of adaptive windows over [batch, channels, height, width], also
    unbatched.
    """
    return _adaptive_max_pool(2, input, _with_defaults(output_size, input), return_indices)


@adaptive_max_pool
def adaptive_max_pool3d(
    input: Tensor, output_size: OptionalSizes, return_indices: bool = False
) -> Pooled:
    """The largest element of adaptive windows over [batch, channels, depth, height, width], also
    unbatched.
    """
    return _adaptive_max_pool(3, input, _with_defaults(output_size, input), return_indices)


def _adaptive_max_pool(count: int, input: Tensor, size: object, indices: bool) -> Pooled:
    values, places = call(f"adaptive_max_pool{count}d", (input, size), {})
    return (values, places) if indices else values  # type: ignore[return-value]


def _with_defaults(output_size: OptionalSizes, input: Tensor) -> object:
    """The sizes with None replaced by the input's."""
    if output_size is None or isinstance(output_size, int):
        return output_size
    if input.ndim <= len(output_size):
        raise InvalidValue(f"Input dimension should be at least {len(output_size) + 1}")
    lengths = input.shape[-len(output_size) :]
    return [old if new is None else new for new, old in zip(output_size, lengths, strict=False)]


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window, of signed powers.

    Args:
        input: [batch, channels, n] or [channels, n].
        norm_type: p.
        kernel_size: The window.
        stride: Distance of two windows; as the window if not given.
        ceil_mode: Whether windows may begin inside and end outside.

    Raises:
        ValueError: A norm_type of 0.
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window over [batch, channels, height, width] or without a batch."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window over [batch, channels, depth, height, width] or without a batch."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _lp_pool(
    count: int,
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None,
    ceil_mode: bool,
) -> Tensor:
    if norm_type == 0:
        raise ValueError(f"norm_type must be a non-zero value, but got {norm_type}")
    windows = (kernel_size, [] if stride is None else stride, 0)
    if math.isinf(norm_type):
        sign = math.copysign(1.0, norm_type)
        largest: Tensor = call(
            f"max_pool{count}d", (input.abs() * sign, *windows, 1, ceil_mode), {}
        )
        return largest * sign
    mean: Tensor = call(f"avg_pool{count}d", (input**norm_type, *windows, ceil_mode), {})
    total = mean.sign() * mean.abs().relu() * math.prod(each(kernel_size, count))
    return total ** (1.0 / norm_type)


def each(numbers: Sizes, count: int) -> tuple[int, ...]:
    """One number for each of `count` dimensions."""
    return (numbers,) * count if isinstance(numbers, int) else tuple(numbers)
