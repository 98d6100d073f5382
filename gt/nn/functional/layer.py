"""Layers as functions: linear, embedding, normalization over groups, dropout, padding."""

from __future__ import annotations

from collections.abc import Sequence

import gt
from gt import _core
from gt._core import Tensor
from gt.amp.casting import entry
from gt.composite.arrangements import RANK_MAX
from gt.errors import NotSupported, ShapeError
from gt.tensors.kept import keeps


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
        max_norm: Norm to which longer rows among those used are first scaled down, in place.
        norm_type: The p of that norm.
        scale_grad_by_freq: Divide each row's gradient by the row's count in `input`.
        sparse: Accepted: gradients are dense.
    """
    del sparse
    if weight.ndim != 2:
        raise ShapeError("'weight' must be 2-D")
    if max_norm is not None:
        _limit_rows(weight, input, max_norm, norm_type)
    rows = _core.call(
        "embedding", weight, input, padding_idx=row_index(padding_idx, weight.shape[0])
    )
    return _scaled_by_count(rows, input, weight.shape[0]) if scale_grad_by_freq else rows


def _scaled_by_count(rows: Tensor, input: Tensor, count: int) -> Tensor:
    """`rows` unchanged, with gradients divided by the count of their index in `input`."""
    if not rows.requires_grad:
        return rows
    index = input.reshape(-1)
    times = gt.zeros(count, dtype=rows.dtype).scatter_add(
        0, index.long(), gt.ones(index.shape[0], dtype=rows.dtype)
    )
    share = rows / times[input].unsqueeze(-1)  # [..., width]
    # Zero with a gradient, which non-finite values do not have.
    nothing = share - share.detach()
    return rows.detach() + nothing.masked_fill(nothing != 0, 0.0)


def row_index(padding_idx: int | None, rows: int) -> int | None:
    """`padding_idx` counted from the start.

    Raises:
        AssertionError: The index is out of range.
    """
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


def _limit_rows(weight: Tensor, input: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale rows that `input` names down to `max_norm`, in place; the others do not change."""
    rows = weight.shape[0]
    with gt.no_grad():
        # An index out of range fails in the look-up, and must not fail the weight too.
        index = input.reshape(-1).long().clamp(0, rows - 1)
        used = gt.zeros(rows, dtype=gt.bool).index_fill(0, index, True).unsqueeze(1)
        lengths = gt.linalg.vector_norm(weight, norm_type, dim=1, keepdim=True)
        scales = max_norm / (lengths + 1e-7)
        weight.mul_(gt.where(used & (lengths > max_norm), scales, 1.0))


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


# Limit of indices that the program lists; longer lists are made on a worker.
LISTED_MAX = 2**16


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Padding: pairs (before, after) from the last dimension backwards; negative ones crop.

    Args:
        input: Any shape; modes other than "constant" need one or two dimensions that are not
            padded.
        pad: The pairs.
        mode: "constant", "reflect", "replicate" or "circular".
        value: Value of constant padding; 0 if not given.
    """
    if mode in _PADDED_INDICES:
        if value:
            raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
        padded = _PADS.get((mode, len(pad) // 2), _pad_by_index)
        return padded(input, pad, mode)
    if mode != "constant":
        raise NotSupported(f"Unrecognised padding mode {mode}")
    return _pad_with(input, tuple(pad), 0.0 if value is None else float(value))


def _pad_with(input: Tensor, pad: Sequence[int], value: float) -> Tensor:
    """Constant padding, in several instructions if `pad` has more numbers than an instruction
    takes.
    """
    if len(pad) <= RANK_MAX or len(pad) % 2 or len(pad) > 2 * input.ndim:
        return _core.call("pad", input, pad=pad, value=value)
    last = RANK_MAX // 2  # these dimensions become one below
    inner: Tensor = _core.call("pad", input, pad=pad[:RANK_MAX], value=value)
    outer = _pad_with(inner.flatten(-last), (0, 0, *pad[RANK_MAX:]), value)
    return outer.reshape(outer.shape[:-1] + inner.shape[-last:])


def _pad_by_index(input: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    """Indexes each padded dimension by the places from which its elements are copied."""
    count = len(pad) // 2
    if len(pad) % 2 or not 1 <= count <= 3 or input.ndim not in (count + 1, count + 2):
        raise NotSupported(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now"
        )
    for place in range(count):
        before, after = pad[2 * place], pad[2 * place + 1]
        dim = input.ndim - 1 - place
        places = _PADDED_INDICES[mode](input.shape[dim], before, after)
        index = places if isinstance(places, Tensor) else gt.tensor(places, dtype=gt.int64)
        input = input.index_select(dim, index)
    return input


def _reflected(size: int, before: int, after: int) -> list[int]:
    """Indices mirrored at the outermost elements."""
    if before >= size or after >= size:
        raise ShapeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, but "
            f"got: padding ({before}, {after}) at dimension of size {size}"
        )
    last = size - 1
    return [last - abs(last - abs(place)) for place in range(-before, size + after)]


def _replicated(size: int, before: int, after: int) -> list[int] | Tensor:
    """Indices that repeat the outermost elements; a long list is made on a worker."""
    if before + after > LISTED_MAX:
        count = before + size + after
        if count >= 2**60:  # byte counts have 64 bits
            raise ShapeError(f"Storage size calculation overflowed with sizes=[{count}]")
        return gt.arange(-before, size + after).clamp(0, size - 1)
    return [min(max(place, 0), size - 1) for place in range(-before, size + after)]


def _wrapped(size: int, before: int, after: int) -> list[int]:
    """Indices that continue from the other end, after a negative pad has cropped."""
    if before > size or after > size:
        raise ShapeError("Padding value causes wrapping around more than once.")
    inner = list(range(size))[max(0, -before) : size - max(0, -after)]
    return [
        inner[place % len(inner)] for place in range(-max(before, 0), len(inner) + max(after, 0))
    ]


_PADDED_INDICES = {"reflect": _reflected, "replicate": _replicated, "circular": _wrapped}


# Entered by their names in PyTorch, so that an open autocast treats them as its operators.
_PADS = {
    (mode, dims): entry(f"{operator}_pad{dims}d", keeps(input="input")(_pad_by_index))
    for mode, operator in (("reflect", "reflection"), ("replicate", "replication"))
    for dims in (1, 2, 3)
}
