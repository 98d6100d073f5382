"""Fractional max pooling as modules."""

from __future__ import annotations

from gt._core import Tensor
from gt.nn import functional
from gt.nn.functional.fractional import ratios
from gt.nn.functional.pooled import Pooled, Ratios, Sizes
from gt.nn.functional.pooling import each
from gt.nn.module import Module


class _FractionalMaxPool(Module):
    """The largest element of windows at random places.

    Args:
        kernel_size: The window.
        output_size: Sizes of the windowed dimensions; or
        output_ratio: their ratio to the input's, between 0 and 1.
        return_indices: Whether to return (values, indices) instead of values.
        _random_samples: [batch, channels, dimensions], the windows' places; drawn if not given.

    Raises:
        ValueError: Both or none of output_size and output_ratio, or a ratio outside of (0, 1).
    """

    _spatial = 0

    def __init__(
        self,
        kernel_size: Sizes,
        output_size: Sizes | None = None,
        output_ratio: Ratios | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        count = self._spatial
        if isinstance(kernel_size, int) and kernel_size <= 0:
            raise ValueError(f"kernel_size must greater than zero, but got {kernel_size}")
        self.kernel_size = each(kernel_size, count)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else each(output_size, count)
        self.output_ratio = None if output_ratio is None else ratios(output_ratio, count)
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{self._get_name()} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Pooled:
        pool = getattr(functional, f"fractional_max_pool{self._spatial}d")
        pooled: Pooled = pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )
        return pooled


class FractionalMaxPool2d(_FractionalMaxPool):
    """Fractional max pooling of [batch, channels, height, width] or [channels, height, width]."""

    _spatial = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Fractional max pooling of [batch, channels, depth, height, width] or without a batch."""

    _spatial = 3
