"""Lengths of and angles between vectors."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.casting import entry
from gt.composite.common import numpy_names


@numpy_names
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along `dim`; lengths below `eps` count as `eps`."""
    x1, x2 = gt.broadcast_tensors(x1, x2)
    first = (x1 * x1).sum(dim=dim, keepdim=True).sqrt().clamp(min=eps)
    second = (x2 * x2).sum(dim=dim, keepdim=True).sqrt().clamp(min=eps)
    return ((x1 / first) * (x2 / second)).sum(dim=dim)


@numpy_names
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return _norm(x1 - x2 + eps, p, -1, keepdim=keepdim)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """input divided by its p-norm along `dim`, or by `eps` where that is larger."""
    return input / _norm(input, p, dim, keepdim=True).clamp(min=eps)


def _length(input: Tensor, p: float, dim: int, *, keepdim: bool) -> Tensor:
    if input.dtype in (gt.float16, gt.bfloat16):  # powers of theirs soon overflow
        return _length(input.float(), p, dim, keepdim=keepdim).to(input.dtype)
    if input.is_complex():
        return input.norm(p, dim, keepdim=keepdim)
    if p == 2.0:
        return (input * input).sum(dim=dim, keepdim=keepdim).sqrt()
    if p == 1.0:
        return input.abs().sum(dim=dim, keepdim=keepdim)
    if p == 0.0:
        return (input != 0).sum(dim=dim, keepdim=keepdim).to(input.dtype)
    if p == float("inf"):
        return input.abs().amax(dim=dim, keepdim=keepdim)
    return (input.abs() ** p).sum(dim=dim, keepdim=keepdim) ** (1.0 / p)


_norm = entry("norm", _length)
