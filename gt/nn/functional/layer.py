"""Layers as functions: linear, embedding, normalisation, dropout, padding."""

from __future__ import annotations

from collections.abc import Sequence

from gt._core import Tensor

import gt
from gt import _core
from gt.errors import NotSupported


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias.

    Args:
        input: [..., in].
        weight: [out, in], or [in].
        bias: [out].
    """
    return _core.call("linear", input, weight, bias)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` that `input` names.

    Args:
        input: Indices, any shape.
        weight: [rows, width].
        padding_idx: A row that receives no gradient; negative counts from the end.
        max_norm: Rows that are used and longer than this are first shortened to it, in place.
        norm_type: The p of that length.
        scale_grad_by_freq: Not supported.
        sparse: Accepted: gradients are dense.
    """
    del sparse
    if scale_grad_by_freq:
        raise NotSupported("embedding: scale_grad_by_freq is not supported")
    if max_norm is not None:
        _limit_rows(weight, max_norm, norm_type)
    return _core.call(
        "embedding", weight, input, padding_idx=row_index(padding_idx, weight.shape[0])
    )


def row_index(padding_idx: int | None, rows: int) -> int | None:
    """`padding_idx` counted from the start.

    Raises:
        AssertionError: Outside of the rows.
    """
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


def _limit_rows(weight: Tensor, max_norm: float, norm_type: float) -> None:
    with gt.no_grad():
        lengths = (weight.abs() ** norm_type).sum(dim=1, keepdim=True) ** (1 / norm_type)
        weight.mul_((max_norm / (lengths + 1e-7)).clamp(max=1.0))


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(input - mean) / sqrt(variance + eps) * weight + bias over the last dimensions."""
    shape = tuple(normalized_shape)
    output, _, _ = _core.call("layer_norm", input, weight, bias, normalized_shape=shape, eps=eps)
    return output


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """input / sqrt(mean(input ** 2) + eps) * weight over the last dimensions.

    Without `eps` it is the dtype's smallest step at 1.
    """
    dims = tuple(range(-len(normalized_shape), 0))
    wide = input.float() if input.dtype in (gt.float16, gt.bfloat16) else input
    smallest = gt.finfo(wide.dtype).eps if eps is None else eps
    scaled = wide * ((wide * wide).mean(dim=dims, keepdim=True) + smallest).rsqrt()
    if weight is not None:
        scaled = scaled * weight
    return scaled.to(input.dtype)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zero each element with probability `p` and scale the rest by 1 / (1 - p)."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        dropped = input * 0.0
    else:
        seed, draw = _core.next_draw()
        dropped, _ = _core.call("dropout", input, p=p, seed=seed, draw=draw)
    return input.copy_(dropped) if inplace else dropped


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Constant padding: pairs (before, after) from the last dimension backwards; negative cuts."""
    if mode != "constant":
        raise NotSupported(f"pad: mode {mode!r} is not supported, only 'constant'")
    return _core.call("pad", input, pad=tuple(pad), value=0.0 if value is None else float(value))


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """[...] indices -> [..., num_classes] of zeros with a one; -1 reads the largest index first."""
    classes = num_classes if num_classes >= 0 else int(tensor.max().item()) + 1
    return (tensor.unsqueeze(-1) == gt.arange(classes)).to(gt.int64)
