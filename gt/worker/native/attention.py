"""Attention of the native backend, which never holds the matrix of all scores: gt._kernels'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gt.worker.native import entry
from gt.worker.reference.values import Array

Named = dict[str, Any]

TENSORS = ("query", "key", "value")
# Queries at least: for fewer, plain operators have the gradient more exactly, and their matrix is
# small.
_QUERIES_MIN = 8


def sizes(named: Named) -> list[tuple[int, ...]]:
    """Sizes of the output and of each query's logarithm of the sum of exp, from the tensors' sizes.

    Raises:
        NotImplementedError: it is for plain operators: dropout, and few queries, whose matrix is
            small and whose gradient they have more exactly.
    """
    if named["seeds"] is not None or named["query"][2] < _QUERIES_MIN:
        raise NotImplementedError(
            "aten::attention: dropout and few queries are for plain operators"
        )
    rows = tuple(named["query"][:3])
    return [(*rows, named["value"][-1]), rows]


def compute(named: Named) -> tuple[Array, ...]:
    """The output [b, h, t, v] and the sums' logarithms [b, h, t]."""
    operands = [named[word] for word in TENSORS]
    return _whole(entry.run("attention", *operands, *_options(named), takes_all=True))


def gradients(
    named: Named, grad: Array, saved: Sequence[Array], _wanted: Sequence[str]
) -> Mapping[str, Array]:
    """Gradients of query, key and value; `saved` is what `compute` gave."""
    operands = [named[word] for word in TENSORS]
    results = entry.run(
        "attention_backward", grad, *operands, *saved, *_options(named), takes_all=True
    )
    return dict(zip(TENSORS, _whole(results), strict=True))


def _options(named: Named) -> tuple[object, ...]:
    """The mask, seeds, is_causal, dropout_p, scale."""
    return named["attn_mask"], None, named["is_causal"], 0.0, named["scale"]


def _whole(made: tuple[Array, ...] | None) -> tuple[Array, ...]:
    if made is None:
        raise ValueError("aten::attention: the operands' sizes do not fit each other")
    return made
