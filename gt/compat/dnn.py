"""Distributed layers under the name of TensorParallelismBeta; they are those of gt.nn."""

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
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
