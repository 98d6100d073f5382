"""Products beyond matmul and linear: PyTorch's checked names, their sums, and einsum."""

import math
from collections.abc import Sequence

from gt import _core
from gt._core import Tensor, call
from gt.amp.casting import entry
from gt.composite.casts import TENSOR_CLASSES
from gt.composite.common import Method, Number, wrap
from gt.composite.factors import check_factors, check_whole
from gt.composite.pointwise import is_half, scaled
from gt.errors import DtypeError, ShapeError
from gt.tensors.dtypes import common_type, promote_types


def mm(self: Tensor, mat2: Tensor, *, name: str = "mm") -> Tensor:
    """The product of two matrices."""
    for role, x in (("self", self), ("mat2", mat2)):
        if x.ndim != 2:
            raise ShapeError(f"{name}: {role} must be a matrix, got {x.ndim}-D tensor")
    return self @ mat2


def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices."""
    for name, x in (("batch1", self), ("batch2", mat2)):
        if x.ndim != 3:
            raise ShapeError(f"{name} must be a 3D tensor")
    (b, _, k), second = self.shape, mat2.shape
    if second[:2] != (b, k):
        raise ShapeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"[{b}, {k}] but got: [{second[0]}, {second[1]}]."
        )
    return self @ mat2


def mv(self: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    if self.ndim != 2 or vec.ndim != 1:
        raise ShapeError(f"vector + matrix @ vector expected, got 1, {self.ndim}, {vec.ndim}")
    return self @ vec


def dot(self: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors."""
    if self.dtype != tensor.dtype and self.ndim == tensor.ndim == 1:
        have, want = (TENSOR_CLASSES[repr(x.dtype)].removesuffix("Tensor") for x in (self, tensor))
        raise DtypeError(
            f"dot : expected both vectors to have same dtype, but found {have} and {want}"
        )
    if self.ndim != 1 or tensor.ndim != 1:
        raise ShapeError(f"1D tensors expected, but got {self.ndim}D and {tensor.ndim}D tensors")
    if self.shape != tensor.shape:
        n, m = self.shape[0], tensor.shape[0]
        raise ShapeError(
            f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same "
            f"number of elements, but got {n} and {m} elements respectively"
        )
    return self @ tensor


def vdot(self: Tensor, other: Tensor) -> Tensor:
    """The sum of the products of two vectors."""
    return dot(self, other)


