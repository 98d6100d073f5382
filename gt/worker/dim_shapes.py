"""Dimensions that stand beside each other, as kernels along one dimension take them."""

from __future__ import annotations

import dataclasses
import functools
import math

Dims = tuple[int, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Reduced:
    """The result's shape, how many numbers are reduced to one, and how many stand behind them."""

    shape: tuple[int, ...]
    count: int
    inner: int


@functools.lru_cache(maxsize=1024)
def reduced(shape: tuple[int, ...], dim: Dims, keepdim: bool) -> Reduced | None:
    """What a reduction over some dimensions is, or over all (None).

    None where the array has no elements or no dimensions, where some are not its own or stand
    twice, or are not beside each other.
    """
    rank = len(shape)
    given = range(rank) if dim is None else dim
    if 0 in shape or not given or not all(-rank <= one < rank for one in given):
        return None
    dims = sorted(one % rank for one in given)
    if dims != list(range(dims[0], dims[-1] + 1)):
        return None
    kept = [1 if at in dims else size for at, size in enumerate(shape) if keepdim or at not in dims]
    first, last = dims[0], dims[-1] + 1
    return Reduced(tuple(kept), math.prod(shape[first:last]), math.prod(shape[last:]))
