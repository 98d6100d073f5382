"""Helpers of distributions: broadcasting of parameters, probabilities and logits, triangles."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import gt
from gt import Size, Tensor
from gt.errors import InvalidValue

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286061  # the Euler-Mascheroni constant
Value = Tensor | float
Result = TypeVar("Result")


def is_number(*values: object) -> bool:
    """True if all of them are Python numbers."""
    return all(isinstance(value, (int, float)) for value in values)


def broadcast_all(*values: Value) -> tuple[Tensor, ...]:
    """Tensors of one shape; numbers become tensors of the first tensor's dtype.

    Raises:
        InvalidValue: something that is neither a number nor a tensor.
    """
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not all(isinstance(value, Tensor) or is_number(value) for value in values):
        raise InvalidValue(
            "Input arguments must all be instances of Number, "
            "torch.Tensor or objects implementing __torch_function__."
        )
    dtype = tensors[0].dtype if tensors else gt.get_default_dtype()
    return tuple(
        gt.broadcast_tensors(
            *(v if isinstance(v, Tensor) else gt.tensor(v, dtype=dtype) for v in values)
        )
    )


def batch_of(parameter: Tensor, *arguments: object) -> Size:
    """Shape of the batch: that of the broadcast parameter; empty if all arguments are numbers."""
    return gt.Size() if is_number(*arguments) else parameter.shape


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last `dim` dimensions."""
    if dim == 0:
        return value
    return value.reshape((*value.shape[: value.ndim - dim], -1)).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log-odds (`is_binary`), or of logarithms up to a constant of each row."""
    return gt.sigmoid(logits) if is_binary else gt.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """`probs` limited to [eps, 1 - eps] with the dtype's `eps`."""
    eps = gt.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logarithms of probabilities, or log-odds (`is_binary`), after `clamp_probs`."""
    inside = clamp_probs(probs)
    return inside.log() - (-inside).log1p() if is_binary else inside.log()


class lazy_property(Generic[Result]):  # noqa: N801 - PyTorch's name
    """An attribute that is computed at its first use, with gradients, and kept."""

    def __init__(self, wrapped: Callable[[Any], Result]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy_property[Result]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> Result: ...

    def __get__(self, instance: object, owner: type) -> "Result | lazy_property[Result]":
        if instance is None:
            return self
        with gt.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def one_of(probs: Value | None, logits: Value | None) -> str:
    """The name of the parameter that is not None.

    Raises:
        InvalidValue: none or both.
    """
    if (probs is None) == (logits is None):
        raise InvalidValue("Either `probs` or `logits` must be specified, but not both.")
    return "logits" if probs is None else "probs"


def tril_mask(n: int, diag: int) -> Tensor:
    """A square matrix of booleans: True on and below its diagonal `diag`."""
    at = gt.arange(n)
    return at < at.reshape(-1, 1) + (diag + 1)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangle of matrices, row by row: [..., n, n] -> [..., elements].

    Raises:
        InvalidValue: a diagonal outside of the matrix.
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise InvalidValue(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = gt.tril_indices(n, n, diag)
    return mat.flatten(-2).index_select(-1, rows * n + columns)


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangles of their elements row by row, zeros elsewhere: [..., m] -> [..., n, n].

    Raises:
        InvalidValue: a number of elements that no triangle has.
    """
    size = vec.shape[-1]
    n = max(0, -diag)
    while _triangle(n, diag) < size:
        n += 1
    if _triangle(n, diag) != size:
        raise InvalidValue(
            f"The size of last dimension is {size} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    mask = tril_mask(n, diag).flatten()
    place = (mask.long().cumsum(0) - 1).clamp(min=0)  # index of the element at each place
    flat = gt.where(mask, vec.index_select(-1, place), gt.zeros((), dtype=vec.dtype))
    return flat.reshape((*vec.shape[:-1], n, n))


def _triangle(n: int, diag: int) -> int:
    """Number of elements on and below the diagonal `diag`."""
    return sum(min(max(row + diag + 1, 0), n) for row in range(n))


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
