"""Writes by index that combine new elements with those already there.

For arguments that PyTorch refuses, its own operator is called, for its error.
"""

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import Method, generic
from gt.errors import ShapeError

REDUCES = ("sum", "prod", "mean", "amax", "amin")


def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`self` with elements of `src` combined along `dim` at `index`.

    Args:
        dim: the dimension.
        index: integers, with the shape of the part of `src` that is read.
        src: a tensor in the dtype of `self`.
        reduce: sum, prod, mean, amax or amin.
        include_self: True combines with the elements of `self`, too.
    """
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in REDUCES:
        raise ShapeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        )
    return call(
        "scatter_reduce", self, index, src, dim=dim, reduce=reduce, include_self=include_self
    )


def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`self` with slices of `source` combined along `dim`, by prod, mean, amax or amin.

    Args:
        dim: the dimension.
        index: a vector: the target of each slice.
        source: a tensor in the dtype of `self`.
        reduce: the combination: prod, mean, amax or amin.
        include_self: True combines with the elements of `self`, too.
    """
    if reduce not in REDUCES[1:]:
        raise ShapeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    if not _is_fitting(self, dim, index, source):
        return generic("index_reduce", self, dim, index, source, reduce, include_self=include_self)
    place = dim % self.ndim
    column = index.reshape(tuple(-1 if at == place else 1 for at in range(self.ndim)))
    return scatter_reduce(
        self, place, column.expand(source.shape), source, reduce, include_self=include_self
    )


def _is_fitting(self: Tensor, dim: int, index: Tensor, source: Tensor) -> bool:
    rank = self.ndim
    if not rank or source.ndim != rank or not -rank <= dim < rank or index.ndim != 1:
        return False
    slices = list(self.shape)
    slices[dim] = index.shape[0]
    is_index = index.dtype in {_core.int32, _core.int64}
    return is_index and self.dtype == source.dtype and tuple(slices) == tuple(source.shape)


METHODS: dict[str, Method] = {"scatter_reduce": scatter_reduce, "index_reduce": index_reduce}
