"""Norms over channels: of a batch, of groups of channels."""

from __future__ import annotations

import math

import gt
from gt._core import Tensor
from gt.errors import ShapeError


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

    Mean and variance are those of the whole batch, however many workers it is cut over.

    Args:
        input: [batch, channels, ...].
        running_mean: [channels]; in training it moves towards the batch's by `momentum`.
        running_var: [channels]; as running_mean, towards the unbiased variance.
        weight: [channels].
        bias: [channels].
        training: Whether to take the batch's mean and variance; else the running ones.
        momentum: How far the running ones go.
        eps: Added to the variance.

    Raises:
        ValueError: One value a channel, in training.
        RuntimeError: Nothing running, not in training.
    """
    x = _wide(input)
    if training:
        dims = [dim for dim in range(input.ndim) if dim != 1]
        count = math.prod(input.shape[dim] for dim in dims)
        if count == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got input size "
                f"{gt.Size(input.shape)}"
            )
        mean, var = x.mean(dims), x.var(dims, correction=0)
        with gt.no_grad():
            unbiased = var * (count / max(count - 1, 1))
            for running, now in ((running_mean, mean), (running_var, unbiased)):
                if running is not None and count:  # an empty batch moves nothing
                    running.copy_((1 - momentum) * running + momentum * now)
    elif running_mean is None or running_var is None:
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when training=False"
        )
    else:
        mean, var = _wide(running_mean), _wide(running_var)
    scale = (var + eps).rsqrt()
    centered = (x - _channels(mean, x)) * _channels(scale, x)
    return _affine(centered, weight, bias).to(input.dtype)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) of each group of channels, * weight + bias.

    Args:
        input: [batch, channels, ...].
        num_groups: Groups of equally many channels.
        weight: [channels].
        bias: [channels].
        eps: Added to the variance.

    Raises:
        ShapeError: No channels, or so many that the groups do not divide them.
    """
    if input.ndim < 2:
        raise ShapeError(
            f"Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    batch, channels = input.shape[:2]
    for what, size in (("number of channels", channels), ("HxW", math.prod(input.shape[2:]))):
        if not size:
            raise ShapeError(f"Expected {what} to be greater than 0, got 0")
    if channels % num_groups:
        raise ShapeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(input.shape)} and num_groups={num_groups}"
        )
    width = math.prod(input.shape[1:]) // num_groups
    x = _wide(input).reshape(batch, num_groups, width)
    grouped = gt.layer_norm(x, (width,), eps=eps)
    return _affine(grouped.reshape(input.shape), weight, bias).to(input.dtype)


def _wide(value: Tensor) -> Tensor:
    """In float32 where it is in half precision: what is computed of it rounds once, at the end."""
    return value.float() if value.dtype in (gt.float16, gt.bfloat16) else value


def _channels(value: Tensor, like: Tensor) -> Tensor:
    """[channels] so that it broadcasts over [batch, channels, ...]."""
    return value.reshape(-1, *([1] * (like.ndim - 2)))


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * _channels(weight, x)
    return x if bias is None else x + _channels(bias, x)
