"""Functions that PyTorch removed but still names: a call raises an error with the replacement."""

# ruff: noqa: ARG001, N803 - arguments that PyTorch takes, by its names

from typing import NoReturn

from gt._core import Tensor
from gt.composite.common import Method, Number
from gt.errors import InvalidUse

_REMOVED = "This function was deprecated since version 1.9 and is now removed."
_REPLACED = "should be replaced with:"


def cholesky(self: Tensor, upper: bool = False) -> NoReturn:
    """Removed: gt.linalg.cholesky."""
    raise InvalidUse(
        f"{_REMOVED} `torch.cholesky` is deprecated in favor of `torch.linalg.cholesky`.\n"
        f"L = torch.cholesky(A) {_REPLACED}\nL = torch.linalg.cholesky(A)\n"
        f"U = torch.cholesky(A, upper=True) {_REPLACED}\nU = torch.linalg.cholesky(A).mH"
    )


def eig(
    self: Tensor, eigenvectors: bool = False, *, e: object = None, v: object = None
) -> NoReturn:
    """Removed: gt.linalg.eig, gt.linalg.eigvals."""
    raise InvalidUse(
        f"{_REMOVED} `torch.linalg.eig` returns complex tensors of dtype `cfloat` or `cdouble` "
        "rather than real tensors mimicking complex tensors.\n\n"
        f"L, _ = torch.eig(A) {_REPLACED}\nL_complex = torch.linalg.eigvals(A)\n\nand\n\n"
        f"L, V = torch.eig(A, eigenvectors=True) {_REPLACED}\n"
        "L_complex, V_complex = torch.linalg.eig(A)"
    )


def lstsq(self: Tensor, A: Tensor) -> NoReturn:
    """Removed: gt.linalg.lstsq, whose operands are in the other order."""
    raise InvalidUse(
        f"{_REMOVED} `torch.lstsq` is deprecated in favor of `torch.linalg.lstsq`.\n"
        "`torch.linalg.lstsq` has reversed arguments and does not return the QR decomposition in "
        "the returned tuple (although it returns other information about the problem).\n\n"
        "To get the QR decomposition consider using `torch.linalg.qr`.\n\n"
        "The returned solution in `torch.lstsq` stored the residuals of the solution in the last "
        "m - n columns of the returned value whenever m > n. In torch.linalg.lstsq, the residuals "
        "are in the field 'residuals' of the returned named tuple.\n\n"
        "The unpacking of the solution, as in\nX, _ = torch.lstsq(B, A).solution[:A.size(1)]\n"
        f"{_REPLACED}\nX = torch.linalg.lstsq(A, B).solution"
    )


def matrix_rank(self: Tensor, tol: Number | None = None, symmetric: bool = False) -> NoReturn:
    """Removed: gt.linalg.matrix_rank."""
    raise InvalidUse(
        f"{_REMOVED}\nPlease use the `torch.linalg.matrix_rank` function instead. The parameter "
        "'symmetric' was renamed in `torch.linalg.matrix_rank()` to 'hermitian'."
    )


def qr(self: Tensor, some: bool = True) -> NoReturn:
    """Removed: gt.linalg.qr."""
    mode = "reduced" if some else "complete"
    raise InvalidUse(
        f"{_REMOVED} `torch.qr` is deprecated in favor of `torch.linalg.qr` and the boolean "
        "parameter `some` has been replaced with a string parameter `mode`.\n\n"
        f"Q, R = torch.qr(A) {_REPLACED}\nQ, R = torch.linalg.qr(A, mode='reduced')\n\nand\n\n"
        f"Q, R = torch.qr(A, some=False) {_REPLACED}\n"
        "Q, R = torch.linalg.qr(A, mode='complete')\n\n"
        f"Since `some` was set to {some}, use mode='{mode}'."
    )


def solve(self: Tensor, A: Tensor) -> NoReturn:
    """Removed: gt.linalg.solve, whose operands are in the other order."""
    raise InvalidUse(
        f"{_REMOVED} `torch.solve` is deprecated in favor of `torch.linalg.solve`. "
        "`torch.linalg.solve` has its arguments reversed and does not return the LU "
        "factorization.\n\nTo get the LU factorization see `torch.lu`, which can be used with "
        f"`torch.lu_solve` or `torch.lu_unpack`.\nX = torch.solve(B, A).solution {_REPLACED}\n"
        "X = torch.linalg.solve(A, B)"
    )


def symeig(self: Tensor, eigenvectors: bool = False, upper: bool = True) -> NoReturn:
    """Removed: gt.linalg.eigh, gt.linalg.eigvalsh."""
    raise InvalidUse(
        f"{_REMOVED} The default behavior has changed from using the upper triangular portion of "
        "the matrix by default to using the lower triangular portion.\n\n"
        f"L, _ = torch.symeig(A, upper=upper) {_REPLACED}\n"
        "L = torch.linalg.eigvalsh(A, UPLO='U' if upper else 'L')\n\nand\n\n"
        f"L, V = torch.symeig(A, eigenvectors=True) {_REPLACED}\n"
        "L, V = torch.linalg.eigh(A, UPLO='U' if upper else 'L')"
    )


FUNCTIONS: dict[str, Method] = {
    "cholesky": cholesky,
    "eig": eig,
    "lstsq": lstsq,
    "matrix_rank": matrix_rank,
    "qr": qr,
    "solve": solve,
    "symeig": symeig,
}
