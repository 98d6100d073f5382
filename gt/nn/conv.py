"""Convolutions and transposed convolutions, run by PyTorch's operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

import gt
from gt import signal
from gt._core import Tensor
from gt.nn import functional, init
from gt.nn.functional.pooled import Sizes
from gt.nn.functional.pooling import each
from gt.nn.module import Module
from gt.nn.parameter import Parameter
from gt.tensors.aten.call import call

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Base of all convolutions: sizes, a weight and a bias."""

    weight: Parameter
    bias: Parameter | None
    # Number of dimensions over which the window moves.
    _spatial = 0
    transposed = False

    def _make(
        self,
        channels: tuple[int, int],
        kernel_size: Sizes,
        stride: Sizes,
        padding: str | Sizes,
        dilation: Sizes,
        output_padding: Sizes,
        groups: int,
        padding_mode: str,
    ) -> None:
        self.in_channels, self.out_channels = channels
        self.kernel_size = each(kernel_size, self._spatial)
        self.stride = each(stride, self._spatial)
        self.padding = padding if isinstance(padding, str) else each(padding, self._spatial)
        self.dilation = each(dilation, self._spatial)
        self.output_padding = each(output_padding, self._spatial)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()

    def _check(self) -> None:
        if self.groups <= 0:
            raise ValueError("groups must be a positive integer")
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        if self.out_channels % self.groups:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(
                    f"Invalid padding string {self.padding!r}, should be one of {{'same', 'valid'}}"
                )
            if self.padding == "same" and any(step != 1 for step in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in _PADDING_MODES:
            raise ValueError(
                f"padding_mode must be one of {set(_PADDING_MODES)}, but got "
                f"padding_mode='{self.padding_mode}'"
            )

    def _make_parameters(self, dtype: gt.dtype | None, *, bias: bool) -> None:
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        shape = (first, second // self.groups, *self.kernel_size)
        with signal.part("whole"):
            self.weight = Parameter(gt.empty(*shape, dtype=dtype))
            self.register_parameter(
                "bias", Parameter(gt.empty(self.out_channels, dtype=dtype)) if bias else None
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias from the uniform distribution within 1 / sqrt(inputs of
        one output).
        """
        with signal.part("whole"):
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
            if self.bias is not None:
                fan_in = init.fans(self.weight)[0]
                bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        none, one = (0,) * self._spatial, (1,) * self._spatial
        words = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}, stride={self.stride}",
        ]
        if self.padding != none:
            words.append(f"padding={self.padding}")
        if self.dilation != one:
            words.append(f"dilation={self.dilation}")
        if self.output_padding != none:
            words.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            words.append(f"groups={self.groups}")
        if self.bias is None:
            words.append("bias=False")
        if self.padding_mode != "zeros":
            words.append(f"padding_mode={self.padding_mode}")
        return ", ".join(words)


class _Conv(_ConvNd):
    """A convolution.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: The window.
        stride: Distance of two windows.
        padding: Width at both ends of each dimension; "valid" is none, "same" keeps the sizes.
        dilation: Distance of two elements of a window.
        groups: Number of groups of channels that are convolved separately.
        bias: Whether to add one.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        device: Accepted and ignored.
        dtype: Dtype of weight and bias.

    Raises:
        ValueError: Groups that do not divide the channels, or an unknown padding.
    """

    def __init__(
        self,
        in_channels: int,
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
        super().__init__()
        del device
        channels = (in_channels, out_channels)
        self._make(channels, kernel_size, stride, padding, dilation, 0, groups, padding_mode)
        self._make_parameters(dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._pads(), mode=self.padding_mode)
            padding = (0,) * self._spatial
        convolved: Tensor = call(
            f"conv{self._spatial}d",
            (input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups),
            {},
        )
        return convolved

    def _pads(self) -> list[int]:
        """Padding (before, after) of each dimension, from the last one."""
        if self.padding == "valid":
            return [0, 0] * self._spatial
        if isinstance(self.padding, str):
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return [pad for total in totals[::-1] for pad in (total // 2, total - total // 2)]
        return [pad for pad in self.padding[::-1] for _ in range(2)]


class Conv1d(_Conv):
    """A convolution of [batch, channels, n] or [channels, n]."""

    _spatial = 1


class Conv2d(_Conv):
    """A convolution of [batch, channels, height, width] or [channels, height, width]."""

    _spatial = 2


class Conv3d(_Conv):
    """A convolution of [batch, channels, depth, height, width] or the same without a batch."""

    _spatial = 3


class _ConvTranspose(_ConvNd):
    """A transposed convolution, the gradient of a convolution with respect to its input.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: The window.
        stride: Distance of two windows in the output.
        padding: Width removed from both ends of the output.
        output_padding: Width added at one end of the output.
        groups: Number of groups of channels that are convolved separately.
        bias: Whether to add one.
        dilation: Distance of two elements of a window.
        padding_mode: "zeros".
        device: Accepted and ignored.
        dtype: Dtype of weight and bias.

    Raises:
        ValueError: Groups that do not divide the channels, or another padding mode.
    """

    transposed = True

    def __init__(
        self,
        in_channels: int,
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
        super().__init__()
        del device
        if padding_mode != "zeros":
            raise ValueError(
                f'Only "zeros" padding mode is supported for {self.__class__.__name__}'
            )
        channels = (in_channels, out_channels)
        self._make(
            channels, kernel_size, stride, padding, dilation, output_padding, groups, padding_mode
        )
        self._make_parameters(dtype, bias=bias)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._extra(input, output_size)
        arguments = (self.stride, self.padding, extra, self.groups, self.dilation)
        convolved: Tensor = call(
            f"conv_transpose{self._spatial}d", (input, self.weight, self.bias, *arguments), {}
        )
        return convolved

    def _extra(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding that leads to `output_size`."""
        count = self._spatial
        other = 2 if input.ndim == count + 2 else 1
        wanted = output_size[other:] if len(output_size) == other + count else output_size
        if len(wanted) != count:
            raise ValueError(
                f"ConvTranspose{count}D: for {input.ndim}D input, output_size must have {count} or "
                f"{other + count} elements (got {len(wanted)})"
            )
        assert not isinstance(self.padding, str), self.padding
        least = [
            (input.shape[other + d] - 1) * self.stride[d]
            - 2 * self.padding[d]
            + self.dilation[d] * (self.kernel_size[d] - 1)
            + 1
            for d in range(count)
        ]
        most = [low + step - 1 for low, step in zip(least, self.stride, strict=True)]
        if any(not low <= x <= high for low, x, high in zip(least, wanted, most, strict=True)):
            raise ValueError(
                f"requested an output size of {wanted}, but valid sizes range from {least} to "
                f"{most} (for an input of torch.Size({list(input.shape[2:])}))"
            )
        return tuple(x - low for x, low in zip(wanted, least, strict=True))


class ConvTranspose1d(_ConvTranspose):
    """A transposed convolution of [batch, channels, n] or [channels, n]."""

    _spatial = 1


class ConvTranspose2d(_ConvTranspose):
    """A transposed convolution of [batch, channels, height, width] or without a batch."""

    _spatial = 2


class ConvTranspose3d(_ConvTranspose):
    """A transposed convolution of [batch, channels, depth, height, width] or without a batch."""

    _spatial = 3
