"""Attention with dropped weights in PyTorch's operators, some rows of the scores at a time.

It serves operands that GT's kernel refuses: other dtypes than float32, a GPU, gradients of
gradients. The kept weights follow from a seed for each query (csrc/cpu/attention/kept.h), so the
gradient draws them again, and a shard draws those of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from gt.worker.pytorch import own_kernels

# Number of scores held at a time: 8 MB of float32 on a CPU, enough to keep a GPU busy.
_SCORES_MAX = 1 << 21
_SCORES_MAX_CUDA = 1 << 26
# Philox 4x32-10, as in csrc/algo/philox.h.
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


class How(NamedTuple):
    """Options of attention beside its three operands."""

    mask: Tensor | None  # broadcasts to [b, h, t, s]
    seeds: Tensor  # [b, h, t]
    is_causal: bool
    dropout_p: float
    scale: float


class _Rows(NamedTuple):
    """Queries [begin, end), none of which sees a key from `keys` on."""

    begin: int
    end: int
    keys: int


def attention(query: Tensor, key: Tensor, value: Tensor, how: How) -> tuple[Tensor, Tensor]:
    """Output [b, h, t, v], and the scores' logarithm of the sum of exp [b, h, t] (no gradient).

    Args:
        query: [b, h, t, k].
        key: [b, h, s, k].
        value: [b, h, s, v].
        how: The options.
    """
    wide = _wide(query.dtype)
    outputs, sums = [], []
    for rows in _blocks(query, key, how):
        scores = _scores(query, key, how, rows, wide)
        total = scores.logsumexp(-1)
        weights = _exp(scores, total) * _factors(how, rows, wide)
        outputs.append(weights @ value[:, :, : rows.keys].to(wide))
        sums.append(total.detach())
    return torch.cat(outputs, -2).to(query.dtype), torch.cat(sums, -1)


def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    how: How,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value; csrc/cpu/attention/backward.h has the formulas."""
    wide = _wide(query.dtype)
    queries = []
    keys, values = (torch.zeros_like(x, dtype=wide) for x in (key, value))
    for rows in _blocks(query, key, how):
        part = slice(rows.begin, rows.end)
        source = slice(rows.keys)
        scores = _scores(query, key, how, rows, wide)
        weights = _exp(scores, logsumexp[:, :, part].to(wide))
        factors = _factors(how, rows, wide)
        above = grad[:, :, part].to(wide)
        values[:, :, source] += (weights * factors).mT @ above
        dropped = (above @ value[:, :, source].to(wide).mT) * factors
        mean = (above * output[:, :, part].to(wide)).sum(-1, keepdim=True)
        scores_grad = weights * (dropped - mean) * how.scale
        queries.append(scores_grad @ key[:, :, source].to(wide))
        keys[:, :, source] += scores_grad.mT @ query[:, :, part].to(wide)
    return torch.cat(queries, -2).to(query.dtype), keys.to(key.dtype), values.to(value.dtype)


def kept(seeds: Tensor, keys: int, dropout_p: float) -> Tensor:
    """The mask of kept weights: bool [b, h, t, keys]."""
    own = own_kernels.module()
    if own is not None and seeds.is_cpu:
        mask = torch.empty(*seeds.shape, keys, dtype=torch.bool)
        own.attention_kept(mask, seeds, dropout_p)
        return mask
    return words(seeds, keys) >= math.ceil(dropout_p * 2.0**32)


def words(seeds: Tensor, keys: int) -> Tensor:
    """Word k % 4 of Philox's block k / 4 under each seed: [..., keys], of 32 bits in int64."""
    blocks = torch.arange((keys + 3) // 4, device=seeds.device)
    c0 = blocks.expand(*seeds.shape, -1)
    c1, c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0), torch.zeros_like(c0)
    key0, key1 = seeds[..., None] & _WORD, (seeds[..., None] >> 32) & _WORD
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]  # of 64 bits, by wrapping
        c0, c1 = (product1 >> 32 & _WORD) ^ c1 ^ key0, product1 & _WORD
        c2, c3 = (product0 >> 32 & _WORD) ^ c3 ^ key1, product0 & _WORD
        key0, key1 = (key0 + _WEYL[0]) & _WORD, (key1 + _WEYL[1]) & _WORD
    return torch.stack([c0, c1, c2, c3], -1).flatten(-2)[..., :keys]


def _blocks(query: Tensor, key: Tensor, how: How) -> Iterator[_Rows]:
    count, keys = query.shape[2], key.shape[2]
    limit = _SCORES_MAX_CUDA if query.is_cuda else _SCORES_MAX
    step = max(1, limit // max(1, query.shape[0] * query.shape[1] * keys))
    for begin in range(0, count, step):
        end = min(begin + step, count)
        yield _Rows(begin, end, min(keys, end) if how.is_causal else keys)


def _scores(query: Tensor, key: Tensor, how: How, rows: _Rows, wide: torch.dtype) -> Tensor:
    part = slice(rows.begin, rows.end)
    scores = query[:, :, part].to(wide) @ key[:, :, : rows.keys].to(wide).mT * how.scale
    if how.mask is not None:
        mask = how.mask.expand(*query.shape[:3], key.shape[2])
        scores = scores + mask[:, :, part, : rows.keys].to(wide)
    if how.is_causal:
        places = torch.arange(rows.begin, rows.end, device=query.device)
        unseen = places[:, None] < torch.arange(rows.keys, device=query.device)
        scores = scores.masked_fill(unseen, -math.inf)
    return scores


def _exp(scores: Tensor, total: Tensor) -> Tensor:
    """The weights; all 0 for a query that sees nothing."""
    return (scores - total.masked_fill(total == -math.inf, 0.0)[..., None]).exp()


def _factors(how: How, rows: _Rows, wide: torch.dtype) -> Tensor:
    mask = kept(how.seeds[:, :, rows.begin : rows.end], rows.keys, how.dropout_p)
    return mask.to(wide) * (1 / (1 - how.dropout_p))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
