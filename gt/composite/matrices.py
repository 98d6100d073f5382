"""Factorizations of matrices, also approximate ones, and distances between their rows."""

from collections.abc import Sequence
from typing import TypeAlias

from gt import _core
from gt._core import Tensor
from gt.composite.common import Method
from gt.composite.joining import flat_list, meshgrid
from gt.errors import InvalidValue, ShapeError

Tensors: TypeAlias = Sequence[Tensor]
MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = MODES[0]) -> Tensor:
    """[..., m, d] and [..., n, d] -> [..., m, n]: the p-norm of each difference of rows.

    Args:
        compute_mode: PyTorch's choice of a matrix product for p = 2; accepted without effect.

    Raises:
        ValueError: another mode.
    """
    from gt.tensors.aten.call import call

    if compute_mode not in MODES:
        raise InvalidValue(f"{compute_mode} is not a valid value for compute_mode")
    mode = MODES.index(compute_mode) or None
    distance: Tensor = call("cdist", (x1, x2, float(p), mode), {})
    return distance


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of one matrix; numbers and vectors are matrices of one row."""
    from gt.tensors.aten.call import call

    joined: Tensor = call("block_diag", (list(tensors),), {})
    return joined


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of one element of each vector, as rows."""
    parts = flat_list(tensors)
    for x in parts:
        if x.ndim != 1:
            raise ShapeError(f"Expect a 1D vector, but got shape [{_listed(x.shape)}]")
    if len(parts) == 1:
        return parts[0]
    grids = [grid.reshape((-1, 1)) for grid in meshgrid(*parts, indexing="ij")]
    joined: Tensor = _core.call("cat", *grids, dim=1)
    return joined


def _listed(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def lu(
    A: Tensor,  # noqa: N803 - PyTorch's name
    pivot: bool = True,
    get_infos: bool = False,
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """The LU factors of [..., m, n] in one matrix, and the pivots, counted from 1.

    Args:
        A: [..., m, n].
        pivot: True exchanges rows.
        get_infos: True also returns LAPACK's status of each matrix.
    """
    from gt.tensors.aten.call import call

    factors, pivots, infos = call("linalg_lu_factor_ex", (A,), {"pivot": pivot})
    return (factors, pivots, infos) if get_infos else (factors, pivots)


def svd_lowrank(
    A: Tensor,  # noqa: N803 - PyTorch's name
    q: int | None = 6,
    niter: int | None = 2,
    M: Tensor | None = None,  # noqa: N803
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and V so that U @ diag(S) @ V.mT is nearly A - M, of rank `q`: by a random start.

    Args:
        A: [..., m, n].
        q: rank of the approximation, a little more than that of the matrix.
        niter: number of refinements of the subspace.
        M: subtracted from A.

    Halko, Martinsson, Tropp: Finding structure with randomness, algorithms 4.4 and 5.1.
    """
    matrix = A if M is None else A - M.expand(A.shape)
    is_wide = matrix.shape[-2] < matrix.shape[-1]
    tall = matrix.mT if is_wide else matrix
    basis = _basis(tall, 6 if q is None else q, 2 if niter is None else niter)
    left, values, right = _linalg("linalg_svd", basis.mT @ tall, full_matrices=False)
    first, second = basis @ left, right.mT
    return (second, values, first) if is_wide else (first, values, second)


def _basis(matrix: Tensor, q: int, niter: int) -> Tensor:
    """[..., m, q], orthonormal columns that nearly span the matrix's."""
    from gt.compat.random import randn

    start = randn(matrix.shape[-1], q, dtype=matrix.dtype)
    basis = _linalg("linalg_qr", matrix @ start)[0]
    for _ in range(niter):
        basis = _linalg("linalg_qr", matrix.mT @ basis)[0]
        basis = _linalg("linalg_qr", matrix @ basis)[0]
    return basis


def _linalg(name: str, matrix: Tensor, **options: object) -> tuple[Tensor, ...]:
    from gt.tensors.aten.call import call

    factors: tuple[Tensor, ...] = call(name, (matrix,), options)
    return factors


def pca_lowrank(
    A: Tensor,  # noqa: N803 - PyTorch's name
    q: int | None = None,
    center: bool = True,
    niter: int = 2,
) -> tuple[Tensor, Tensor, Tensor]:
    """svd_lowrank of A minus its columns' means: the principal components are V's columns.

    Args:
        A: [..., m, n].
        q: rank of the approximation, a little more than that of the matrix; 6, or the least size,
            if not given.
        center: True subtracts the means.
        niter: number of refinements of the subspace.

    Raises:
        ValueError: a negative `niter`, or a `q` that is negative or above a size.
    """
    least = min(A.shape[-2:])
    rank = min(6, least) if q is None else q
    if not 0 <= rank <= least:
        raise InvalidValue(
            f"q(={rank}) must be non-negative integer and not greater than min(m, n)={least}"
        )
    if niter < 0:
        raise InvalidValue(f"niter(={niter}) must be non-negative integer")
    centered = A - A.mean(dim=-2, keepdim=True) if center else A
    return svd_lowrank(centered, rank, niter)


FUNCTIONS: dict[str, Method] = {
    "block_diag": block_diag,
    "cartesian_prod": cartesian_prod,
    "cdist": cdist,
    "lu": lu,
    "pca_lowrank": pca_lowrank,
    "svd_lowrank": svd_lowrank,
}
