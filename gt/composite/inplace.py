"""In-place methods: a functional result is written into the tensor's cell by `_core.assign_`.

`assign_` checks the tensor (leaves that require a gradient, versions, views); the checks of the
value stand here: it must have the tensor's shape, and its dtype must fit.
"""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

import functools
import inspect
import math
from collections.abc import Callable

import numpy as np

from gt import _core
from gt._core import Tensor, call
from gt.composite.casts import TENSOR_CLASSES
from gt.composite.common import Method, Number, generic, not_a_tensor, sizes
from gt.composite.complex_numbers import view_as_complex, view_as_real
from gt.composite.older_forms import factors_first
from gt.composite.pointwise import bitwise_left_shift, bitwise_right_shift
from gt.composite.selection import bernoulli
from gt.errors import DtypeError, ShapeError
from gt.tensors.draws import Generator, is_finite, next_draw
from gt.tensors.dtypes import as_stored, category, check_layout, result_type

C_NAMES = {
    _core.bool: "bool", _core.uint8: "unsigned char", _core.int8: "signed char",
    _core.int16: "short int", _core.int32: "int", _core.int64: "long int",
}  # fmt: skip
WIDEST = {bool: _core.bool, int: _core.int64, float: _core.float64}


def kind(dtype: _core.dtype) -> int:
    """Rank of a dtype's kind: bool, integer, float or complex. A value may be written into its own
    kind or a higher one.
    """
    return category(dtype)


def write(self: Tensor, value: Tensor) -> Tensor:
    """Writes `value` into `self`, with PyTorch's checks for the operator."""
    if value.shape != self.shape:
        raise ShapeError(
            f"output with shape {list(self.shape)} doesn't match the broadcast shape "
            f"{list(value.shape)}"
        )
    check_kind(self, value.dtype)
    return _core.assign_(self, value, True)


def check_kind(self: Tensor, result: _core.dtype) -> None:
    """Raises PyTorch's error if values of `result` would lose information in `self`."""
    if kind(result) > kind(self.dtype):
        have, want = (TENSOR_CLASSES[repr(d)].removesuffix("Tensor") for d in (result, self.dtype))
        raise DtypeError(f"result type {have} can't be cast to the desired output type {want}")


