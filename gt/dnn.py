"""Distributed layers under TensorParallelismBeta's name for them; they are those of gt.nn."""

from gt.nn.parallel import (
    ColumnLinear,
    DColumnLinear,
    DRowLinear,
    RowLinear,
    VocabParallelEmbedding,
    parallel_cross_entropy,
)

__all__ = [
    "ColumnLinear",
    "DColumnLinear",
    "DRowLinear",
    "RowLinear",
    "VocabParallelEmbedding",
    "parallel_cross_entropy",
]


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
