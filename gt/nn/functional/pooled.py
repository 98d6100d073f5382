"""Types of the max pools: a pair if `return_indices=True` asks for places, else a tensor.

Only type checkers read them. For a value of `return_indices` that is known only at run time, the
type is that of the values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, cast, overload

from gt._core import Tensor

# One number for each windowed dimension, or one for all.
Sizes = int | Sequence[int]
OptionalSizes = int | None | Sequence[int | None]
# Ratio of the output's size to the input's: one number for each windowed dimension, or for all.
Ratios = float | Sequence[float]
# The pooled values. With return_indices it is a pair of values and their places in the input, which
# programs unpack as type checkers let them unpack a tensor.
Pooled: TypeAlias = Tensor
Pair = tuple[Tensor, Tensor]


class MaxPool(Protocol):
    """Signature of a max_pool, whose windows have one size."""

    # fmt: off
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
        dilation: Sizes = 1, ceil_mode: bool = False, return_indices: Literal[False] = False,
    ) -> Tensor: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # see the top
        self, input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
        dilation: Sizes = 1, ceil_mode: bool = False, *, return_indices: Literal[True],
    ) -> Pair: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # see the top
        self, input: Tensor, kernel_size: Sizes, stride: Sizes | None, padding: Sizes,
        dilation: Sizes, ceil_mode: bool, return_indices: Literal[True],
    ) -> Pair: ...
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
        dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> Pooled: ...
    # fmt: on


class AdaptiveMaxPool(Protocol):
    """Signature of an adaptive_max_pool, whose windows follow from the output's size."""

    # fmt: off
    @overload
    def __call__(
        self, input: Tensor, output_size: OptionalSizes, return_indices: Literal[False] = False
    ) -> Tensor: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # see the top
        self, input: Tensor, output_size: OptionalSizes, return_indices: Literal[True]
    ) -> Pair: ...
    @overload
    def __call__(
        self, input: Tensor, output_size: OptionalSizes, return_indices: bool = False
    ) -> Pooled: ...
    # fmt: on


class FractionalMaxPool(Protocol):
    """Signature of a fractional_max_pool, whose windows stand at random places."""

    # fmt: off
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Sizes, output_size: Sizes | None = None,
        output_ratio: Ratios | None = None, return_indices: Literal[False] = False,
        _random_samples: Tensor | None = None,
    ) -> Tensor: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # see the top
        self, input: Tensor, kernel_size: Sizes, output_size: Sizes | None = None,
        output_ratio: Ratios | None = None, *, return_indices: Literal[True],
        _random_samples: Tensor | None = None,
    ) -> Pair: ...
    @overload
    def __call__(  # type: ignore[overload-overlap] # see the top
        self, input: Tensor, kernel_size: Sizes, output_size: Sizes | None,
        output_ratio: Ratios | None, return_indices: Literal[True],
        _random_samples: Tensor | None = None,
    ) -> Pair: ...
    @overload
    def __call__(
        self, input: Tensor, kernel_size: Sizes, output_size: Sizes | None = None,
        output_ratio: Ratios | None = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Pooled: ...
    # fmt: on


# fmt: off
class PairOfMaxPool(Protocol):
    """Signature that returns values and places, for windows of one size."""

    def __call__(
        self, input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
        dilation: Sizes = 1, ceil_mode: bool = False, return_indices: bool = False,
    ) -> Pair: ...


class PairOfAdaptiveMaxPool(Protocol):
    """Signature that returns values and places, for adaptive windows."""

    def __call__(
        self, input: Tensor, output_size: OptionalSizes, return_indices: bool = False
    ) -> Pair: ...


class PairOfFractionalMaxPool(Protocol):
    """Signature that returns values and places, for windows at random places."""

    def __call__(
        self, input: Tensor, kernel_size: Sizes, output_size: Sizes | None = None,
        output_ratio: Ratios | None = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Pair: ...
# fmt: on


def max_pool(function: Callable[..., Pooled]) -> MaxPool:
    """The function itself, with its type."""
    return cast("MaxPool", function)


def adaptive_max_pool(function: Callable[..., Pooled]) -> AdaptiveMaxPool:
    """The function itself, with its type."""
    return cast("AdaptiveMaxPool", function)


def fractional_max_pool(function: Callable[..., Pooled]) -> FractionalMaxPool:
    """The function itself, with its type."""
    return cast("FractionalMaxPool", function)
