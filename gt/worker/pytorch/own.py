"""Operators of GT's own for the generic instruction (gt/tensors/aten/own.txt), and their gradients.

A function runs in two ways: without autograd, as fast as possible, saving values for its gradient;
and under autograd, for a gradient of higher order or of another result, as plain operators of
PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gt.worker.pytorch import (
    attention,
    bags,
    convolution,
    elementwise,
    gradients,
    pooling,
    recurrent,
)

if TYPE_CHECKING:
    from gt.worker.cuda.operators import CudaOperators


def _segment_reduce(
    data: Tensor, reduce: str, lengths: Tensor, axis: int, is_whole: bool, initial: float | None
) -> Tensor:
    """torch.segment_reduce by lengths, which may not reach beyond the data.

    Args:
        is_whole: True if they must reach the data's end, which PyTorch checks.
    """
    has_values = not lengths.is_meta
    if has_values and not is_whole and lengths.numel():
        beyond = lengths.sum(-1).max() > data.shape[lengths.dim() - 1]
        if beyond or lengths.min() < 0:
            raise RuntimeError("segment_reduce(): lengths must be positive and within the data")
    unsafe = not (has_values and is_whole)
    return torch.segment_reduce(
        data, reduce, lengths=lengths, axis=axis, unsafe=unsafe, initial=initial
    )


def _lcm(self: Tensor, other: Tensor) -> Tensor:
    """torch.lcm, safe for the lowest integer divided by -1, which traps in PyTorch."""
    if self.is_floating_point() or other.is_floating_point():
        return torch.lcm(self, other)  # PyTorch refuses these operands
    divisor = torch.gcd(self, other).abs()
    quotient = self.div(divisor.masked_fill(divisor == 0, 1), rounding_mode="trunc")
    return (quotient * other).abs()


FORWARD: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    "attention": attention.attention,
    "lstm_layer": recurrent.lstm_layer,
    "lstm_projected": recurrent.lstm_projected,
    "gru_layer": recurrent.gru_layer,
    "rnn_layer": recurrent.rnn_layer,
    "segment_reduce_lengths": _segment_reduce,
}
# Functions with the values of PyTorch's operators, if GT has a faster kernel for some operands, or
# PyTorch's ends the process for some.
FASTER: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    "div.Scalar_mode": elementwise.divided,
    "div.Tensor_mode": elementwise.divided,
    "divide.Scalar_mode": elementwise.divided,
    "divide.Tensor_mode": elementwise.divided,
    "embedding_bag": bags.embedding_bag,
    "embedding_bag.padding_idx": bags.embedding_bag,
    "lcm": _lcm,
    "max_pool2d_with_indices": pooling.max_pool2d_with_indices,
}
_POOLS = {
    name: pooling.checked(dims, getattr(torch.ops.aten, name).default)
    for dims in (1, 2, 3)
    for name in (f"max_pool{dims}d", f"max_pool{dims}d_with_indices")
    if name not in FASTER
}
FASTER |= _POOLS
FASTER |= convolution.FORWARD
BACKWARD: dict[str, Callable[..., Tensor | tuple[Tensor | None, ...] | None]] = {
    "attention_backward": attention.attention_backward,
    "lstm_layer_backward": recurrent.lstm_layer_backward,
    "gru_layer_backward": recurrent.gru_layer_backward,
    "rnn_layer_backward": recurrent.rnn_layer_backward,
}
_POOLS_BACKWARD = {
    name: pooling.checked_backward(dims, getattr(torch.ops.aten, name).default)
    for dims in (2, 3)
    for name in (f"max_pool{dims}d_with_indices_backward",)
}
BACKWARD |= _POOLS_BACKWARD
BACKWARD["convolution_backward"] = convolution.backward
BACKWARD["avg_pool1d_backward"] = gradients.avg_pool1d_backward
# Gradients that also hold for complex numbers, by overload; PyTorch's backward operators lack some.
COMPLEX: dict[str, Callable[..., Tensor | tuple[Tensor | None, ...] | None]] = {
    "matmul": gradients.matmul_backward,
    "fft_rfft": gradients.fft_rfft_backward,
    "fft_irfft": gradients.fft_irfft_backward,
}
BACKWARD |= {f"{name}_backward": function for name, function in COMPLEX.items()}
# Operators among these that run PyTorch's own for tensors without a gradient, or for a `dilation`
# of 1: then each window has a pixel.
CHECKED = _POOLS.keys() | _POOLS_BACKWARD.keys()
# Operators among these that the ATen helper cuts as they do.
CUT = {*convolution.FORWARD, "convolution_backward"}


@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    """Functions of GT's own operators, and of gradients, for the values of one device."""

    forward: Mapping[str, Callable[..., Tensor | tuple[Tensor, ...]]]
    backward: Mapping[str, Callable[..., Tensor | tuple[Tensor | None, ...] | None]]


PLAIN = Functions(FORWARD, BACKWARD)


def functions(own: CudaOperators | None) -> Functions:
    """The functions of a device.

    Args:
        own: The device's operators of GT's own, if it has any.
    """
    if own is None:
        return PLAIN
    forward = {name: own.over(name, function) for name, function in FORWARD.items()}
    backward = {name: own.over(name, function) for name, function in BACKWARD.items()}
    return Functions(forward, backward)
