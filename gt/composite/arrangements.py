"""Reordered elements, and matrices that are composed of a tensor's elements.

For arguments that PyTorch refuses, its own operator is called, for its error.
"""

import itertools
from collections.abc import Sequence

from gt._core import Tensor, call
from gt.composite.common import Method, generic, integer, not_a_tensor, wrap

# Limit of a tensor's dimensions.
RANK_MAX = 8


def fliplr(self: Tensor) -> Tensor:
    """The columns (dimension 1) in reversed order."""
    return call("flip", self, dims=(1,)) if self.ndim > 1 else generic("fliplr", self)


def flipud(self: Tensor) -> Tensor:
    """The rows (dimension 0) in reversed order."""
    return call("flip", self, dims=(0,)) if self.ndim else generic("flipud", self)


def rot90(self: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotated by `k` quarter turns, from the first of `dims` to the second one."""
    k = integer(k, "k")
    inside = [dim for dim in dims if -self.ndim <= dim < self.ndim]
    if len(dims) != 2 or len({dim % self.ndim for dim in inside}) != 2:
        return generic("rot90", self, k, list(dims))
    first, second = (wrap(dim, self.ndim) for dim in dims)
    if k % 4 == 2:
        return call("flip", self, dims=(first, second))
    if k % 4 == 0:
        return self.clone()
    turned = call("flip", self, dims=(second if k % 4 == 1 else first,))
    return turned.transpose(first, second).contiguous()


def kron(self: Tensor, other: Tensor) -> Tensor:
    """Kronecker's product: a copy of `other` times each element of `self`."""
    if not isinstance(other, Tensor):
        raise not_a_tensor("kron", "other", 2, other)
    if max(self.ndim, other.ndim) > RANK_MAX // 2:  # kron doubles the dimensions
        return generic("kron", self, other)
    rank = max(self.ndim, other.ndim)
    left, right = ((1,) * (rank - x.ndim) + tuple(x.shape) for x in (self, other))
    # [a, b] and [c, d] -> [a, 1, b, 1] * [1, c, 1, d]
    spread = self.reshape(tuple(itertools.chain(*((n, 1) for n in left))))
    within = other.reshape(tuple(itertools.chain(*((1, n) for n in right))))
    return (spread * within).reshape(tuple(n * m for n, m in zip(left, right, strict=True)))


def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Zeros in the dimensions `dim1` and `dim2`, with the last dimension on a diagonal."""
    rank = self.ndim + 1
    inside = all(-rank <= dim < rank for dim in (dim1, dim2))
    if self.ndim == 0 or not inside or dim1 % rank == dim2 % rank:
        return generic("diag_embed", self, offset, dim1, dim2)
    shape = list(self.shape[:-1])
    for dim in sorted((dim1 % rank, dim2 % rank)):
        shape.insert(dim, self.shape[-1] + abs(offset))
    zeros = call("full_like", self.detach(), size=tuple(shape), value=0, dtype=self.dtype)
    return call("diagonal_scatter", zeros, self, offset=offset, dim1=dim1, dim2=dim2)


METHODS: dict[str, Method] = {
    "fliplr": fliplr,
    "flipud": flipud,
    "rot90": rot90,
    "kron": kron,
    "diag_embed": diag_embed,
}
