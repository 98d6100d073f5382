"""Losses over sequences and for a layer's logits: CTC, and a linear layer with its
cross entropy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import gt
from gt import _core
from gt._core import Tensor
from gt.amp.casting import entry
from gt.errors import ShapeError
from gt.nn.functional.class_loss import cross_entropy
from gt.nn.functional.layer import linear
from gt.nn.functional.margin import REDUCTION_NUMBERS
from gt.nn.functional.reduction import checked_reduction
from gt.tensors.aten.call import call

Lengths = Tensor | Sequence[int]


@dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """Options of PyTorch's linear_cross_entropy in chunks of the batch.

    GT accepts it and computes the whole batch at once: values and gradients are equal up to
    rounding, and memory is not saved.

    Args:
        allow_retain_graph: Whether backward may run twice; here it always may.
        batch_chunk_size: Number of rows in a chunk.
        chunking_method: "auto", "aspect_ratio", "aspect_ratio:N" or None.
        acc_policy: "accurate", "compact" or "auto".
        acc_dtype: Dtype of sums.

    Raises:
        ValueError: An unknown method or policy, or a size that is not positive.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: gt.dtype | None = None

    def __post_init__(self) -> None:
        policies = ("accurate", "compact", "auto")
        if self.acc_policy not in policies:
            raise ValueError(
                f"invalid acc_policy: {self.acc_policy!r}; expected one of "
                f"{', '.join(map(repr, policies))}"
            )
        name, separator, factor = (self.chunking_method or "aspect_ratio").partition(":")
        positive = not separator or (factor.isdigit() and int(factor) > 0)
        if self.chunking_method != "auto" and not (name == "aspect_ratio" and positive):
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and size <= 0:
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log likelihood of targets under all alignments (CTC).

    Args:
        log_probs: [t, batch, classes] or [t, classes], logarithms of probabilities.
        targets: [batch, s], or all targets one after the other.
        input_lengths: [batch], a tensor or integers, each at most t.
        target_lengths: [batch], a tensor or integers.
        blank: The class that stands for no symbol.
        reduction: "mean" (each loss divided by its target's length first), "sum" or "none".
        zero_infinity: Whether infinite losses and their gradients are 0.
    """
    number = REDUCTION_NUMBERS[checked_reduction(reduction)]
    arguments = (log_probs, targets, input_lengths, target_lengths, blank, number, zero_infinity)
    loss: Tensor = call("ctc_loss", arguments, {})
    return loss


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """cross_entropy of linear(input, linear_weight, linear_bias).

    Args:
        input: [in] or [batch, in].
        linear_weight: [classes, ..., in].
        target: Classes, [batch, ...], or their probabilities, [batch, classes, ...].
        linear_bias: [classes, ...].
        weight: [classes].
        reduction: "mean", "sum" or "none".
        ignore_index: A class that is not counted; -100 if not given.
        label_smoothing: Fraction of the even distribution in the target.
        options: PyTorch's chunks, which affect memory but no result.

    Raises:
        ShapeError: Shapes that do not match, or an ignore_index with probabilities.
    """
    dtype = input.dtype
    operands = [x for x in (input, linear_weight, target, linear_bias, weight) if x is not None]
    if options is not None and dtype in (gt.float16, gt.bfloat16):  # chunks are added in float32
        input, linear_weight = input.float(), linear_weight.float()
        linear_bias = None if linear_bias is None else linear_bias.float()
        weight = None if weight is None else weight.float()
        target = target.float() if target.is_floating_point() else target
    _check_linear(input, linear_weight, linear_bias)
    classes, *inner, width = linear_weight.shape
    shape = (*input.shape[:-1], classes, *inner)
    is_likely = tuple(target.shape) == shape
    if is_likely and ignore_index is not None:
        raise ShapeError("ignore_index cannot be specified when target contains probabilities")
    is_chunked = not inner and not label_smoothing and _is_fixed(target, dtype, likely=is_likely)
    if options is not None and is_chunked:
        # PyTorch's chunks save only the operands below: copies share their values.
        input, linear_weight, target = input.clone(), linear_weight.clone(), target.clone()
        linear_bias = None if linear_bias is None else linear_bias.clone()
        weight = None if weight is None else weight.clone()
    if inner:
        rows = math.prod(inner, start=classes)
        linear_weight = linear_weight.reshape((rows, width))
        linear_bias = None if linear_bias is None else linear_bias.reshape((rows,))
    logits = linear(input, linear_weight, linear_bias).reshape(shape)
    loss = _cross_entropy(
        logits,
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    if options is None:
        return loss
    loss = loss.to(dtype)
    if is_chunked and reduction == "none" and loss.requires_grad and gt.is_grad_enabled():
        _core.keep(loss, *operands)  # its gradients are computed in the backward pass
    return loss


def _is_fixed(target: Tensor, dtype: gt.dtype, *, likely: bool) -> bool:
    """True if PyTorch's chunks take the target: classes, or probabilities without a gradient."""
    if target.dtype == gt.int64:
        return True
    return likely and target.dtype == dtype and not (target.requires_grad and gt.is_grad_enabled())


# Entered by its name in PyTorch, so that an open autocast treats it as that operator.
_cross_entropy = entry("cross_entropy", cross_entropy)


def _check_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if not 1 <= input.ndim <= 2:
        raise ShapeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if weight.ndim < 2:
        raise ShapeError(
            f"expected linear_weight with dimensionality at least 2, got {weight.ndim}"
        )
    if input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {weight.shape[-1]}, respectively"
        )
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:-1]):
        raise ShapeError(
            f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}"
        )
    if weight.ndim > 2 and input.ndim == 1:
        raise ShapeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires"
            f" batched input, (N, {input.shape[-1]}), got unbatched"
            f" input with shape {tuple(input.shape)}"
        )
