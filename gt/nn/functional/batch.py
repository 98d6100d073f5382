"""Norms over channels: of a batch, and of groups of channels."""

from __future__ import annotations

import math

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import ShapeError
from gt.nn.functional.channel_checks import check_groups, check_statistics, require_several
from gt.tensors.kept import keeps


@keeps(input="input weight", weight="input weight", bias="input weight")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias, channel by channel.

    Mean and variance are those of the whole batch, over however many workers it is cut.

    Args:
        input: [batch, channels, ...].
        running_mean: [channels]; in training it moves toward the batch's mean by `momentum`.
        running_var: [channels]; moves likewise toward the unbiased variance.
        weight: [channels].
        bias: [channels].
        training: Whether to use the batch's mean and variance; else the running ones.
        momentum: Fraction by which the running values move.
        eps: Added to the variance.

    Raises:
        ValueError: One value for each channel, in training; or only one of the running values.
        RuntimeError: Other sizes or dtypes; or no running values outside of training.
    """
    if training:
        require_several(input.shape, gt.Size(input.shape))
    if not input.numel():
        return _of_nothing(input, weight, bias)
    running = (running_mean, running_var)
    check_statistics(input, running, (weight, bias), training=training)
    x = _wide(input)
    if training:
        out, _, _ = _of_batch(x, running, weight, bias, momentum, eps)
        return _of_dtype(out, input.dtype)
    assert running_mean is not None, "checked above"
    assert running_var is not None, "checked above"
    mean, var = _wide(running_mean), _wide(running_var)
    scale = (var + eps).rsqrt()
    centered = (x - _channels(mean, x)) * _channels(scale, x)
    return _affine(centered, weight, bias).to(input.dtype)


def _of_nothing(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """A copy of an input without elements, with zero gradients for weight and bias."""
    out = input.clone()
    for value in (weight, bias):
        if value is not None and value.requires_grad:
            out = out + 0 * value.sum().to(out.dtype)
    return out


@keeps(
    input="input weight out1 out2", weight="input weight out1 out2", bias="input weight out1 out2"
)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm, with the batch's mean and 1 / sqrt(variance + eps) of each channel in training.

    Both are empty outside of training. They pass no gradient.
    """
    dtype = input.dtype if weight is None else weight.dtype
    if not training:
        out = batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
        return out, gt.empty(0, dtype=dtype), gt.empty(0, dtype=dtype)
    running = (running_mean, running_var)
    out, mean, rstd = _of_batch(_wide(input), running, weight, bias, momentum, eps)
    return out.to(input.dtype), mean.detach().to(dtype), rstd.detach().to(dtype)


def _values_a_channel(x: Tensor) -> int:
    return math.prod(size for dim, size in enumerate(x.shape) if dim != 1)


def _of_batch(
    x: Tensor,
    running: tuple[Tensor | None, Tensor | None],
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float | Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalizes by the batch's own mean and variance, and updates the running ones; also returns
    mean and rstd.
    """
    parameters = (None if p is None else _of_dtype(p, x.dtype) for p in (weight, bias))
    out, mean, rstd, var = _core.call("batch_norm", x, *parameters, eps=eps)
    with gt.no_grad():
        for average, now in zip(running, (mean, var), strict=True):
            if average is not None and _values_a_channel(x):  # an empty batch updates nothing
                average.lerp_(_of_dtype(now, average.dtype), momentum)
    return out, mean, rstd


@keeps(input="input weight", weight="input weight", bias="input weight")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias, for each group of channels.

    Args:
        input: [batch, channels, ...].
        num_groups: Number of groups of equally many channels.
        weight: [channels].
        bias: [channels].
        eps: Added to the variance.

    Raises:
        ShapeError: No channels, a number of channels that the groups do not divide, or other sizes.
        ValueError: One value for each group.
    """
    if input.ndim < 2:
        raise ShapeError(
            f"Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    batch, channels = input.shape[:2]
    size = [batch * channels // num_groups, num_groups, *input.shape[2:]]
    require_several(size, size)
    for what, count in (("number of channels", channels), ("HxW", math.prod(input.shape[2:]))):
        if not count:
            raise ShapeError(f"Expected {what} to be greater than 0, got 0")
    check_groups(input, num_groups, weight, bias)
    width = math.prod(input.shape[1:]) // num_groups
    x = _wide(input).reshape(batch, num_groups, width)
    grouped = gt.layer_norm(x, (width,), eps=eps)
    return _affine(grouped.reshape(input.shape), weight, bias).to(input.dtype)


def _wide(value: Tensor) -> Tensor:
    """The value in float32 if it is in half precision, so that results are rounded once, at the
    end.
    """
    return value.float() if value.dtype in (gt.float16, gt.bfloat16) else value


def _of_dtype(value: Tensor, dtype: gt.dtype) -> Tensor:
    return value if value.dtype == dtype else value.to(dtype)


def _channels(value: Tensor, like: Tensor) -> Tensor:
    """[channels] reshaped to broadcast over [batch, channels, ...]."""
    return value.reshape(-1, *([1] * (like.ndim - 2)))


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * _channels(weight, x)
    return x if bias is None else x + _channels(bias, x)
