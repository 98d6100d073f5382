"""The standard's linear algebra; its extension `linalg` too."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gt
from gt import matmul
from gt._core import Tensor, dtype
from gt.compat.array_api.dtypes import axes

_linalg: Any = gt.linalg

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip

cross, det, eigh, eigvalsh = _linalg.cross, _linalg.det, _linalg.eigh, _linalg.eigvalsh
eig, eigvals = _linalg.eig, _linalg.eigvals
inv, matrix_power, pinv = _linalg.inv, _linalg.matrix_power, _linalg.pinv
slogdet, svdvals = _linalg.slogdet, _linalg.svdvals


class QRResult(NamedTuple):
    """Result of `qr`."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def matrix_transpose(x: Tensor, /) -> Tensor:
    """`x` with its last two dimensions swapped."""
    return gt.transpose(x, -2, -1)


def tensordot(
    x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Sums of products over `axes` of both."""
    return gt.tensordot(x1, x2, axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sums of products along `axis`."""
    out: Tensor = _linalg.vecdot(x1, x2, dim=axis)
    return out


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangle L with `x = L @ L.T`, or with `upper` its transpose."""
    out: Tensor = _linalg.cholesky(x, upper=upper)
    return out


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of the last two dimensions."""
    return gt.diagonal(x, offset, -2, -1)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str = "fro") -> Tensor:
    """The norm of the matrices in the last two dimensions."""
    out: Tensor = _linalg.matrix_norm(x, ord, keepdim=keepdims)
    return out


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """Number of singular values greater than `rtol` times the largest."""
    out: Tensor = _linalg.matrix_rank(x, rtol=rtol)
    return out


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Every product of an element of both."""
    return gt.outer(x1, x2)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """An orthogonal matrix and a triangle whose product is `x`."""
    return QRResult(*_linalg.qr(x, mode))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution x of `x1 @ x = x2`."""
    out: Tensor = _linalg.solve(x1, x2)
    return out


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition."""
    return SVDResult(*_linalg.svd(x, full_matrices))


def trace(x: Tensor, /, *, offset: int = 0, dtype: dtype | None = None) -> Tensor:
    """The sum of the diagonal of the last two dimensions; of integers as int64."""
    return gt.sum(diagonal(x, offset=offset), -1, dtype=dtype)


def vector_norm(
    x: Tensor,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> Tensor:
    """The norm of the elements along `axis`, or of all."""
    out: Tensor = _linalg.vector_norm(x, ord, axes(axis, x.ndim), keepdims)
    return out


def __dir__() -> list[str]:
    """The names of the standard."""
    return __all__
