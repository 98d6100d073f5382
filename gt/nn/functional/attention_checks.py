"""Arguments that attention refuses, with PyTorch's errors; nothing is computed here."""

from __future__ import annotations

from typing import TypeAlias

import gt
from gt import _core
from gt._core import Tensor
from gt.tensors.size import Size

Masks: TypeAlias = tuple[Tensor | None, Tensor | None]

# Names of dtypes in PyTorch's texts, which are C++'s.
_NAMES = {
    gt.float16: "c10::Half", gt.bfloat16: "c10::BFloat16", gt.float32: "float",
    gt.float64: "double", gt.complex64: "c10::complex<float>",
    gt.complex128: "c10::complex<double>", gt.bool: "bool", gt.uint8: "unsigned char",
    gt.int8: "signed char", gt.int16: "short int", gt.int32: "int", gt.int64: "long int",
}  # fmt: skip


def check_dtypes(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> None:
    """Raise PyTorch's errors for dtypes that attention does not combine.

    Raises:
        RuntimeError: A key or value with another dtype than the query, outside of an autocast; a
            mask that is not bool, float32 or of the query's dtype.
    """
    names = [_NAMES[x.dtype] for x in (query, key, value)]
    if len({*names}) > 1 and _core.autocast_region() is None:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{names[0]} key.dtype: {names[1]} and value.dtype: {names[2]} instead."
        )
    if attn_mask is not None and attn_mask.dtype not in (gt.bool, gt.float32, query.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {_NAMES[attn_mask.dtype]} and  query.dtype: {names[0]} instead."
        )


def check_heads(
    operands: list[Tensor],
    masks: Masks,
    embed_dim: int,
    num_heads: int,
    *,
    is_causal: bool,
    is_separate: bool,
    batch_first: bool = False,
) -> None:
    """Raise PyTorch's errors for operands and masks that do not match.

    Args:
        operands: query [t, b, d] or [t, d]; key and value with s for t.
        masks: attn_mask and key_padding_mask.
        embed_dim: The d of the weights.
        num_heads: Number of heads.
        is_causal: The hint, which requires an attn_mask.
        is_separate: Whether keys and values may have widths of their own.
        batch_first: Batched operands are [b, t, d].

    Raises:
        AssertionError: Wrong operands, or wrong dtypes or dimensions of masks.
        RuntimeError: is_causal without attn_mask, an attn_mask of another shape, or keys of
            another batch.
    """
    attn_mask, padding = masks
    _check_dimensions([x.ndim for x in operands], masks)
    _check_dtype(padding, "key_padding_mask")
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    _check_dtype(attn_mask, "attn_mask")
    query, key, value = (_time_first(x, batch_first=batch_first) for x in operands)
    if query[2] != embed_dim:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim}, but got {query[2]}"
        )
    if embed_dim % num_heads:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if is_separate and key[:2] != value[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {key[:2]} do not match value's {value[:2]}"
        )
    if not is_separate and key != value:
        raise AssertionError(f"key shape {key} does not match value shape {value}")
    lengths = (query[0], key[0])
    if key[1] != query[1]:
        size, width = key[0] * key[1] * embed_dim, embed_dim // num_heads
        raise RuntimeError(
            f"shape '[{key[0]}, {query[1] * num_heads}, {width}]' is invalid for input of size "
            f"{size}"
        )
    if attn_mask is not None:
        _check_attn_mask(attn_mask, lengths, query[1] * num_heads)
    if padding is not None:
        _check_padding(padding, (query[1], key[0]))


def _check_dimensions(ranks: list[int], masks: Masks) -> None:
    rank, *others = ranks
    if rank not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor"
        )
    kind = "batched (3-D)" if rank == 3 else "unbatched (2-D)"
    if any(other != rank for other in others):
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {rank}-D but found "
            f"{others[0]}-D and {others[1]}-D tensors respectively"
        )
    attn_mask, padding = masks
    if padding is not None and padding.ndim != rank - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {rank - 1}-D but "
            f"found {padding.ndim}-D tensor instead"
        )
    if attn_mask is not None and attn_mask.ndim not in (2, 3):
        raise AssertionError(
            f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
            f"{attn_mask.ndim}-D tensor instead"
        )


def _check_dtype(mask: Tensor | None, name: str) -> None:
    if mask is not None and mask.dtype != gt.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")


def _check_attn_mask(attn_mask: Tensor, lengths: tuple[int, int], count: int) -> None:
    """Checks a mask [t, s] or [b * heads, t, s]."""
    wanted = lengths if attn_mask.ndim == 2 else (count, *lengths)
    if attn_mask.shape != wanted:
        raise RuntimeError(
            f"The shape of the {attn_mask.ndim}D attn_mask is {attn_mask.shape}, but should be "
            f"{wanted}."
        )


def _check_padding(padding: Tensor, wanted: tuple[int, int]) -> None:
    """Checks a mask [b, s], or [s] for one batch."""
    shape = padding.shape if padding.ndim == 2 else (1, *padding.shape)
    for dim, size in enumerate(wanted):
        if shape[dim] != size:
            raise AssertionError(
                f"Expected key_padded_mask.shape[{dim}] to be {size}, but got {shape[dim]}"
            )


def _time_first(operand: Tensor, *, batch_first: bool) -> Size:
    """The shape in the form [t, b, d]."""
    shape = operand.shape
    if len(shape) == 2:
        return Size((shape[0], 1, shape[1]))
    return Size((shape[1], shape[0], shape[2])) if batch_first else shape
