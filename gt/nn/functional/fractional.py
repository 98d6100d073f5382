"""Fractional max pooling: windows at random places, for any size of the output."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.nn.functional.pooled import Pooled, Ratios, Sizes, fractional_max_pool
from gt.tensors.aten.call import call


@fractional_max_pool
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Pooled:
    """The largest element of windows at random places.

    Args:
        input: [batch, channels, height, width] or [channels, height, width].
        kernel_size: The window.
        output_size: Height and width of the output; or
        output_ratio: their ratio to the input's.
        return_indices: Whether to return (values, indices) instead of values.
        _random_samples: [batch, channels, 2], the windows' places; drawn if not given.

    Raises:
        ValueError: Neither output_size nor output_ratio.
    """
    return _pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@fractional_max_pool
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Pooled:
    """fractional_max_pool2d with a depth before the height; samples are [batch, channels, 3]."""
    return _pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def _pool(
    count: int,
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None,
    output_ratio: Ratios | None,
    indices: bool,
    samples: Tensor | None,
) -> Pooled:
    if output_size is None:
        output_size = _size_of_ratio(count, input, output_ratio)
    if samples is None:
        batch = 1 if input.ndim == count + 1 else input.shape[0]
        samples = gt.rand(batch, input.shape[-count - 1], count, dtype=input.dtype)
    values, places = call(
        f"fractional_max_pool{count}d", (input, kernel_size, output_size, samples), {}
    )
    return (values, places) if indices else values  # type: ignore[return-value]


def _size_of_ratio(count: int, input: Tensor, ratio: Ratios | None) -> list[int]:
    name = f"fractional_max_pool{count}d"
    if ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    shares = ratios(ratio, count)
    if len(shares) > count:
        raise ValueError(
            f"{name} requires output_ratio to either be a single Int or tuple of Ints."
        )
    return [int(n * r) for n, r in zip(input.shape[-count:], shares, strict=True)]


def ratios(ratio: Ratios, count: int) -> tuple[float, ...]:
    """One number for each of `count` dimensions."""
    return (ratio,) * count if isinstance(ratio, int | float) else tuple(ratio)
