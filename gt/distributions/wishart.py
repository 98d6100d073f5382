"""The Wishart distribution."""

import math
import warnings
from collections.abc import Mapping

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.chi2 import Chi2
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.multivariate_normal import FACTORS, half_log_det
from gt.distributions.operators import (
    cholesky_failure,
    cholesky_inverse,
    cholesky_solve,
    log_abs_det,
    mvlgamma,
)
from gt.distributions.utils import Value, lazy_property, vec_to_tril_matrix
from gt.errors import InvalidValue

__all__ = ["Wishart"]


class Wishart(ExponentialFamily):
    """Positive definite matrices: sums of `df` squares of normal vectors.

    Args:
        df: the degrees of freedom, above p - 1.
        covariance_matrix: covariance of the vectors, positive definite, [..., p, p].
        precision_matrix: its inverse.
        scale_tril: its lower triangular factor: the cheapest.
        validate_args: whether arguments are checked.

    Raises:
        AssertionError: zero or several matrices are given.
        InvalidValue: a matrix has too few dimensions, or `df` is too small.
    """

    support: constraints.Constraint = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _batched = {
        "df": 0, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2,
        "_unbroadcasted_scale_tril": 2,
    }  # fmt: skip
    df: Tensor
    _unbroadcasted_scale_tril: Tensor
    _dist_chi2: Chi2

    def __init__(
        self,
        df: Value,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        arguments = {name: matrix for name, matrix in matrices.items() if matrix is not None}
        if len(arguments) != 1:
            raise AssertionError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril "
                "may be specified."
            )
        ((name, matrix),) = arguments.items()
        if matrix.ndim < 2:
            raise InvalidValue(
                "scale_tril must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        shape = df.shape if isinstance(df, Tensor) else ()
        batch = gt.Size(gt.broadcast_shapes(matrix.shape[:-2], shape))
        if isinstance(df, Tensor):
            self.df = df.expand(batch)
        else:
            self.df = gt.tensor(df, dtype=matrix.dtype)
        _check_degrees(self.df, matrix.shape[-1], df)
        vars(self)[name] = matrix.expand((*batch, -1, -1))
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = FACTORS[name](matrix)
        self._dist_chi2 = self._squares(batch)

    @property
    def arg_constraints(self) -> Mapping[str, constraints.Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def _expand_parameters(self, new: "Wishart", batch: gt.Size) -> None:
        super()._expand_parameters(new, batch)
        new._event_shape = self._event_shape
        new._dist_chi2 = new._squares(batch)

    def _squares(self, batch: gt.Size) -> Chi2:
        """Distribution of the squares on the diagonal of a standard sample's factor: [..., p]."""
        p = self._event_shape[-1]
        df = self.df.unsqueeze(-1) - gt.arange(p, dtype=self.df.dtype)
        return Chi2(df.expand((*batch, p)), validate_args=False)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._extended_shape())

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._extended_shape())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._extended_shape())

    def _wide(self, value: Tensor) -> Tensor:
        """[...] -> [..., 1, 1]."""
        return value.expand(self._batch_shape).reshape((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Tensor:
        return self._wide(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        factor = gt.where(factor <= 0, math.nan, factor)
        return self._wide(factor) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._wide(self.df) * (covariance.square() + outer)

    def _bartlett(self, sample_shape: Shape) -> Tensor:
        """L A A' L' with chi values on the diagonal of A and normal ones below (Bartlett, 1933)."""
        p = self._event_shape[-1]
        eps = gt.finfo(self.df.dtype).eps
        diagonal = self._dist_chi2.rsample(sample_shape).sqrt().clamp(min=eps).diag_embed()
        if p > 1:
            shape = (*sample_shape, *self._batch_shape, p * (p - 1) // 2)
            below = gt.randn(shape, dtype=diagonal.dtype)
            diagonal = diagonal + vec_to_tril_matrix(below, diag=-1)
        factor = self._unbroadcasted_scale_tril @ diagonal
        return factor @ factor.mT

    def rsample(self, sample_shape: Shape = (), max_try_correction: int | None = None) -> Tensor:
        """A sample that is a differentiable function of the parameters.

        Args:
            sample_shape: dimensions before the batch.
            max_try_correction: how often matrices that rounding made singular are drawn again;
                by default not at all (PyTorch: up to ten times, which reads the samples).
        """
        sample = self._bartlett(sample_shape)
        for _ in range(max_try_correction or 0):
            is_fine = cholesky_failure(sample.detach()) == 0
            is_fine = is_fine.reshape((*is_fine.shape, 1, 1))
            sample = gt.where(is_fine, sample, self._bartlett(sample_shape))
        return sample

    def _half_log_det(self) -> Tensor:
        """p log 2 / 2 plus half of the logarithm of the covariance's determinant."""
        p = self._event_shape[-1]
        return p * math.log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril)

    def log_prob(self, value: Tensor) -> Tensor:
        df, p, value = self.df, self._event_shape[-1], self._checked(value)
        solved = cholesky_solve(value, self._unbroadcasted_scale_tril)  # V^-1 X
        trace = solved.diagonal(dim1=-2, dim2=-1).sum(-1)
        normalizer = df * self._half_log_det() + mvlgamma(df / 2, p)
        return (df - p - 1) / 2 * log_abs_det(value) - trace / 2 - normalizer

    def entropy(self) -> Tensor:
        df, p = self.df, self._event_shape[-1]
        halves = gt.arange(p, dtype=df.dtype) / 2
        slopes = (df.unsqueeze(-1) / 2 - halves).digamma().sum(-1)  # of mvlgamma
        volume = (p + 1) * self._half_log_det() + mvlgamma(df / 2, p)
        return volume - (df - p - 1) / 2 * slopes + df * p / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        return half * (math.log(2) * p - log_abs_det(-2 * x)) + mvlgamma(half, p)


def _check_degrees(df: Tensor, p: int, shown: Value) -> None:
    """PyTorch's error for too few degrees of freedom, and its warning for few."""
    least = float(df.detach().min())
    if least <= p - 1:
        raise InvalidValue(f"Value of df={shown} expected to be greater than ndim - 1 = {p - 1}.")
    if least < p:
        warnings.warn(
            "Low df values detected. Singular samples are highly likely to occur for "
            "ndim - 1 < df < ndim.",
            stacklevel=3,
        )
