"""Transforms of values and their densities: base class, inverses and compositions."""

from collections.abc import Sequence
from typing import TypeVar

import gt
from gt import Size, Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.distribution import Shape
from gt.distributions.utils import lazy_property, sum_rightmost
from gt.errors import InvalidValue, NotSupported

Self = TypeVar("Self", bound="Transform")


class Transform:
    """A function that can be inverted, with the logarithm of its derivative's magnitude.

    A subclass defines `_call`, `_inverse` and `log_abs_det_jacobian`.

    Args:
        cache_size: 1 keeps the last argument and result, so that the inverse of the result is
            the argument itself; 0 keeps nothing.

    Raises:
        InvalidValue: another `cache_size`.
    """

    bijective: bool = False
    domain: Constraint
    codomain: Constraint

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in {0, 1}:
            raise InvalidValue("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Transform | None = None
        self._cached: tuple[Tensor | None, Tensor | None] = (None, None)

    @property
    def event_dim(self) -> int:
        """Number of dimensions of one event, before and after the transform."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise InvalidValue("Please use either .domain.event_dim or .codomain.event_dim")
        return self.domain.event_dim

    @property
    def inv(self) -> "Transform":
        """The inverse, whose inverse is this one."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def sign(self) -> "int | Tensor":
        """The sign of the derivative of a monotone function of numbers."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> "Transform":
        """The transform with a cache, or without one."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is not Transform.__init__:
            raise NotSupported(f"{type(self)}.with_cache is not implemented")
        return type(self)(cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        before, after = self._cached
        if after is not None and x is before:
            return after
        y = self._call(x)
        self._keep(x, y)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        before, after = self._cached
        if before is not None and y is after:
            return before
        x = self._inverse(y)
        self._keep(x, y)
        return x

    def _keep(self, x: Tensor, y: Tensor) -> None:
        if self._cache_size:
            self._cached = (x, y)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx| at the argument `x` and its result `y`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def forward_shape(self, shape: Shape) -> Size:
        """The shape of the result for an argument of `shape`."""
        return Size(shape)

    def inverse_shape(self, shape: Shape) -> Size:
        """The shape of the argument for a result of `shape`."""
        return Size(shape)


class ByClass(Transform):
    """A transform without parameters: all of one class are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self))

    __hash__ = Transform.__hash__


class _InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._forward = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        """The region of the transform's results."""
        return self._forward.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        """The region of the transform's arguments."""
        return self._forward.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self._forward.bijective

    @property
    def sign(self) -> int | Tensor:
        return self._forward.sign

    @property
    def inv(self) -> Transform:
        return self._forward

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._forward.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._forward == other._forward

    __hash__ = Transform.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._forward!r})"

    def __call__(self, x: Tensor) -> Tensor:
        return self._forward._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._forward.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Shape) -> Size:
        return self._forward.inverse_shape(shape)

    def inverse_shape(self, shape: Shape) -> Size:
        return self._forward.forward_shape(shape)


def widened(constraint: Constraint, event_dim: int) -> Constraint:
    """`constraint` over events of `event_dim` dimensions."""
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


class ComposeTransform(Transform):
    """Several transforms, the first one first.

    Args:
        parts: the transforms.
        cache_size: for each of them.
    """

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        if cache_size:
            parts = [part.with_cache(cache_size) for part in parts]
        super().__init__(cache_size=cache_size)
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        """The domain of the first part, over as many dimensions as any part's events need."""
        if not self.parts:
            return constraints.real
        dims = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            dims = max(
                dims + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim
            )
        return widened(self.parts[0].domain, dims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        """The codomain of the last part, over as many dimensions as any part's events need."""
        if not self.parts:
            return constraints.real
        dims = self.parts[0].domain.event_dim
        for part in self.parts:
            dims = max(
                dims + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim
            )
        return widened(self.parts[-1].codomain, dims)

    @lazy_property
    def bijective(self) -> bool:
        """True if all parts are bijective."""
        return all(part.bijective for part in self.parts)

    @lazy_property
    def sign(self) -> int | Tensor:
        """The product of the parts' signs."""
        sign: int | Tensor = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        if self._inv is None:
            self._inv = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Tensor | None = None
        dims = self.domain.event_dim if self.parts else 0
        for place, part in enumerate(self.parts):
            result = y if place == len(self.parts) - 1 else part(x)
            term = part.log_abs_det_jacobian(x, result)
            term = sum_rightmost(term, dims - part.domain.event_dim)
            total = term if total is None else total + term
            dims += part.codomain.event_dim - part.domain.event_dim
            x = result
        return gt.zeros_like(x) if total is None else total

    def forward_shape(self, shape: Shape) -> Size:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return Size(shape)

    def inverse_shape(self, shape: Shape) -> Size:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return Size(shape)

    def __repr__(self) -> str:
        parts = ",\n    ".join(repr(part) for part in self.parts)
        return f"{type(self).__name__}(\n    {parts}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """`base_transform` at each place of some further dimensions, which become the event's.

    Args:
        base_transform: any transform.
        reinterpreted_batch_ndims: how many dimensions.
        cache_size: as of any transform.
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size
        )

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Constraint:
        """The base's, over more dimensions."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Constraint:
        """The base's, over more dimensions."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self.base_transform.bijective

    @property
    def sign(self) -> int | Tensor:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        at_least(x.shape, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        at_least(y.shape, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        change = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(change, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Shape) -> Size:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Shape) -> Size:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """The last dimensions in another shape.

    Args:
        in_shape: shape of an event before the transform.
        out_shape: shape of an event after it.
        cache_size: as of any transform.

    Raises:
        InvalidValue: shapes of different numbers of elements.
    """

    bijective = True

    def __init__(self, in_shape: Shape, out_shape: Shape, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise InvalidValue("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        """Real numbers of `in_shape`."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        """Real numbers of `out_shape`."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self._batch(x, self.in_shape) + self.out_shape)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self._batch(y, self.out_shape) + self.in_shape)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return gt.zeros(self._batch(x, self.in_shape), dtype=x.dtype)

    def forward_shape(self, shape: Shape) -> Size:
        return self._reshaped(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Shape) -> Size:
        return self._reshaped(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _batch(value: Tensor, event: Size) -> Size:
        return value.shape[: value.ndim - len(event)]

    @staticmethod
    def _reshaped(shape: Shape, before: Size, after: Size) -> Size:
        at_least(shape, len(before))
        cut = len(shape) - len(before)
        if tuple(shape[cut:]) != before:
            raise InvalidValue(f"Shape mismatch: expected {shape[cut:]} but got {before}")
        return Size((*shape[:cut], *after))


def at_least(shape: Sequence[int], dims: int) -> None:
    """PyTorch's error for too few dimensions."""
    if len(shape) < dims:
        raise InvalidValue("Too few dimensions on input")
