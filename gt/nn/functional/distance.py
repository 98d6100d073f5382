"""Norms of vectors, and angles between them."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.amp.casting import entry
from gt.composite.casts import TENSOR_CLASSES
from gt.composite.common import numpy_names
from gt.tensors.kept import keeps


@numpy_names
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along `dim`; norms below `eps` count as `eps`."""
    dtype = gt.promote_types(x1.dtype, x2.dtype) if x1.ndim == x2.ndim else gt.result_type(x1, x2)
    if not dtype.is_floating_point:
        kind = TENSOR_CLASSES[repr(dtype)].removesuffix("Tensor")
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {kind}"
        )
    x1, x2 = gt.broadcast_tensors(x1.to(dtype), x2.to(dtype))
    products = x1 / _length_from(x1, dim, eps) * (x2 / _length_from(x2, dim, eps))
    return products.sum(dim=dim)


def _length_from(x: Tensor, dim: int, eps: float) -> Tensor:
    """The norm along `dim`, at least `eps`; the gradient below `eps` is still the norm's."""
    length = x.norm(2.0, dim, keepdim=True)
    raised = length.detach().clamp(min=eps)
    return length + (raised - length.detach())


@numpy_names
@keeps(x1="out", x2="out")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return _norm(x1 - x2 + float(eps), p, -1, keepdim=keepdim)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """input divided by its p-norm along `dim`, or by `eps` where that is larger."""
    return input / _norm(input, p, dim, keepdim=True).clamp(min=eps)


def _length(input: Tensor, p: float, dim: int, *, keepdim: bool) -> Tensor:
    return input.norm(p, dim, keepdim=keepdim)


_norm = entry("norm", _length)
