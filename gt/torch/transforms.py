"""Fourier transforms and factorizations in the form of PyTorch's autograd, by the
public functions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import gt
from gt._core import Tensor
from gt.tensors.aten.call import call

# ruff: noqa: N803 - PyTorch's names of matrices

# Values of `norm=` by PyTorch's numbers for the scaling, of a forward and of a backward transform.
_FORWARD = ("backward", "ortho", "forward")
_BACKWARD = ("forward", "ortho", "backward")


def _fft_r2c(self: Tensor, dim: list[int], normalization: int, onesided: bool) -> Tensor:
    title = "fft_rfftn" if onesided else "fft_fftn"
    return call(title, (self,), {"dim": list(dim), "norm": _FORWARD[normalization]})  # type: ignore[no-any-return]


def _fft_c2c(self: Tensor, dim: list[int], normalization: int, forward: bool) -> Tensor:
    if not dim:
        return self.clone()
    title, norms = ("fft_fftn", _FORWARD) if forward else ("fft_ifftn", _BACKWARD)
    return call(title, (self,), {"dim": list(dim), "norm": norms[normalization]})  # type: ignore[no-any-return]


def _fft_c2r(self: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    sizes = [self.shape[at] for at in dim[:-1]] + [last_dim_size]
    words = {"s": sizes, "dim": list(dim), "norm": _BACKWARD[normalization]}
    return call("fft_irfftn", (self,), words)  # type: ignore[no-any-return]


def _linalg_svd(
    A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, ...]:
    if compute_uv:
        return tuple(gt.linalg.svd(A, full_matrices, driver=driver))
    nothing = gt.empty(0, dtype=A.dtype)
    return nothing, gt.linalg.svdvals(A, driver=driver), nothing.clone()


def _linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, ...]:
    if compute_v:
        return tuple(gt.linalg.eigh(A, UPLO))
    return gt.linalg.eigvalsh(A, UPLO), gt.empty(0, dtype=A.dtype)


def _factors(A: Tensor) -> tuple[Tensor, ...]:
    """LU, pivots and info of A, or of its transpose if the elements of A are stored so.

    PyTorch's backward operators of determinants see from the strides of A which one it is.
    """
    is_transposed = A.is_contiguous() and not A.is_complex()
    return tuple(gt.linalg.lu_factor_ex(A.mT if is_transposed else A))


def _linalg_det(A: Tensor) -> tuple[Tensor, ...]:
    factors, pivots, _ = _factors(A)
    return gt.linalg.det(A), factors, pivots


def _linalg_slogdet(A: Tensor) -> tuple[Tensor, ...]:
    factors, pivots, _ = _factors(A)
    return *gt.linalg.slogdet(A), factors, pivots


def _linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, ...]:
    factors, pivots, _ = gt.linalg.lu_factor_ex(A)
    result, info = gt.linalg.solve_ex(A, B, left=left, check_errors=check_errors)
    return result, factors, pivots, info


def _linalg_check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """Reads if a factorization failed, and raises PyTorch's error."""
    host = gt.to_torch(info)
    torch.ops.aten._linalg_check_errors(host, api_name, is_matrix=is_matrix)  # noqa: SLF001


def _cdist_forward(x1: Tensor, x2: Tensor, p: float, compute_mode: int | None) -> Tensor:
    return call("cdist", (x1, x2, p, compute_mode), {})  # type: ignore[no-any-return]


def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The product of three tensors, each with further dimensions, summed over some."""
    del unroll_dim  # it only orders PyTorch's loops
    wide = []
    for factor, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for dim in sorted(dims):
            factor = factor.unsqueeze(dim)  # noqa: PLW2901 - one more dimension each time
        wide.append(factor)
    product = wide[0] * wide[1] * wide[2]
    return product.sum(tuple(sumdim)) if sumdim else product


def _conj_physical(self: Tensor) -> Tensor:
    return self.conj_physical()


FUNCTIONS: dict[str, Callable[..., object]] = {
    "_fft_r2c": _fft_r2c,
    "_fft_c2c": _fft_c2c,
    "_fft_c2r": _fft_c2r,
    "_linalg_svd": _linalg_svd,
    "_linalg_eigh": _linalg_eigh,
    "_linalg_det": _linalg_det,
    "_linalg_slogdet": _linalg_slogdet,
    "_linalg_solve_ex": _linalg_solve_ex,
    "_linalg_check_errors": _linalg_check_errors,
    "_cdist_forward": _cdist_forward,
    "_trilinear": _trilinear,
    "_conj_physical": _conj_physical,
}
