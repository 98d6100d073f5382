"""Padding as modules: with zeros or another value, mirrored, replicated, or circular."""

from __future__ import annotations

from gt._core import Tensor
from gt.nn import functional
from gt.nn.functional.pooled import Sizes
from gt.nn.functional.pooling import each
from gt.nn.module import Module


class _Pad(Module):
    """Padding of the last dimensions.

    Args:
        padding: Pairs (before, after) from the last dimension backwards, or one number for all.
    """

    _spatial = 0
    _mode = "constant"

    def __init__(self, padding: Sizes) -> None:
        super().__init__()
        self.padding = each(padding, 2 * self._spatial)

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Padding of the last dimensions with a value.

    Args:
        padding: Pairs (before, after) from the last dimension backwards, or one number for all.
        value: Value of the padding.
    """

    def __init__(self, padding: Sizes, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return functional.pad(input, self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _CircularPad(_Pad):
    """Padding of the last dimensions from their opposite ends.

    Raises:
        ValueError: In forward: an input with another number of dimensions.
    """

    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self._spatial + 1, self._spatial + 2):
            raise ValueError(
                f"expected {self._spatial + 1}D or {self._spatial + 2}D input "
                f"(got {input.ndim}D input)"
            )
        return super().forward(input)


class ConstantPad1d(_ConstantPad):
    """Padding of the last dimension with `value`; negative padding crops."""

    _spatial = 1


class ZeroPad1d(ConstantPad1d):
    """Padding of the last dimension with zeros; negative padding crops."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReflectionPad1d(_Pad):
    """Padding of the last dimension, mirrored at the outermost elements."""

    _spatial = 1
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """Padding of the last dimension with the outermost elements."""

    _spatial = 1
    _mode = "replicate"


class CircularPad1d(_CircularPad):
    """Padding of the last dimension from the opposite end."""

    _spatial = 1


class ConstantPad2d(_ConstantPad):
    """Padding of the last two dimensions with `value`; negative padding crops."""

    _spatial = 2


class ZeroPad2d(ConstantPad2d):
    """Padding of the last two dimensions with zeros; negative padding crops."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReflectionPad2d(_Pad):
    """Padding of the last two dimensions, mirrored at the outermost elements."""

    _spatial = 2
    _mode = "reflect"


class ReplicationPad2d(_Pad):
    """Padding of the last two dimensions with the outermost elements."""

    _spatial = 2
    _mode = "replicate"


class CircularPad2d(_CircularPad):
    """Padding of the last two dimensions from the opposite ends."""

    _spatial = 2


class ConstantPad3d(_ConstantPad):
    """Padding of the last three dimensions with `value`; negative padding crops."""

    _spatial = 3


class ZeroPad3d(ConstantPad3d):
    """Padding of the last three dimensions with zeros; negative padding crops."""

    def __init__(self, padding: Sizes) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReflectionPad3d(_Pad):
    """Padding of the last three dimensions, mirrored at the outermost elements."""

    _spatial = 3
    _mode = "reflect"


class ReplicationPad3d(_Pad):
    """Padding of the last three dimensions with the outermost elements."""

    _spatial = 3
    _mode = "replicate"


class CircularPad3d(_CircularPad):
    """Padding of the last three dimensions from the opposite ends."""

    _spatial = 3
