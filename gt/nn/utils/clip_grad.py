"""Gradient clipping; nothing here reads a value by default, so training does not wait."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable

import gt
from gt._core import Tensor


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients in place so that their common norm is at most `max_norm`.

    Returns the former norm.

    Args:
        parameters: Parameters whose gradients are scaled.
        max_norm: The bound.
        norm_type: The p of the norm; infinity for the largest element.
        error_if_nonfinite: Whether to read the norm, and to raise if it is not finite.
        foreach: Accepted and ignored.
    """
    del foreach
    grads = _gradients(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    _scale(grads, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Older name of clip_grad_norm_, with a warning."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of "
        "`torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale all gradients in place as clip_grad_norm_ does, by a known norm.

    Args:
        parameters: Parameters whose gradients are scaled.
        max_norm: The bound.
        total_norm: Norm of the gradients, as from `get_total_norm`.
        foreach: Accepted and ignored.
    """
    del foreach
    _scale(_gradients(parameters), max_norm, total_norm)


def _scale(grads: list[Tensor], max_norm: float, total_norm: Tensor) -> None:
    with gt.no_grad():
        factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
        for grad in grads:
            grad.mul_(factor)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit every element of every gradient to [-clip_value, clip_value], in place."""
    del foreach
    with gt.no_grad():
        for grad in _gradients(parameters):
            grad.copy_(grad.clamp(-clip_value, clip_value))


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors as one vector.

    Cut tensors take one reduction: their sums of powers stay partial until they are added up.
    """
    del foreach
    norm_type = float(norm_type)  # "inf" is accepted, too
    listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not listed:
        return gt.tensor(0.0)
    with gt.no_grad():
        total = _total_norm([tensor.detach() for tensor in listed], norm_type)
    if error_if_nonfinite and not total.isfinite().item():
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped. To disable this error and scale the gradients by the "
            "non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [param.grad for param in listed if param.grad is not None]


def _total_norm(tensors: list[Tensor], norm_type: float) -> Tensor:
    if norm_type == 0.0 or math.isinf(norm_type):  # the norm of the tensors' norms
        return gt.stack([tensor.norm(norm_type) for tensor in tensors]).norm(norm_type)
    total = gt.stack([_power_sum(tensor, norm_type) for tensor in tensors]).sum()
    total = total.sqrt() if norm_type == 2.0 else total ** (1.0 / norm_type)
    return total.to(functools.reduce(gt.promote_types, (tensor.dtype for tensor in tensors)))


def _power_sum(tensor: Tensor, power: float) -> Tensor:
    """The sum of the elements' powers; in float32 for half precision, as in PyTorch."""
    if tensor.dtype in (gt.float16, gt.bfloat16):
        tensor = tensor.float()
    return (tensor * tensor if power == 2.0 else tensor.abs() ** power).sum()
