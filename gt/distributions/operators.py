"""Operators without a row that distributions call, with the types of their results."""

from typing import cast

from gt import Tensor
from gt.tensors.aten.call import call


def cholesky(matrix: Tensor) -> Tensor:
    """The lower triangular factor of positive definite matrices: [..., n, n] -> [..., n, n]."""
    return cast(Tensor, call("linalg_cholesky", (matrix,), {}))


def cholesky_failure(matrix: Tensor) -> Tensor:
    """0 for positive definite matrices, else where their factorization ends: -> [...]."""
    return cast(Tensor, call("linalg_cholesky_ex", (matrix,), {})[1])


def eigvalsh(matrix: Tensor) -> Tensor:
    """The eigenvalues of symmetric matrices: [..., n, n] -> [..., n]."""
    return cast(Tensor, call("linalg_eigvalsh", (matrix,), {}))


def cholesky_inverse(factor: Tensor) -> Tensor:
    """(L L')^-1 of lower triangles: [..., n, n] -> [..., n, n]."""
    return cast(Tensor, call("cholesky_inverse", (factor,), {}))


def cholesky_solve(right: Tensor, factor: Tensor) -> Tensor:
    """(L L')^-1 B of lower triangles L: [..., n, k], [..., n, n] -> [..., n, k]."""
    return cast(Tensor, call("cholesky_solve", (right, factor), {}))


def solve_triangular(factor: Tensor, right: Tensor) -> Tensor:
    """L^-1 B of lower triangles L: [..., n, n], [..., n, k] -> [..., n, k]."""
    return cast(Tensor, call("linalg_solve_triangular", (factor, right), {"upper": False}))


def log_abs_det(matrix: Tensor) -> Tensor:
    """The logarithm of a determinant's magnitude: [..., n, n] -> [...]."""
    return cast(Tensor, call("linalg_slogdet", (matrix,), {})[1])


def gammainc(a: Tensor, x: Tensor) -> Tensor:
    """The share of the gamma function's integral below `x`."""
    return cast(Tensor, call("special_gammainc", (a, x), {}))


def mvlgamma(a: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function."""
    return cast(Tensor, call("mvlgamma", (a, p), {}))
