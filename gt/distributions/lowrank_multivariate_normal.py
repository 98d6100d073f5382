"""The normal distribution of vectors with a covariance of low rank and a diagonal."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.multivariate_normal import half_log_det, mahalanobis, matrix_vector
from gt.distributions.operators import cholesky, solve_triangular
from gt.distributions.utils import lazy_property
from gt.errors import InvalidValue

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors [n] with the covariance W W' + D.

    It takes the inverse and the determinant of a matrix [m, m], the capacitance I + W' D^-1 W
    (Woodbury's identity), and none of [n, n].

    Args:
        loc: the mean, [..., n].
        cov_factor: W, [..., n, m].
        cov_diag: the diagonal of D, positive, [..., n].
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: shapes that do not fit.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support: constraints.Constraint = constraints.real_vector
    has_rsample = True
    _batched = {"loc": 1, "cov_factor": 2, "cov_diag": 1}
    loc: Tensor
    cov_factor: Tensor
    cov_diag: Tensor

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ) -> None:
        _check_shapes(loc, cov_factor, cov_diag)
        event = loc.shape[-1:]
        try:
            batch = gt.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise InvalidValue(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand((*batch, *event))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, *event))
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = cholesky(_with_unit(self._scaled() @ cov_factor))
        super().__init__(gt.Size(batch), event, validate_args=validate_args)

    def _copy_rest(self, new: "LowRankMultivariateNormal") -> None:
        new._unbroadcasted_cov_factor = self._unbroadcasted_cov_factor
        new._unbroadcasted_cov_diag = self._unbroadcasted_cov_diag
        new._capacitance_tril = self._capacitance_tril

    def _scaled(self) -> Tensor:
        """W' D^-1: [..., m, n]."""
        return self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)

    def _solved(self) -> Tensor:
        """A = L^-1 W' D^-1 of the capacitance's factor L; the precision is D^-1 - A' A."""
        return solve_triangular(self._capacitance_tril, self._scaled())

    def _log_det(self) -> Tensor:
        """The logarithm of the covariance's determinant."""
        diagonal = self._unbroadcasted_cov_diag.log().sum(-1)
        return 2 * half_log_det(self._capacitance_tril) + diagonal

    def _mahalanobis(self, vector: Tensor) -> Tensor:
        """x' (W W' + D)^-1 x."""
        plain = (vector.square() / self._unbroadcasted_cov_diag).sum(-1)
        return plain - mahalanobis(self._capacitance_tril, matrix_vector(self._scaled(), vector))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The diagonal of the covariance."""
        squares = self._unbroadcasted_cov_factor.square().sum(-1)
        return (squares + self._unbroadcasted_cov_diag).expand(self._extended_shape())

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        units = self._unbroadcasted_cov_factor / root
        return self._whole(root * cholesky(_with_unit(units @ units.mT)))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        return self._whole(factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        solved = self._solved()
        return self._whole((1 / self._unbroadcasted_cov_diag).diag_embed() - solved.mT @ solved)

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape, dtype = self._extended_shape(sample_shape), self.loc.dtype
        along = gt.randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=dtype)
        rest = self._unbroadcasted_cov_diag.sqrt() * gt.randn(shape, dtype=dtype)
        return self.loc + matrix_vector(self._unbroadcasted_cov_factor, along) + rest

    def log_prob(self, value: Tensor) -> Tensor:
        distance = self._mahalanobis(self._checked(value) - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + self._log_det() + distance)

    def entropy(self) -> Tensor:
        constant = self._event_shape[0] * (1 + math.log(2 * math.pi))
        return (0.5 * (constant + self._log_det())).expand(self._batch_shape)


def _with_unit(matrix: Tensor) -> Tensor:
    return matrix + gt.eye(matrix.shape[-1], dtype=matrix.dtype)


def _check_shapes(loc: Tensor, cov_factor: Tensor, cov_diag: Tensor) -> None:
    """PyTorch's errors."""
    if loc.dim() < 1:
        raise InvalidValue("loc must be at least one-dimensional.")
    event = loc.shape[-1:]
    if cov_factor.ndim < 2:
        raise InvalidValue(
            "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
        )
    if cov_factor.shape[-2:-1] != event:
        raise InvalidValue(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
    if cov_diag.shape[-1:] != event:
        raise InvalidValue(f"cov_diag must be a batch of vectors with shape {event}")
