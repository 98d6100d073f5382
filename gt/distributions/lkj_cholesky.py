"""The distribution of factors of correlation matrices."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.beta import Beta
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.operators import mvlgamma
from gt.distributions.utils import Value, broadcast_all
from gt.errors import InvalidValue

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower triangular factors of correlation matrices (Lewandowski, Kurowicka, Joe, 2009).

    The matrix M has a density proportional to det(M) ** (concentration - 1). Samples follow the
    onion method: each row is a point in a ball, by its length and a direction.

    Args:
        dim: the size of the matrices, 2 at least.
        concentration: positive; 1 is uniform.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: a `dim` below 2.
    """

    arg_constraints = {"concentration": constraints.positive}
    support: constraints.Constraint = constraints.corr_cholesky
    _batched = {"concentration": 0}
    concentration: Tensor
    dim: int
    _beta: Beta

    def __init__(
        self, dim: int, concentration: Value = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise InvalidValue(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        above = gt.arange(-1, dim - 1, dtype=self.concentration.dtype).clamp(min=0)  # [d]
        marginal = self.concentration.unsqueeze(-1) + 0.5 * (dim - 2)
        self._beta = Beta(above + 0.5, marginal - 0.5 * above)
        shape = self.concentration.shape
        super().__init__(shape, gt.Size((dim, dim)), validate_args=validate_args)

    def _copy_rest(self, new: "LKJCholesky") -> None:
        new.dim = self.dim
        new._beta = self._beta.expand((*new.concentration.shape, self.dim))

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with gt.no_grad():
            square = self._beta.sample(sample_shape).unsqueeze(-1)  # squared length: [..., d, 1]
            shape, dtype = self._extended_shape(sample_shape), square.dtype
            normal = gt.randn(shape, dtype=dtype).tril(-1)
            length = normal.square().sum(-1, keepdim=True).sqrt()
            below = square.sqrt() * normal / gt.where(length == 0, 1.0, length)
            rest = (1 - below.square().sum(-1)).clamp(min=gt.finfo(dtype).tiny)
            return below + rest.sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        diagonal = self._checked(value).diagonal(dim1=-2, dim2=-1)[..., 1:]
        order = gt.arange(2, self.dim + 1, dtype=self.concentration.dtype)
        power = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        below = self.dim - 1
        alpha = self.concentration + 0.5 * below
        constant = 0.5 * below * math.log(math.pi) + mvlgamma(alpha - 0.5, below)
        return (power * diagonal.log()).sum(-1) - constant + alpha.lgamma() * below