def outer(self: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors."""
    for name, x in (("self", self), ("vec2", vec2)):
        if x.ndim != 1:
            raise ShapeError(f"outer: Expected 1-D argument {name}, but got {x.ndim}-D")
    return self.reshape((self.shape[0], 1)) * vec2


def inner(self: Tensor, other: Tensor) -> Tensor:
    """Products summed over both last dimensions."""
    if self.ndim == 0 or other.ndim == 0:
        return self * other
    return _tensordot(self, other, ([-1], [-1]))


def combined(self: Tensor, product: Tensor, beta: Number, alpha: Number) -> Tensor:
    """beta * self + alpha * product; with beta 0, `self` is ignored even if it is NaN, with
    gradient 0.

    Factors of integers lose their fraction; those of bools become True unless they are zero.
    """
    dtype = promote_types(self.dtype, product.dtype)
    if dtype == _core.bool:
        terms = [x for x, factor in ((self, beta), (product, alpha)) if factor]
        if len(terms) == 2:
            return self.logical_or(product)
        return (
            terms[0].expand(product.shape) if terms else product.masked_fill(product, value=False)
        )
    if is_half(self, product) and not beta == alpha == 1:  # rounded once, with the sum
        return combined(self.float(), product.float(), beta, alpha).to(dtype)
    if not dtype.is_floating_point:
        beta, alpha = int(beta), int(alpha)
    weighted = scaled(product, alpha)
    if beta != 0:
        return scaled(self, beta) + weighted
    if not self.requires_grad:
        return weighted
    everywhere = call("full", size=(), value=True, dtype=_core.bool)
    return call("where", everywhere, weighted, self)


def addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * self + alpha * (mat1 @ mat2); in half precision rounded once, as PyTorch's kernels."""
    check_factors(beta, alpha, operands=(self, mat1, mat2), wide=True)
    if is_half(self, mat1, mat2):
        return addmm(*widened(self, mat1, mat2), beta=beta, alpha=alpha).to(self.dtype)
    return combined(self, mm(mat1, mat2, name="addmm"), beta, alpha)


def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * self + alpha * (mat @ vec); in half precision rounded once."""
    check_factors(beta, alpha, operands=(self, mat, vec), wide=False)
    if is_half(self, mat, vec):
        return addmv(*widened(self, mat, vec), beta=beta, alpha=alpha).to(self.dtype)
    return combined(self, mv(mat, vec), beta, alpha)


def addr(
    self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * self + alpha * outer(vec1, vec2)."""
    dtype = common_type(self, vec1, vec2)
    check_whole("beta", beta, dtype)
    check_whole("alpha", alpha, dtype)
    check_factors(beta, alpha, operands=(self, vec1, vec2), wide=False)
    if is_half(self, vec1, vec2):
        return addr(*widened(self, vec1, vec2), beta=beta, alpha=alpha).to(self.dtype)
    return combined(self, outer(vec1, vec2), beta, alpha)


def baddbmm(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * self + alpha * bmm(batch1, batch2); in half precision rounded once."""
    check_factors(beta, alpha, operands=(self, batch1, batch2), wide=True)
    if is_half(self, batch1, batch2):
        return baddbmm(*widened(self, batch1, batch2), beta=beta, alpha=alpha).to(self.dtype)
    return combined(self, bmm(batch1, batch2), beta, alpha)


def widened(*operands: Tensor) -> list[Tensor]:
    """The operands in float32, so that intermediate steps are not rounded to half precision."""
    return [x.float() for x in operands]


def tensordot(a: Tensor, b: Tensor, dims: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Products summed over the last dimensions of `a` and the first of `b`, or over
    listed pairs.
    """
    over_a, over_b = _contracted(a, b, dims)
    if a.dtype != b.dtype and _core.autocast_region() is None:
        raise DtypeError("both inputs should have same dtype")
    for d, e in zip(over_a, over_b, strict=True):
        if a.shape[d] != b.shape[e] and 1 not in (a.shape[d], b.shape[e]):
            at = over_a.index(d)
            first, second = d - a.ndim, e
            if not isinstance(dims, int):
                first, second = dims[0][at], dims[1][at]
            raise ShapeError(
                f"contracted dimensions need to match, but first has size {a.shape[d]} in dim "
                f"{first} and second has size {b.shape[e]} in dim {second}"
            )
    a, b = matched(a, over_a, b, over_b), matched(b, over_b, a, over_a)
    free_a = [d for d in range(a.ndim) if d not in over_a]
    free_b = [d for d in range(b.ndim) if d not in over_b]
    k = math.prod(a.shape[d] for d in over_a)
    shape = [a.shape[d] for d in free_a] + [b.shape[d] for d in free_b]
    m, n = math.prod(a.shape[d] for d in free_a), math.prod(b.shape[d] for d in free_b)
    left = a.permute((*free_a, *over_a)).reshape((m, k))  # -> [m, k]
    right = b.permute((*over_b, *free_b)).reshape((k, n))  # -> [k, n]
    if not shape and _core.autocast_region() is not None:  # autocast treats dot otherwise
        return _dot(left.reshape((k,)), right.reshape((k,)))
    return (left @ right).reshape(tuple(shape))


def _contracted(
    a: Tensor, b: Tensor, dims: int | tuple[Sequence[int], Sequence[int]]
) -> tuple[list[int], list[int]]:
    """The contracted dimensions of both, in pairs.

    Raises:
        ShapeError: More dimensions than there are, one twice, or lists of different lengths.
    """
    if isinstance(dims, tuple | list):
        if len(dims[0]) != len(dims[1]):
            raise ShapeError("both dimension lists should have same length")
        pairs = [wrap(d, a.ndim) for d in dims[0]], [wrap(d, b.ndim) for d in dims[1]]
        for over in pairs:
            if twice := [d for at, d in enumerate(over) if d in over[:at]]:
                raise ShapeError(f"dim {twice[0]} appears multiple times in the list of dims")
        return pairs
    if not isinstance(dims, int):
        raise ShapeError(
            "tensordot expects dims to be int or tuple[list[int], list[int]] or list[list[int]] "
            f"containing two lists, but got dims={dims}"
        )
    if dims < 0:
        raise ShapeError(f"tensordot expects dims >= 0, but got dims={dims}")
    if dims > min(a.ndim, b.ndim):
        raise ShapeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return list(range(a.ndim - dims, a.ndim)), list(range(dims))


def matched(x: Tensor, over: Sequence[int], other: Tensor, others: Sequence[int]) -> Tensor:
    """`x` summed over contracted dimensions in which the other operand has size 1."""
    for d, e in zip(over, others, strict=True):
        if other.shape[e] == 1 and x.shape[d] != 1:
            x = call("sum", x, dim=(d,), keepdim=True)
    return x


# Entered by their names in PyTorch, so that an open autocast treats them as its operators.
_dot, _tensordot = entry("dot", dot), entry("tensordot", tensordot)

METHODS: dict[str, Method] = {
    "mm": mm,
    "bmm": bmm,
    "mv": mv,
    "dot": dot,
    "vdot": vdot,
    "outer": outer,
    "ger": outer,
    "inner": inner,
    "addmm": addmm,
    "addmv": addmv,
    "addr": addr,
    "baddbmm": baddbmm,
}
