"""Norms of one channel or over neighbours, and dropout of whole channels."""

from __future__ import annotations

import math

import gt
from gt._core import Tensor
from gt.nn.functional.channel_checks import check_statistics
from gt.nn.functional.layer import dropout, pad
from gt.tensors.aten.call import call
from gt.tensors.kept import keeps

# -scale * alpha of selu: its limit for small arguments.
_SELU_FLOOR = 1.7580993408473766


@keeps(weight="input", bias="input")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias, for each channel of each element.

    Args:
        input: [batch, channels, ...].
        running_mean: [channels]; moves toward the batch's mean by `momentum`.
        running_var: [channels]; moves likewise toward the unbiased variance.
        weight: [channels].
        bias: [channels].
        use_input_stats: Whether to use the input's mean and variance; else the running ones.
        momentum: Fraction by which the running values move.
        eps: Added to the variance.

    Raises:
        ValueError: One value for each channel.
        RuntimeError: No running values, if they are to be used.
    """
    shape = (1, -1, *([1] * (input.ndim - 2)))
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "Expected running_mean and running_var to be defined when use_input_stats is false"
            )
        _check_repeated(input, (running_mean, running_var), (weight, bias), training=False)
        return gt.nn.functional.batch_norm(
            input, running_mean, running_var, weight, bias, training=False, eps=eps
        )
    count = math.prod(input.shape[2:])
    if count == 1:
        raise ValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"torch.Size({list(input.shape)})"
        )
    _check_repeated(input, (running_mean, running_var), (weight, bias), training=True)
    dtype = input.dtype
    if dtype in (gt.float16, gt.bfloat16):  # computed in float32, as PyTorch's kernel does
        input = input.float()
        weight, bias = (None if x is None else x.float() for x in (weight, bias))
    dims = list(range(2, input.ndim))
    mean = input.mean(dims, keepdim=True)
    var = input.var(dims, correction=0, keepdim=True)
    with gt.no_grad():
        for running, now in ((running_mean, mean), (running_var, var * (count / (count - 1)))):
            if running is not None:
                batch = now.mean(0).reshape(-1)
                running.copy_((1 - momentum) * running.to(batch.dtype) + momentum * batch)
    normed = (input - mean) * (var + eps).rsqrt()
    if weight is not None:
        normed = normed * weight.reshape(*shape).clone()  # PyTorch repeats it, and saves that
    return (normed if bias is None else normed + bias.reshape(*shape)).to(dtype)


def _check_repeated(
    input: Tensor,
    running: tuple[Tensor | None, Tensor | None],
    affine: tuple[Tensor | None, Tensor | None],
    *,
    training: bool,
) -> None:
    """Checks as PyTorch does, which treats all channels as a batch of one, and repeats their
    vectors.
    """
    if input.numel():
        repeats = input.shape[0]
        check_statistics(input, running, affine, training=training, repeats=repeats)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """input / (k + alpha * mean(input ** 2 over `size` neighbouring channels)) ** beta.

    Args:
        input: [batch, channels, ...] of three dimensions or more.
        size: Number of channels.
        alpha: Factor in the formula.
        beta: Exponent in the formula.
        k: Summand in the formula.

    Raises:
        ValueError: Fewer dimensions.
    """
    if input.ndim < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality                          input (got "
            f"{input.ndim} dimensions)"
        )
    if not input.numel():
        return input
    squares = (input * input).reshape(input.shape[0], 1, input.shape[1], -1)
    squares = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    mean: Tensor = call("avg_pool2d", (squares, (size, 1)), {"stride": 1})
    return input / (mean.reshape(*input.shape) * alpha + k) ** beta


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """In training, zero each channel of [batch, channels, n] or [channels, n] by probability `p`.

    Raises:
        ValueError: A `p` outside of [0, 1].
        RuntimeError: Another number of dimensions.
    """
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that "
            "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
            "a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _drop_channels(input, p, training, inplace, input.ndim - 1)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """In training, zero each [batch, channel] by probability `p`, for any further dimensions."""
    return _drop_channels(input, p, training, inplace, 2)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """In training, zero each channel of [batch, channels, depth, height, width], also without a
    batch.
    """
    return _drop_channels(input, p, training, inplace, 2 if input.ndim == 5 else 1)


def _drop_channels(input: Tensor, p: float, training: bool, inplace: bool, kept: int) -> Tensor:
    _check(p)
    if not training or p == 0.0:
        return input
    shape = (*input.shape[:kept], *([1] * (input.ndim - kept)))
    dropped = input * dropout(gt.ones(shape, dtype=input.dtype), p)
    return input.copy_(dropped) if inplace else dropped


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """In training, set elements to selu's floor by probability `p`; mean and variance are kept.

    Raises:
        ValueError: A `p` outside of [0, 1].
    """
    return _drop_to_floor(input, p, training, inplace, gt.ones_like(input).detach())


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """In training, set whole channels of [batch, channels, ...] to selu's floor by probability `p`.

    Raises:
        ValueError: A `p` outside of [0, 1].
    """
    shape = (*input.shape[:2], *([1] * (input.ndim - 2)))
    return _drop_to_floor(input, p, training, inplace, gt.ones(shape, dtype=input.dtype))


def _drop_to_floor(input: Tensor, p: float, training: bool, inplace: bool, ones: Tensor) -> Tensor:
    """`ones` has one element for each group of elements that is dropped together."""
    _check(p)
    if not training or p == 0.0 or not input.numel():
        return input
    if p == 1.0:
        dropped = input * 0.0
    else:
        keep_mask = (dropout(ones, p) != 0).to(input.dtype)
        scale = 1.0 / math.sqrt((_SELU_FLOOR**2 * p + 1) * (1 - p))
        shift = _SELU_FLOOR * scale
        dropped = input * (keep_mask * scale) + ((keep_mask - 1) * shift + shift * p)
    return input.copy_(dropped) if inplace else dropped


def _check(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
