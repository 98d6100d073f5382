"""Pooling as modules; each calls the function of its name, or PyTorch's operator of it."""

from __future__ import annotations

from collections.abc import Sequence

from gt._core import Tensor
from gt.nn import functional
from gt.nn.functional.pooled import OptionalSizes, Pooled, Sizes
from gt.nn.functional.pooling import each
from gt.nn.module import Module
from gt.tensors.aten.call import call


class _MaxPool(Module):
    """The largest element of each window.

    Args:
        kernel_size: The window.
        stride: Distance of two windows; as the window if not given.
        padding: Width of minus infinity at both ends.
        dilation: Distance of two elements of a window.
        return_indices: Whether to return (values, indices) instead of values.
        ceil_mode: Whether windows may begin inside and end outside.
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window of [batch, channels, n] or [channels, n]."""

    def forward(self, input: Tensor) -> Pooled:
        return functional.max_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class MaxPool2d(_MaxPool):
    """The largest element of each window of [batch, channels, height, width] or without a batch."""

    def forward(self, input: Tensor) -> Pooled:
        return functional.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class MaxPool3d(_MaxPool):
    """The largest element of each window of [batch, channels, depth, height, width], also
    unbatched.
    """

    def forward(self, input: Tensor) -> Pooled:
        return functional.max_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class _MaxUnpool(Module):
    """The inverse of a max pool: values at their places, zero elsewhere.

    Args:
        kernel_size: The window that was pooled.
        stride: Distance of two windows; as the window if not given.
        padding: Width at both ends.
    """

    _spatial = 0

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> None:
        super().__init__()
        self.kernel_size = each(kernel_size, self._spatial)
        self.stride = each(kernel_size if stride is None else stride, self._spatial)
        self.padding = each(padding, self._spatial)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The inverse of MaxPool1d: values at the places that it returned, zero elsewhere."""

    _spatial = 1

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return functional.max_unpool1d(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool2d(_MaxUnpool):
    """The inverse of MaxPool2d: values at the places that it returned, zero elsewhere."""

    _spatial = 2

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return functional.max_unpool2d(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool3d(_MaxUnpool):
    """The inverse of MaxPool3d: values at the places that it returned, zero elsewhere."""

    _spatial = 3

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        return functional.max_unpool3d(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class _AvgPool(Module):
    """The mean of each window."""

    _spatial = 0
    kernel_size: Sizes
    stride: Sizes
    padding: Sizes
    ceil_mode: bool
    count_include_pad: bool

    def _pooled(self, input: Tensor, *more: int | None) -> Tensor:
        windows = (self.kernel_size, self.stride, self.padding)
        options = (self.ceil_mode, self.count_include_pad, *more)
        pooled: Tensor = call(f"avg_pool{self._spatial}d", (input, *windows, *options), {})
        return pooled

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window of [batch, channels, n] or [channels, n].

    Args:
        kernel_size: The window.
        stride: Distance of two windows; as the window if not given.
        padding: Width of zeros at both ends.
        ceil_mode: Whether windows may begin inside and end outside.
        count_include_pad: Whether the padding counts in the mean.
    """

    _spatial = 1

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = each(kernel_size, 1)
        self.stride = each(kernel_size if stride is None else stride, 1)
        self.padding = each(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return self._pooled(input)


class AvgPool2d(_AvgPool):
    """The mean of each window of [batch, channels, height, width] or [channels, height, width].

    Args:
        kernel_size: The window.
        stride: Distance of two windows; as the window if not given.
        padding: Width of zeros at both ends.
        ceil_mode: Whether windows may begin inside and end outside.
        count_include_pad: Whether the padding counts in the mean.
        divisor_override: Divisor, instead of the window's size.
    """

    _spatial = 2

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._pooled(input, self.divisor_override)


class AvgPool3d(AvgPool2d):
    """The mean of each window of [batch, channels, depth, height, width] or without a batch."""

    _spatial = 3


class _AdaptiveMaxPool(Module):
    """The largest element of windows that are as large as makes the output's size.

    Args:
        output_size: Sizes of the windowed dimensions; None keeps the input's.
        return_indices: Whether to return (values, indices) instead of values.
    """

    def __init__(self, output_size: OptionalSizes, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest elements of [batch, channels, n] or [channels, n], as many as output_size."""

    def forward(self, input: Tensor) -> Pooled:
        return functional.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest elements of [batch, channels, height, width], also unbatched, as many as
    output_size.
    """

    def forward(self, input: Tensor) -> Pooled:
        return functional.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest elements of [batch, channels, depth, height, width], also unbatched, as many as
    output_size.
    """

    def forward(self, input: Tensor) -> Pooled:
        return functional.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _AdaptiveAvgPool(Module):
    """The mean of windows that are as large as makes the output's size.

    Args:
        output_size: Sizes of the windowed dimensions; None keeps the input's.
    """

    def __init__(self, output_size: OptionalSizes) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The means of [batch, channels, n] or [channels, n], as many as output_size."""

    def forward(self, input: Tensor) -> Tensor:
        pooled: Tensor = call("adaptive_avg_pool1d", (input, self.output_size), {})
        return pooled


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The means of [batch, channels, height, width], also unbatched, as many as output_size."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The means of [batch, channels, depth, height, width], also unbatched, as many as
    output_size.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.adaptive_avg_pool3d(input, self.output_size)


class _LPPool(Module):
    """The p-norm of each window.

    Args:
        norm_type: p.
        kernel_size: The window.
        stride: Distance of two windows; as the window if not given.
        ceil_mode: Whether windows may begin inside and end outside.

    Raises:
        ValueError: A norm_type of 0.
    """

    def __init__(
        self,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        if norm_type == 0:
            raise ValueError(f"norm_type must be a non-zero value, but got {norm_type}")
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of [batch, channels, n] or [channels, n]."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.lp_pool1d(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool2d(_LPPool):
    """The p-norm of each window of [batch, channels, height, width] or without a batch."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.lp_pool2d(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool3d(_LPPool):
    """The p-norm of each window of [batch, channels, depth, height, width] or without a batch."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.lp_pool3d(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )
