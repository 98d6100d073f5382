"""A batch norm in evaluation mode as part of the convolution or linear layer before it."""

from __future__ import annotations

import copy
from typing import TypeVar

import gt
from gt._core import Tensor
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]

Layer = TypeVar("Layer", bound=Module)


def fuse_conv_bn_eval(conv: Layer, bn: Module, transpose: bool = False) -> Layer:
    """A copy of `conv` that computes `conv` followed by `bn`, both in evaluation mode."""
    return _fused(conv, bn, transpose=transpose)


def fuse_linear_bn_eval(linear: Layer, bn: Module) -> Layer:
    """A copy of `linear` that computes `linear` followed by `bn`, both in evaluation mode."""
    if bn.num_features not in (linear.out_features, 1):
        raise ValueError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    return _fused(linear, bn, transpose=False)


def _fused(layer: Layer, bn: Module, *, transpose: bool) -> Layer:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    weight, bias = _weights(layer.weight, layer.bias, *statistics, transpose=transpose)  # type: ignore[arg-type]
    fused.weight, fused.bias = weight, bias
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the result of `fuse_conv_bn_eval`."""
    return _weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=transpose)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the result of `fuse_linear_bn_eval`."""
    return _weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False)


def _weights(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    *,
    transpose: bool,
) -> tuple[Parameter, Parameter]:
    with gt.no_grad():
        factor = (var + eps).rsqrt() * (1 if scale is None else scale)
        channels = [1] * weight.ndim
        channels[1 if transpose else 0] = -1
        new_weight = (weight * factor.reshape(channels)).to(weight.dtype)
        start = (0 if bias is None else bias) - mean
        new_bias = (start * factor + (0 if shift is None else shift)).to(weight.dtype)
    grads = weight.requires_grad, weight.requires_grad if bias is None else bias.requires_grad
    return Parameter(new_weight, grads[0]), Parameter(new_bias, grads[1])


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
