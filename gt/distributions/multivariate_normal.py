"""The normal distribution of vectors."""

import math
from collections.abc import Callable

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.operators import cholesky, cholesky_inverse, solve_triangular
from gt.distributions.utils import lazy_property
from gt.errors import InvalidValue

__all__ = ["MultivariateNormal"]


class MultivariateNormal(Distribution):
    """The normal distribution of vectors [n], of its mean and one of three matrices [..., n, n].

    Args:
        loc: the mean, [..., n].
        covariance_matrix: positive definite.
        precision_matrix: its inverse.
        scale_tril: its lower triangular factor, with a positive diagonal: the cheapest.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: not exactly one matrix, or one or `loc` with too few dimensions.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support: constraints.Constraint = constraints.real_vector
    has_rsample = True
    _batched = {
        "loc": 1, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2
    }  # fmt: skip
    loc: Tensor
    # The factor as it was given: computed with before it is expanded over the batch.
    _unbroadcasted_scale_tril: Tensor

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise InvalidValue("loc must be at least one-dimensional.")
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        arguments = {name: matrix for name, matrix in matrices.items() if matrix is not None}
        if len(arguments) != 1:
            raise InvalidValue(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril "
                "may be specified."
            )
        ((name, matrix),) = arguments.items()
        if matrix.ndim < 2:
            raise InvalidValue(
                f"{name} matrix must be at least two-dimensional, "
                "with optional leading batch dimensions".replace("matrix matrix", "matrix")
            )
        batch = gt.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        vars(self)[name] = matrix.expand((*batch, -1, -1))
        self.loc = loc.expand((*batch, -1))
        super().__init__(gt.Size(batch), loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = FACTORS[name](matrix)

    def _copy_rest(self, new: "MultivariateNormal") -> None:
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return self._whole(cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        squares = self._unbroadcasted_scale_tril.square().sum(-1)
        return squares.expand(self._extended_shape())

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        unit = gt.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + matrix_vector(self._unbroadcasted_scale_tril, unit)

    def log_prob(self, value: Tensor) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        distance = mahalanobis(factor, self._checked(value) - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + distance) - half_log_det(factor)

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi))
        return (constant + half_log_det(self._unbroadcasted_scale_tril)).expand(self._batch_shape)

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)


def matrix_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """Batches of matrix times vector: [..., n, k], [..., k] -> [..., n]."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def half_log_det(factor: Tensor) -> Tensor:
    """The logarithm of a triangle's determinant: [..., n, n] -> [...]."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def mahalanobis(factor: Tensor, vector: Tensor) -> Tensor:
    """x' (L L')^-1 x of triangles L and vectors x, whose batches broadcast: -> [...].

    Vectors that share a triangle are columns of one system.
    """
    n, own = vector.shape[-1], factor.ndim - 2
    batch = gt.broadcast_shapes(factor.shape[:-2], vector.shape[:-1])
    vector = vector.expand((*batch, n))
    shared = [d for d in range(len(batch)) if d < len(batch) - own or _is_one(factor, d, batch)]
    own_dims = [d for d in range(len(batch)) if d not in shared]
    columns = vector.permute((*own_dims, len(batch), *shared))  # [kept..., n, shared...]
    sizes = [batch[d] for d in own_dims]
    flat = columns.reshape((*sizes, n, math.prod(batch[d] for d in shared)))
    solved = solve_triangular(factor.reshape((*sizes, n, n)), flat)
    sums = solved.square().sum(-2).reshape((*sizes, *(batch[d] for d in shared)))
    order = [*own_dims, *shared]
    return sums.permute([order.index(d) for d in range(len(batch))])


def _is_one(factor: Tensor, dim: int, batch: Shape) -> bool:
    """True if the whole batch dimension `dim` shares one triangle."""
    return factor.shape[dim - len(batch) + factor.ndim - 2] == 1


def _factor_of_precision(precision: Tensor) -> Tensor:
    """L with L L' = P^-1: the inverse of the factor of P with rows and columns turned round."""
    turned = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    unit = gt.eye(precision.shape[-1], dtype=precision.dtype)
    return solve_triangular(turned, unit)


FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "covariance_matrix": cholesky,
    "precision_matrix": _factor_of_precision,
    "scale_tril": lambda factor: factor,
}