def inplace(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The method that writes `function`'s result into its first argument."""

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        _core.check_writable(self, *args)
        try:
            value = function(_core.value_before(self), *args, **kwargs)
        except TypeError as error:
            text = str(error).replace(f"{name}(", f"{name}_(", 1)
            raise type(error)(text) from None
        return write(self, value)

    functools.update_wrapper(method, function)  # its signature
    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}`, written into `self`."
    return method


def direct(function: Callable[..., Tensor], name: str) -> Method:
    """The method of `inplace` for a row without attributes: the worker may reuse the tensor's
    buffer.

    Arguments that the function would refuse go through it, for its error.
    """
    general = factors_first(f"{name}_", inplace(function, name), stacklevel=3)
    _, *parameters = inspect.signature(function).parameters.values()
    count = sum(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters)
    is_of_tensors = name in OF_TENSORS

    def method(self: Tensor, *operands: Tensor | Number, **named: object) -> Tensor:
        if named or len(operands) != count:
            return general(self, *operands, **named)
        if is_of_tensors and not isinstance(operands[0], Tensor):
            return general(self, *operands)
        return _core.apply_in_place(name, self, *operands)

    functools.update_wrapper(method, function)  # its signature
    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = general.__doc__
    return method


def bitwise_left_shift_(self: Tensor, other: Tensor | Number) -> Tensor:
    """self * 2**other, written into `self`."""
    check_kind(self, result_type(self, other))
    return shifted_left(self, other)


def bitwise_right_shift_(self: Tensor, other: Tensor | Number) -> Tensor:
    """self / 2**other, rounded down, written into `self`."""
    check_kind(self, result_type(self, other))
    return shifted_right(self, other)


shifted_left = inplace(bitwise_left_shift, "bitwise_left_shift")
shifted_right = inplace(bitwise_right_shift, "bitwise_right_shift")


def clip_(
    self: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None
) -> Tensor:
    """`self` limited to [min, max]."""
    if not isinstance(min, Tensor) and not isinstance(max, Tensor):
        _check_bounds(self, [bound for bound in (min, max) if bound is not None])
    return _core.apply_in_place("clamp", self, min, max)


def _check_bounds(self: Tensor, bounds: list[Number]) -> None:
    """Checks as `check_kind` does, for clamp, whose error in PyTorch names dtypes as C++ does."""
    for bound in bounds:
        result = result_type(self, bound)
        if kind(result) > kind(self.dtype) and self.dtype in C_NAMES:
            have = TENSOR_CLASSES[repr(result)].removesuffix("Tensor")
            want = C_NAMES[self.dtype]
            raise DtypeError(f"result type {have} can't be cast to the desired output type {want}")


def clamp_min_(self: Tensor, min: Tensor | Number) -> Tensor:
    """`self` raised to at least `min`."""
    if self.dtype.is_complex:  # PyTorch refuses complex numbers
        return write(self, generic("clamp_min", self, min))
    return clip_(self, min, None)


def clamp_max_(self: Tensor, max: Tensor | Number) -> Tensor:
    """`self` lowered to at most `max`."""
    if self.dtype.is_complex:  # PyTorch refuses complex numbers
        return write(self, generic("clamp_max", self, max))
    return clip_(self, None, max)


def fill_(self: Tensor, value: Number | complex | Tensor) -> Tensor:
    """Set all elements to `value`."""
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(
            "fill_ only supports 0-dimension value tensor but got tensor with "
            f"{value.ndim} dimensions."
        )
    if isinstance(value, complex) and self.dtype == _core.bool:
        value = bool(value)
    return _core.fill_(self, value)


def zero_(self: Tensor) -> Tensor:
    """Set all elements to zero."""
    return fill_(self, 0)


def copy_(self: Tensor, src: Tensor | Number | complex, non_blocking: bool = False) -> Tensor:
    """Copy the elements of `src`, broadcast and cast; a number is copied everywhere."""
    if isinstance(src, Tensor):
        return _core.assign_(self, src)
    number = src.item() if isinstance(src, np.generic) else src
    if isinstance(number, complex):
        is_part = not self.is_complex() and self.dtype != _core.bool
        return fill_(self, number.real if is_part else number)
    if not isinstance(number, bool | int | float):
        raise not_a_tensor("copy_", "other", 1, src)
    dtype = WIDEST[type(number)]  # cast like a tensor: no number is refused for its size
    return _core.assign_(self, call("full", size=(), value=number, dtype=dtype))


def drawn(
    self: Tensor, generator: Generator | None, kind: str, first: Number, second: Number = 0
) -> Tensor:
    """The generator's next draw for `self`, in its layout; small floats are drawn as float32.

    Both parts of complex numbers are drawn; those of a normal one have half of the variance each.
    """
    if self.is_complex() and kind in {"uniform", "normal"}:
        pairs = view_as_real(self.detach())
        second = second * math.sqrt(0.5) if kind == "normal" else second
        return view_as_complex(drawn(pairs, generator, kind, first, second))
    if kind == "normal" and not is_finite(self.dtype, first, second):
        return drawn(self, generator, kind, 0.0, 1.0) * second + first
    seed, draw = next_draw(generator)
    dtype = _core.float64 if self.dtype == _core.float64 else _core.float32
    return call(
        "random_like",
        self.detach(),
        size=self.shape,
        dtype=_core.int64 if kind == "randint" else dtype,
        kind=kind,
        first=first,
        second=second,
        seed=seed,
        draw=draw,
    )


def float_power_(self: Tensor, exponent: Tensor | Number | complex) -> Tensor:
    """`self` to the power of `exponent`, in double precision."""
    is_complex = isinstance(exponent, complex) or self.is_complex()
    is_complex = is_complex or (isinstance(exponent, Tensor) and exponent.is_complex())
    wanted = _core.complex128 if is_complex else _core.float64
    if self.dtype != wanted:
        have, want = (TENSOR_CLASSES[repr(d)].removesuffix("Tensor") for d in (self.dtype, wanted))
        raise DtypeError(
            f"the base given to float_power_ has dtype {have} but the operation's result requires "
            f"dtype {want}"
        )
    power: Callable[..., Tensor] = Tensor.float_power
    return inplace(power, "float_power")(self, exponent)


def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normally distributed values."""
    if not std >= 0:
        raise ShapeError(f"normal expects std >= 0.0, but found std {std}")
    return _core.assign_(self, drawn(self, generator, "normal", float(mean), float(std)))


def uniform_(
    self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with uniform values from [from, to)."""
    if from_ > to:
        raise ShapeError(
            "uniform_ expects to return a [from, to) range, but found "
            f"from={float(from_):g} > to={float(to):g}"
        )
    return _core.assign_(self, drawn(self, generator, "uniform", float(from_), float(to)))


def random_(
    self: Tensor, from_: int = 0, to: int | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Fill with integers from [from, to); `random_(n)` is [0, n), `random_()` the dtype's whole
    range.
    """
    if to is None and from_ == 0:
        to = HIGHEST[repr(self.dtype)]
    low, high = (0, from_) if to is None else (from_, to)
    if low >= high:
        raise ShapeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    return _core.assign_(self, drawn(self, generator, "randint", low, high))


def bernoulli_(
    self: Tensor, p: float | Tensor = 0.5, *, generator: Generator | None = None
) -> Tensor:
    """Fill with ones of probability `p`, else zeros."""
    if isinstance(p, Tensor):
        limit = p.detach().expand(self.shape)
        return _core.assign_(self, bernoulli(limit, generator=generator))
    if not 0 <= p <= 1:
        raise ShapeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    return _core.assign_(self, drawn(self, generator, "bernoulli", float(p)))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponentially distributed values with rate `lambd`."""
    if lambd <= 0:
        raise ShapeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    one = drawn(self, generator, "uniform", 0.0, 1.0)
    return _core.assign_(self, -(-one).log1p() / lambd)


def new_full(
    self: Tensor,
    size: tuple[int, ...],
    fill_value: Number | complex,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of `size` filled with `fill_value`, of this dtype."""
    check_layout(layout, "new_full")
    chosen = dtype or self.dtype
    if isinstance(fill_value, complex):
        out = call("full_like", self, size=tuple(size), value=0, dtype=chosen).fill_(fill_value)
    else:
        out = call(
            "full_like", self, size=tuple(size), value=as_stored(fill_value, chosen), dtype=chosen
        )
    return out.requires_grad_() if requires_grad else out


def new_zeros(self: Tensor, *size: int | tuple[int, ...], **options: object) -> Tensor:
    """Zeros of `size`, of this dtype."""
    return new_full(self, named_size(size, options), 0, **options)  # type: ignore[arg-type]


def new_ones(self: Tensor, *size: int | tuple[int, ...], **options: object) -> Tensor:
    """Ones of `size`, of this dtype."""
    return new_full(self, named_size(size, options), 1, **options)  # type: ignore[arg-type]


def named_size(
    size: tuple[int | tuple[int, ...], ...], options: dict[str, object]
) -> tuple[int, ...]:
    """The size, given by position or as `size=`."""
    named = options.pop("size", None)
    return tuple(named) if isinstance(named, (tuple, list)) else sizes(size)


HIGHEST = {
    "gt.bool": 2,
    "gt.uint8": 2**8,
    "gt.int8": 2**7,
    "gt.int16": 2**15,
    "gt.int32": 2**31,
    "gt.int64": 2**63 - 1,
    "gt.float16": 2**11 + 1,
    "gt.bfloat16": 2**8 + 1,
    "gt.float32": 2**24 + 1,
    "gt.float64": 2**53 + 1,
}

# Rows without attributes that PyTorch also has in place.
DIRECT = (
    "abs", "acos", "acosh", "add", "asin", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "ceil", "cos", "cosh", "digamma", "div", "eq", "erf", "erfc",
    "erfinv", "exp", "expm1", "floor", "floor_divide", "fmod", "ge", "gt", "hypot", "ldexp", "le",
    "lerp", "lgamma", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "lt", "masked_fill", "mul", "ne", "neg", "nextafter", "pow", "reciprocal",
    "relu", "remainder", "round", "rsqrt", "sigmoid", "sign", "sin", "sinc", "sinh", "sqrt",
    "square", "sub", "tan", "tanh", "trunc", "xlogy",
)  # fmt: skip

# Rows among these whose operand must be a tensor (the column `tensors`).
OF_TENSORS = frozenset({
    "atan2", "hypot", "ldexp", "logical_and", "logical_or", "logical_xor", "nextafter",
})  # fmt: skip

# Other methods that PyTorch also has in place.
GENERAL = (
    "absolute", "addcdiv", "addcmul", "addmm", "addmv", "addr", "baddbmm", "copysign", "cumprod",
    "cumsum", "divide", "exp2", "frac", "index_add", "index_copy", "index_fill", "index_put",
    "index_reduce", "logit", "multiply", "nan_to_num", "negative", "polygamma", "renorm", "scatter",
    "scatter_add", "scatter_reduce", "sgn", "subtract", "tril", "triu", "true_divide",
)  # fmt: skip

LOGICAL = ("logical_and", "logical_not", "logical_or", "logical_xor")

METHODS: dict[str, Method] = {
    "bitwise_left_shift_": bitwise_left_shift_,
    "bitwise_right_shift_": bitwise_right_shift_,
    "__ilshift__": bitwise_left_shift_,
    "__irshift__": bitwise_right_shift_,
    "clamp_": clip_,
    "clip_": clip_,
    "clamp_min_": clamp_min_,
    "clamp_max_": clamp_max_,
    "fill_": fill_,
    "zero_": zero_,
    "copy_": copy_,
    "float_power_": float_power_,
    "normal_": normal_,
    "uniform_": uniform_,
    "random_": random_,
    "bernoulli_": bernoulli_,
    "exponential_": exponential_,
    "new_full": new_full,
    "new_zeros": new_zeros,
    "new_ones": new_ones,
    "new_empty": new_zeros,
}


def methods() -> dict[str, Method]:
    """All in-place methods; to be called once the functional ones are attached."""
    table: dict[str, Method] = {f"{name}_": direct(getattr(Tensor, name), name) for name in DIRECT}
    for name in GENERAL:
        table[f"{name}_"] = factors_first(f"{name}_", inplace(getattr(Tensor, name), name))
    table |= {name: _of_reals(table[name]) for name in ("abs_", "absolute_")}
    table |= {f"{name}_": _outside_the_graph(table[f"{name}_"]) for name in LOGICAL}
    return table | METHODS


def _outside_the_graph(method: Method) -> Method:
    """`method` without recording, as in PyTorch: the gradient passes as if nothing were written."""

    @functools.wraps(method)
    def called(self: Tensor, *args: object, **named: object) -> Tensor:
        method(self.detach(), *args, **named)
        return self

    return called


def _of_reals(method: Method) -> Method:
    """`method` with a real result, which PyTorch refuses to write into complex numbers."""

    @functools.wraps(method)
    def called(self: Tensor) -> object:
        if self.is_complex():
            raise ShapeError("In-place abs is not supported for complex tensors.")
        return method(self)

    return called
