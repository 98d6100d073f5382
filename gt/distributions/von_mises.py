"""The von Mises distribution."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.gamma_draws import uniform_inside
from gt.distributions.utils import Value, broadcast_all, lazy_property
from gt.tensors.aten.call import call

__all__ = ["VonMises"]

# Proposals per angle: each is accepted with probability above 0.65 (0.6577 in the limit of large
# concentrations), so none is with probability below 1e-12; then the angle is `loc`.
PROPOSALS = 27


class VonMises(Distribution):
    """Angles of [-pi, pi) around `loc`.

    Args:
        loc: the mean direction, in radians.
        concentration: positive; broadcast with `loc`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support: constraints.Constraint = constraints.real
    _batched = {"loc": 0, "concentration": 0}
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Value, concentration: Value, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        units = k * ((self._checked(value) - self.loc).cos() - 1)
        return units - math.log(2 * math.pi) - _scaled_bessel(k, 0).log()

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """By Best and Fisher's rejection from the wrapped Cauchy distribution (1979)."""
        with gt.no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.detach().double()
            r = _proposal(k)
            wide = (PROPOSALS, *shape)
            z = (math.pi * gt.rand(wide, dtype=gt.float64)).cos()
            u = uniform_inside(wide, gt.float64, None)
            f = (1 + r * z) / (r + z)
            c = k * (r - f)
            is_accepted = (c * (2 - c) > u) | ((c / u).log() + 1 - c >= 0)
            first = is_accepted.int().argmax(0, keepdim=True)
            cosine = f.clamp(min=-1, max=1).gather(0, first).squeeze(0)
            side = (gt.rand(shape, dtype=gt.float64) - 0.5).sign()
            angle = gt.where(is_accepted.any(0), side * cosine.acos(), 0.0)
            turned = (angle + math.pi + self.loc) % (2 * math.pi) - math.pi
            return turned.to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """One minus the mean cosine of the deviation."""
        return 1 - _scaled_bessel(self.concentration, 1) / _scaled_bessel(self.concentration, 0)


def _proposal(k: Tensor) -> Tensor:
    """The parameter of the distribution from which proposals come."""
    tau = 1 + (1 + 4 * k.square()).sqrt()
    rho = (tau - (2 * tau).sqrt()) / (2 * k)
    return gt.where(k < 1e-5, 1 / k + k, (1 + rho.square()) / (2 * rho))


def _scaled_bessel(x: Tensor, order: int) -> Tensor:
    """exp(-x) I(x), the modified Bessel function of the order 0 or 1."""
    return call("special_i1e" if order else "special_i0e", (x,), {})
