"""Attention of the native backend, which never holds the matrix of all scores: gt._kernels'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gt import _kernels
from gt.worker import native_threads
from gt.worker.kernel_sizes import QUERIES_MIN
from gt.worker.native_values import FLOAT32
from gt.worker.reference_values import Array

Named = dict[str, Any]

TENSORS = ("query", "key", "value")


def sizes(named: Named) -> list[tuple[int, ...]]:
    """Of the output and of each query's logarithm of the sum of exp, from sizes of the tensors.

    Raises:
        NotImplementedError: it is for plain operators: dropout, and few queries, whose matrix is
            small and whose gradient they have more exactly.
    """
    if named["seeds"] is not None or named["query"][2] < QUERIES_MIN:
        raise NotImplementedError(
            "aten::attention: dropout and few queries are for plain operators"
        )
    rows = tuple(named["query"][:3])
    return [(*rows, named["value"][-1]), rows]


def compute(named: Named) -> tuple[Array, ...]:
    """The output [b, h, t, v] and the sums' logarithms [b, h, t]."""
    query, key, value = (named[word] for word in TENSORS)
    output = np.empty((*query.shape[:3], value.shape[-1]), FLOAT32)
    logsumexp = np.empty(query.shape[:3], FLOAT32)
    mask, is_causal, scale, threads = _options(named)
    _kernels.attention(
        output, logsumexp, query, key, value, mask, None, is_causal, 0.0, scale, threads
    )
    return output, logsumexp


def gradients(
    named: Named, grad: Array, saved: Sequence[Array], _wanted: Sequence[str]
) -> Mapping[str, Array]:
    """Of query, key and value; `saved` is what `compute` gave."""
    query, key, value = (named[word] for word in TENSORS)
    mask, is_causal, scale, threads = _options(named)
    made = {word: np.empty(named[word].shape, FLOAT32) for word in TENSORS}
    # Strided where a worker takes its part of what several have whole.
    output, logsumexp = map(np.ascontiguousarray, saved)
    _kernels.attention_backward(
        made["query"], made["key"], made["value"], grad, output, logsumexp, query, key, value, mask,
        None, is_causal, 0.0, scale, threads,
    )  # fmt: skip
    return made


def _options(named: Named) -> tuple[Array | None, bool, float, int]:
    """The mask over all scores, is_causal, scale, threads."""
    mask = named["attn_mask"]
    if mask is not None:
        scores = (*named["query"].shape[:3], named["key"].shape[2])
        whole = np.broadcast_to(mask, scores)
        # A view that may be written, as kernels ask for; they only read it.
        mask = as_strided(mask, scores, whole.strides)
    return mask, named["is_causal"], named["scale"], native_threads.count()
