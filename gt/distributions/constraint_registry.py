"""Registries of the transforms that lead to a constrained region: `biject_to` and
`transform_to`.
"""

from collections.abc import Callable
from typing import TypeVar, overload

from gt.distributions import constraints, transforms
from gt.distributions.constraints import Constraint
from gt.distributions.transform import Transform
from gt.distributions.utils import is_number
from gt.errors import InvalidType, NotSupported

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = TypeVar("Factory", bound=Callable[..., Transform])


class ConstraintRegistry:
    """Classes of constraints -> functions that make a transform for one of them."""

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Callable[..., Transform]] = {}

    @overload
    def register(
        self, constraint: Constraint | type[Constraint], factory: None = None
    ) -> Callable[[Factory], Factory]: ...

    @overload
    def register(self, constraint: Constraint | type[Constraint], factory: Factory) -> Factory: ...

    def register(
        self, constraint: Constraint | type[Constraint], factory: Factory | None = None
    ) -> Factory | Callable[[Factory], Factory]:
        """Registers a function for a class of constraints, also as a decorator.

        Args:
            constraint: a class, or an instance of it.
            factory: function that makes the transform for a constraint of the class.

        Raises:
            InvalidType: `constraint` is no constraint.
        """
        if factory is None:
            return lambda function: self.register(constraint, function)
        key: object = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(key, type) or not issubclass(key, Constraint):
            raise InvalidType(
                "Expected constraint to be either a Constraint subclass or instance, "
                f"but got {constraint}"
            )
        self._registry[key] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform from real numbers to the region.

        Raises:
            NotSupported: no function is registered for the class.
        """
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotSupported(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _above(c: constraints._GreaterThan) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(c.lower_bound, 1)]
    )


def _below(c: constraints._LessThan) -> Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(c.upper_bound, -1)]
    )


def _between(c: constraints._Interval) -> Transform:
    low, high = c.lower_bound, c.upper_bound
    if is_number(low, high) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    scaled = transforms.AffineTransform(low, high - low)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), scaled])


def _fill(registry: ConstraintRegistry) -> None:
    """Register the transforms that both registries have."""
    register = registry.register
    register(constraints.real, lambda _: transforms.identity_transform)
    register(constraints.greater_than, _above)
    register(constraints.greater_than_eq, _above)
    register(constraints.less_than, _below)
    register(constraints.interval, _between)
    register(constraints.half_open_interval, _between)
    register(constraints.corr_cholesky, lambda _: transforms.CorrCholeskyTransform())
    register(
        constraints.independent,
        lambda c: transforms.IndependentTransform(
            registry(c.base_constraint), c.reinterpreted_batch_ndims
        ),
    )
    register(
        constraints.cat,
        lambda c: transforms.CatTransform([registry(x) for x in c.cseq], c.dim, c.lengths),
    )
    register(
        constraints.stack,
        lambda c: transforms.StackTransform([registry(x) for x in c.cseq], c.dim),
    )


_fill(biject_to)
_fill(transform_to)
biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())
for _matrices in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_matrices, lambda _: transforms.PositiveDefiniteTransform())
