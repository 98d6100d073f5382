"""A distribution of transformed samples."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import Distribution, Shape, class_of_ours
from gt.distributions.independent import Independent
from gt.distributions.transform import ComposeTransform, Transform, widened
from gt.distributions.utils import sum_rightmost
from gt.errors import InvalidValue

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """A distribution whose samples pass through one or several transforms.

    Args:
        base_distribution: the distribution of the samples before the transforms.
        transforms: one, or a list, the first one first.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: something that is no transform, or too few dimensions for it.
    """

    arg_constraints = {}
    base_dist: Distribution
    transforms: list[Transform]

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = _listed(transforms)
        whole = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        base_dims = len(base_distribution.event_shape)
        if len(shape) < whole.domain.event_dim:
            raise InvalidValue(
                "base_distribution needs to have shape with size at least "
                f"{whole.domain.event_dim}, but got {shape}."
            )
        forward = whole.forward_shape(shape)
        wide = whole.inverse_shape(forward)
        if shape != wide:  # parameters of the transforms broadcast with the base
            base_distribution = base_distribution.expand(wide[: len(wide) - base_dims])
        more = whole.domain.event_dim - base_dims
        if more > 0:
            base_distribution = Independent(base_distribution, more)
        self.base_dist = base_distribution
        change = whole.codomain.event_dim - whole.domain.event_dim
        cut = len(forward) - max(whole.codomain.event_dim, base_dims + change)
        super().__init__(forward[:cut], forward[cut:], validate_args=validate_args)

    def expand(
        self, batch_shape: Shape, _instance: "TransformedDistribution | None" = None
    ) -> "TransformedDistribution":
        new = self._get_checked_instance(class_of_ours(type(self)), _instance)
        batch = gt.Size(batch_shape)
        self._expand_parameters(new, batch)
        shape = batch + self.event_shape
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        new.transforms = self.transforms
        return self._finished(new, batch)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Constraint | None:
        """The codomain of the last transform."""
        if not self.transforms:
            return self.base_dist.support
        return widened(self.transforms[-1].codomain, len(self.event_shape))

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with gt.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, value: Tensor) -> Tensor:
        for transform in self.transforms:
            value = transform(value)
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        y, change = self._checked(value), 0.0
        total: Tensor | float = change
        dims = len(self.event_shape)
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            term = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(term, dims - transform.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return total + sum_rightmost(base, dims - len(self.base_dist.event_shape))

    def _turned(self, share: Tensor) -> Tensor:
        """A probability of the base distribution, from below, or from above where the transforms
        decrease.
        """
        sign: int | Tensor = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return share
        return sign * (share - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._turned(value)))


def _listed(transforms: object) -> list[Transform]:
    """The transforms as a list; raises PyTorch's errors for anything else."""
    if isinstance(transforms, Transform):
        return [transforms]
    if not isinstance(transforms, list):
        raise InvalidValue(f"transforms must be a Transform or list, but was {transforms}")
    if not all(isinstance(t, Transform) for t in transforms):
        raise InvalidValue("transforms must be a Transform or a list of Transforms")
    return transforms
