"""Dimensions of a batch as dimensions of one event."""

from typing import Generic, TypeVar

from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.utils import sum_rightmost
from gt.errors import InvalidValue, NotSupported

__all__ = ["Independent"]

Base = TypeVar("Base", bound=Distribution)


class Independent(Distribution, Generic[Base]):
    """`base_distribution` with batch dimensions in the event: `log_prob` sums over them.

    Args:
        base_distribution: any distribution.
        reinterpreted_batch_ndims: how many dimensions.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: more dimensions than the batch has.
    """

    arg_constraints = {}
    _batched = {"base_dist": 0}
    base_dist: Base

    def __init__(
        self,
        base_distribution: Base,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch, event = base_distribution.batch_shape, base_distribution.event_shape
        if reinterpreted_batch_ndims > len(batch):
            raise InvalidValue(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(batch)}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        batch_dims = len(batch) - reinterpreted_batch_ndims
        super().__init__(
            batch[:batch_dims], batch[batch_dims:] + event, validate_args=validate_args
        )

    def expand(
        self, batch_shape: Shape, _instance: "Independent[Base] | None" = None
    ) -> "Independent[Base]":
        new = self._get_checked_instance(Independent, _instance)
        event = self._event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*batch_shape, *event))
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        return self._finished(new, batch_shape)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> constraints.Constraint | None:
        """The support of the base distribution, over more dimensions."""
        base = self.base_dist.support
        if base is None or not self.reinterpreted_batch_ndims:
            return base
        return constraints.independent(base, self.reinterpreted_batch_ndims)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotSupported("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
