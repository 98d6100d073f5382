"""The Dirichlet distribution."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.gamma_draws import dirichlet
from gt.errors import InvalidValue

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution of points of a simplex.

    Args:
        concentration: positive, [..., k].
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: a `concentration` without a dimension.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support: constraints.Constraint = constraints.simplex
    has_rsample = True
    _batched = {"concentration": 1}
    concentration: Tensor

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise InvalidValue("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        weighted = gt.xlogy(a - 1, self._checked(value)).sum(-1)
        return weighted + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0)
        inside = above / above.sum(-1, keepdim=True)
        corner = gt.nn.functional.one_hot(inside.argmax(-1), above.shape[-1]).to(inside.dtype)
        return gt.where((self.concentration < 1).all(-1, keepdim=True), corner, inside)

    @property
    def variance(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1, keepdim=True)
        return a * (total - a) / (total.square() * (total + 1))

    def entropy(self) -> Tensor:
        a, total, k = self.concentration, self.concentration.sum(-1), self.concentration.shape[-1]
        normalizer = a.lgamma().sum(-1) - total.lgamma()
        return normalizer - (k - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (a,) = natural_params
        return a.lgamma().sum(-1) - a.sum(-1).lgamma()
