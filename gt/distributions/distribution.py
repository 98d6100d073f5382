"""Base class of distributions: shapes, checks of arguments, and shared methods."""

import warnings
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

import gt
from gt import Size, Tensor
from gt.distributions import constraints, few_numbers
from gt.distributions.constraints import Constraint
from gt.distributions.utils import lazy_property
from gt.errors import InvalidValue, NotSupported

__all__ = ["Distribution"]

Self = TypeVar("Self", bound="Distribution")
Shape = Sequence[int]


class Distribution:
    """A probability distribution over tensors, batched over its parameters.

    Args:
        batch_shape: shape of the batch of independent distributions.
        event_shape: shape of one sample of one of them.
        validate_args: whether parameters and values are checked, which reads one boolean each time;
            the default is set by `set_default_validate_args` (True, except under `python -O`).

    Raises:
        InvalidValue: a parameter outside of its constraint.
    """

    has_rsample: bool = False
    has_enumerate_support: bool = False
    _validate_args: bool = __debug__
    # Parameters that `expand` expands, each with the number of dimensions of its event.
    _batched: ClassVar[Mapping[str, int]] = {}

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set the default of `validate_args` for distributions that are made from now on."""
        if value not in {True, False}:
            raise InvalidValue(f"validate_args must be True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Size = Size(),  # noqa: B008 - no one can change it
        event_shape: Size = Size(),  # noqa: B008
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self) -> None:
        """Check all constraints with one read: of the numbers where they are few."""
        try:
            limits = dict(self.arg_constraints)
        except NotImplementedError:
            limits = {}
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. "
                "Please set `arg_constraints = {}` or initialize the distribution "
                "with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
        given = [
            (name, limit, getattr(self, name))
            for name, limit in limits.items()
            if not constraints.is_dependent(limit) and self._is_given(name)
        ]
        if _few_hold([(limit, value) for _, limit, value in given]):
            return
        checked = [(name, limit, _all(limit.check(value))) for name, limit, value in given]
        for (name, limit, _), valid in zip(checked, _read(*(c[2] for c in checked)), strict=True):
            if not valid:
                value = getattr(self, name)
                raise InvalidValue(
                    f"Expected parameter {name} "
                    f"({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} to satisfy the constraint {limit!r}, "
                    f"but found invalid values:\n{value}"
                )

    def _is_given(self, name: str) -> bool:
        """True if a parameter is set and need not be computed from others."""
        return name in vars(self) or not isinstance(getattr(type(self), name), lazy_property)

    def expand(self: Self, batch_shape: Shape, _instance: Self | None = None) -> Self:
        """A copy of the distribution with its batch expanded to `batch_shape`; nothing is checked.

        Args:
            batch_shape: shape to which the parameters are expanded, as by `Tensor.expand`.
            _instance: from a subclass that overrides this method: the instance to fill in.
        """
        if not self._batched:
            raise NotImplementedError
        new = self._get_checked_instance(class_of_ours(type(self)), _instance)
        self._expand_parameters(new, Size(batch_shape))
        return self._finished(new, batch_shape)

    def _expand_parameters(self: Self, new: Self, batch: Size) -> None:
        """Set the parameters of `new` and the attributes that go with them."""
        for name, dims in self._batched.items():
            value = vars(self).get(name)
            if isinstance(value, Distribution):
                vars(new)[name] = value.expand(batch)
            elif value is not None:
                vars(new)[name] = value.expand((*batch, *value.shape[value.ndim - dims :]))
        self._copy_rest(new)

    def _finished(self: Self, new: Self, batch_shape: Shape) -> Self:
        """The instance that `expand` has filled in, with its shapes set."""
        Distribution.__init__(new, Size(batch_shape), self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _copy_rest(self: Self, new: Self) -> None:
        """Copy the attributes that `expand` takes over besides the parameters."""

    @property
    def batch_shape(self) -> Size:
        """The shape of the independent distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one of them."""
        return self._event_shape

    @property
    def arg_constraints(self) -> Mapping[str, Constraint]:
        """Parameter -> the constraint that it must satisfy."""
        raise NotImplementedError

    @property
    def support(self) -> Constraint | None:
        """The region of possible samples."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean, of the shape of batch and event."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value, of the shape of batch and event."""
        raise NotSupported(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance, of the shape of batch and event."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation, of the shape of batch and event."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """A sample without gradients, of the shape `sample_shape` + batch + event."""
        with gt.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        """A sample that is a differentiable function of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """PyTorch's old way to write `sample((n,))`."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability of `value`."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a sample that is not above `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution along dimension 0.

        Args:
            expand: over the batch; else its dimensions have the size 1.
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy of each distribution of the batch, in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Shape = ()) -> Size:
        """The shape of a sample."""
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _along(self, values: Tensor, expand: bool) -> Tensor:
        """Values of a discrete distribution [k, ...event] before its batch."""
        ones = [1] * len(self._batch_shape)
        values = values.reshape((-1, *ones, *values.shape[1:]))  # [k, 1 for each of batch, event]
        shape = (values.shape[0], *self._batch_shape, *values.shape[1 + len(ones) :])
        return values.expand(shape) if expand else values

    def _checked(self, value: Tensor) -> Tensor:
        """`value` itself, checked where arguments are."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value: Tensor) -> None:
        """PyTorch's errors for a value of another shape or outside of the support."""
        if not isinstance(value, Tensor):
            raise InvalidValue("The value argument to log_prob must be a Tensor")
        dims = len(self._event_shape)
        if value.shape[max(value.ndim - dims, 0) :] != self._event_shape:
            raise InvalidValue(
                "The right-most size of value must match event_shape: "
                f"{value.shape} vs {self._event_shape}."
            )
        whole = self._batch_shape + self._event_shape
        for have, want in zip(reversed(value.shape), reversed(whole), strict=False):
            if have != want and 1 not in {have, want}:
                raise InvalidValue(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{value.shape} vs {whole}."
                )
        self._check_support(value)

    def _check_support(self, value: Tensor) -> None:
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable "
                "sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        if support is None:
            raise AssertionError("support is unexpectedly None")
        if few_numbers.can_check(support):
            few = few_numbers.of_program(value)
            few = few_numbers.read_together([value])[0] if few is None else few
            if few_numbers.surely(support, few, _row(value)):
                return
        if not all(_read(_all(support.check(value)))):
            raise InvalidValue(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def _get_checked_instance(
        self: Self, cls: "type[Distribution]", _instance: Self | None = None
    ) -> Self:
        """The instance that `expand` fills in: a bare one, unless a subclass passes its own."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:
            raise NotSupported(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom "
                "__init__ method must also define a custom .expand() method."
            )
        return object.__new__(type(self))

    def __repr__(self) -> str:
        parameters = {name: vars(self)[name] for name in self.arg_constraints if name in vars(self)}
        words = (f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in parameters.items())
        return f"{type(self).__name__}({', '.join(words)})"


def class_of_ours(cls: type[Distribution]) -> type[Distribution]:
    """The nearest base class that this package defines, or the class itself."""
    package = __name__.rpartition(".")[0]
    return next(c for c in cls.__mro__ if c.__module__.startswith(package))


def _few_hold(parts: Sequence[tuple[Constraint, Tensor]]) -> bool:
    """True if values of a few numbers are certain to be inside their regions."""
    if not parts or not all(few_numbers.can_check(limit) for limit, _ in parts):
        return False
    numbers = few_numbers.read_together([value for _, value in parts])
    return all(
        few_numbers.surely(limit, each, _row(value))
        for (limit, value), each in zip(parts, numbers, strict=True)
    )


def _row(value: Tensor) -> int:
    """Size of the last dimension."""
    return value.shape[-1] if value.ndim else 1


def _all(check: Tensor) -> Tensor:
    """True if a check holds everywhere, without dimensions."""
    return check.all() if check.ndim else check


def _read(*checks: Tensor) -> list[bool]:
    """Booleans of tensors without dimensions, in one round trip."""
    if len(checks) < 2:
        return [bool(check) for check in checks]
    return [bool(valid) for valid in gt.stack(list(checks)).numpy()]
