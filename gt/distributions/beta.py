"""The beta distribution."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.dirichlet import Dirichlet
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.utils import Value, broadcast_all, is_number

__all__ = ["Beta"]


class Beta(ExponentialFamily):
    """The beta distribution of [0, 1].

    Args:
        concentration1: the exponent of the value, plus one; positive.
        concentration0: The exponent of one minus the value, plus one; broadcast with the first.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: constraints.Constraint = constraints.unit_interval
    has_rsample = True
    _batched = {"_dirichlet": 0}
    _dirichlet: Dirichlet

    def __init__(
        self, concentration1: Value, concentration0: Value, validate_args: bool | None = None
    ) -> None:
        if is_number(concentration1, concentration0):
            both = gt.tensor([concentration1, concentration0], dtype=gt.get_default_dtype())
        else:
            both = gt.stack(list(broadcast_all(concentration1, concentration0)), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> Tensor:
        """The exponent of the value, plus one."""
        return self._dirichlet.concentration.select(-1, 0)

    @property
    def concentration0(self) -> Tensor:
        """The exponent of one minus the value, plus one."""
        return self._dirichlet.concentration.select(-1, 1)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode.select(-1, 0)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet.log_prob(gt.stack([self._checked(value), 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        first, second = natural_params
        return first.lgamma() + second.lgamma() - (first + second).lgamma()
