"""Lazy modules: layers that take their input's size from the first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gt
from gt import signal
from gt._core import Tensor
from gt.errors import ShapeError
from gt.nn.batchnorm import BatchNorm1d, BatchNorm2d, _BatchNorm
from gt.nn.channel import BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from gt.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _Conv,
    _ConvNd,
    _ConvTranspose,
)
from gt.nn.functional.pooled import Sizes
from gt.nn.linear import Linear
from gt.nn.module import Module
from gt.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

Self = TypeVar("Self", bound="LazyModuleMixin")  # typing.Self is Python 3.11's


class LazyModuleMixin(Module):
    """Makes parameters at the first call, and then becomes the module of which it is the lazy form.

    Subclasses override `initialize_parameters`, and set `cls_to_become` if there is such a class.
    """

    cls_to_become: type[Module] | None = None

    def _not_said(self, *args: object, **kwargs: object) -> None:
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    # Gives parameters and buffers their shapes from the first call's arguments.
    initialize_parameters: Callable[..., None] = _not_said

    def has_uninitialized_params(self) -> bool:
        """True if a parameter or buffer waits for its shape."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def _call(self, *args: object, **kwargs: object) -> object:
        target = type(self).cls_to_become
        if target is not None or self.has_uninitialized_params():
            self.initialize_parameters(*args, **kwargs)
            if self.has_uninitialized_params():
                raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        if target is not None:
            self.__class__ = target  # type: ignore[assignment]
        return Module._call(self, *args, **kwargs)

    __call__ = _call

    def _apply(self: Self, convert: Callable[[Tensor], Tensor]) -> Self:
        waiting = [name for name, buffer in self._buffers.items() if is_lazy(buffer)]
        Module._apply(self, convert)
        for name in waiting:
            buffer = self._buffers[name]
            assert buffer is not None, name
            self._buffers[name] = UninitializedBuffer(dtype=buffer.dtype)
        return self

    def _place(self, name: str, shape: tuple[int, ...]) -> None:
        value = getattr(self, name)
        if isinstance(value, UninitializedParameter | UninitializedBuffer) and is_lazy(value):
            value.materialize(shape)


class LazyLinear(LazyModuleMixin, Linear):
    """Linear with the size of the first input's last dimension as in_features.

    Args:
        out_features: Size of the output's last dimension.
        bias: Whether to add one.
        device: Accepted and ignored.
        dtype: Dtype of weight and bias.
    """

    cls_to_become = Linear

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        Module.__init__(self)
        self.in_features, self.out_features = 0, out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.register_parameter("bias", UninitializedParameter(dtype=dtype) if bias else None)

    def reset_parameters(self) -> None:
        """Reset as Linear does, once the shapes are known."""
        if not self.has_uninitialized_params():
            Linear.reset_parameters(self)

    def initialize_parameters(self, input: Tensor) -> None:
        """Give weight and bias their shapes and initial values."""
        is_new, self.in_features = self.has_uninitialized_params(), input.shape[-1]
        with signal.part("transposed"):
            self._place("weight", (self.out_features, self.in_features))
        if self.bias is not None:
            with signal.part("bias"):
                self._place("bias", (self.out_features,))
        if is_new:
            self.reset_parameters()
        if self.weight.shape[-1] != self.in_features:
            raise AssertionError(
                f"The in_features inferred from input: {self.in_features} is not equal to "
                f"in_features from self.weight: {self.weight.shape[-1]}"
            )


class _LazyConvNd(LazyModuleMixin, _ConvNd):
    """A convolution with the channels of its first input as in_channels."""

    def _wait(self, dtype: gt.dtype | None, *, bias: bool) -> None:
        self.weight = UninitializedParameter(dtype=dtype)
        self.register_parameter("bias", UninitializedParameter(dtype=dtype) if bias else None)

    def reset_parameters(self) -> None:
        """Reset as the convolution does, once the shapes are known."""
        if not self.has_uninitialized_params():
            _ConvNd.reset_parameters(self)

    def initialize_parameters(self, input: Tensor, output_size: object = None) -> None:
        """Give weight and bias their shapes and initial values."""
        del output_size
        unbatched = self._spatial + 1
        if input.ndim not in (unbatched, unbatched + 1):
            raise ShapeError(
                f"Expected {unbatched}D (unbatched) or {unbatched + 1}D (batched) input to "
                f"{type(self).__name__}, but got input of size: torch.Size({list(input.shape)})"
            )
        is_new, self.in_channels = self.has_uninitialized_params(), input.shape[-unbatched]
        self._check()
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        with signal.part("whole"):
            self._place("weight", (first, second // self.groups, *self.kernel_size))
            if self.bias is not None:
                self._place("bias", (self.out_channels,))
        if is_new:
            self.reset_parameters()


class _LazyConv(_LazyConvNd, _Conv):
    """A convolution with the channels of its first input as in_channels; other arguments are
    Conv's.
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        Module.__init__(self)
        del device
        sizes = (kernel_size, stride, padding, dilation)
        self._make((0, out_channels), *sizes, 0, groups, padding_mode)
        self._wait(dtype, bias=bias)


class LazyConv1d(_LazyConv, Conv1d):
    """Conv1d with the channels of its first input as in_channels."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """Conv2d with the channels of its first input as in_channels."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """Conv3d with the channels of its first input as in_channels."""

    cls_to_become = Conv3d


class _LazyConvTranspose(_LazyConvNd, _ConvTranspose):
    """A transposed convolution with the channels of its first input as in_channels."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        Module.__init__(self)
        del device
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        sizes = (kernel_size, stride, padding, dilation, output_padding)
        self._make((0, out_channels), *sizes, groups, padding_mode)
        self._wait(dtype, bias=bias)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """ConvTranspose1d with the channels of its first input as in_channels."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """ConvTranspose2d with the channels of its first input as in_channels."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """ConvTranspose3d with the channels of its first input as in_channels."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin, _BatchNorm):
    """A norm with the channels of its first input; other arguments are the norm's."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        Module.__init__(self)
        del device
        self.num_features, self.eps, self.momentum = 0, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, present in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, UninitializedParameter(dtype=dtype) if present else None)
        tracked = track_running_stats
        for name in ("running_mean", "running_var"):
            self.register_buffer(name, UninitializedBuffer(dtype=dtype) if tracked else None)
        self.register_buffer(
            "num_batches_tracked", gt.tensor(0, dtype=gt.int64) if tracked else None
        )

    def reset_parameters(self) -> None:
        """Reset as the norm does, once the shapes are known."""
        if not self.has_uninitialized_params():
            _BatchNorm.reset_parameters(self)

    def initialize_parameters(self, input: Tensor) -> None:
        """Give weight, bias and running values their shapes and initial values."""
        is_new, self.num_features = self.has_uninitialized_params(), input.shape[1]
        with signal.part("whole"):
            for name in ("weight", "bias", "running_mean", "running_var"):
                self._place(name, (self.num_features,))
        if is_new:
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """BatchNorm1d with the channels of its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """BatchNorm2d with the channels of its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """BatchNorm3d with the channels of its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """InstanceNorm1d with the channels of its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """InstanceNorm2d with the channels of its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """InstanceNorm3d with the channels of its first input."""

    cls_to_become = InstanceNorm3d
