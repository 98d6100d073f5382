"""Random tensors and the generator's state: every value follows from (seed, draw, place).

Draws are numbered by the client, so a layout changes no value. No random number is made here.
"""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

import math
from collections.abc import Sequence
from typing import TypeAlias

from gt import _core
from gt._core import Tensor, call
from gt.compat import misses
from gt.composite.casts import cast
from gt.composite.common import Number, Shape, broadcast_shapes, sizes, whole
from gt.composite.complex_numbers import view_as_complex
from gt.errors import InvalidType, ShapeError
from gt.tensors.creation import finish, shape_of, size_only, takes_no_out
from gt.tensors.draws import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    is_finite,
    manual_seed,
    next_draw,
    seed,
    set_rng_state,
)
from gt.tensors.draws import fork_rng as fork_rng  # noqa: PLC0414 - it is shown, in no `__all__`
from gt.tensors.dtypes import check_layout, get_default_dtype

Size: TypeAlias = int | Sequence[int]


def drawn(
    op: str,
    size: Shape,
    dtype: _core.dtype | None,
    generator: Generator | None,
    requires_grad: bool = False,
    **attrs: Number,
) -> Tensor:
    """One draw of the operator `op`; of a complex dtype the parts are drawn alike."""
    chosen = get_default_dtype() if dtype is None else dtype
    if chosen.is_complex and op in {"uniform", "normal"}:
        # of a variance of 1 each part has a half, as in PyTorch
        parts = attrs | {"std": attrs["std"] * math.sqrt(0.5)} if op == "normal" else attrs
        pairs = drawn(op, (*size, 2), _part_of(chosen), generator, False, **parts)
        out = view_as_complex(pairs)
        return finish(out, requires_grad)
    key, draw = next_draw(generator)
    out = call(op, size=size, dtype=chosen, seed=key, draw=draw, **attrs)
    return finish(out, requires_grad)


def _part_of(dtype: _core.dtype) -> _core.dtype:
    return _core.float64 if dtype == _core.complex128 else _core.float32


def drawn_like(
    like: Tensor,
    kind: str,
    dtype: _core.dtype | None,
    generator: Generator | None,
    parameters: tuple[Number, Number],
    *,
    requires_grad: bool = False,
) -> Tensor:
    """One draw of the operator `kind` of the shape of `like`, in its layout."""
    chosen = like.dtype if dtype is None else dtype
    first, second = parameters
    if chosen.is_complex and kind in {"uniform", "normal"}:
        names = ("low", "high") if kind == "uniform" else ("mean", "std")
        named = dict(zip(names, parameters, strict=True))
        return drawn(kind, like.shape, chosen, generator, requires_grad, **named)
    key, draw = next_draw(generator)
    attrs = {"size": like.shape, "dtype": chosen, "kind": kind}
    attrs |= {"first": first, "second": second, "seed": key, "draw": draw}
    out = call("random_like", like.detach(), **attrs)
    return finish(out, requires_grad)


def rand(
    *size: Size,
    generator: Generator | None = None,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
    **named: Size,
) -> Tensor:
    """Uniform values in [0, 1)."""
    check_layout(layout, "rand")
    return drawn(
        "uniform",
        shape_of(size, size_only(named, "rand"), "rand"),
        dtype,
        generator,
        requires_grad,
        low=0.0,
        high=1.0,
    )


def randn(
    *size: Size,
    generator: Generator | None = None,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
    **named: Size,
) -> Tensor:
    """Normally distributed values with mean 0 and deviation 1."""
    check_layout(layout, "randn")
    return drawn(
        "normal",
        shape_of(size, size_only(named, "randn"), "randn"),
        dtype,
        generator,
        requires_grad,
        mean=0.0,
        std=1.0,
    )


@takes_no_out
def randint(
    *bounds_and_size: Size,
    low: int | None = None,
    high: int | None = None,
    size: Size | None = None,
    generator: Generator | None = None,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """Integers in [low, high): `randint(high, size)` or `randint(low, high, size)`."""
    check_layout(layout, "randint")
    arguments = list(bounds_and_size)
    shape = size if size is not None else arguments.pop() if arguments else None
    if shape is None:
        raise InvalidType("randint() takes (high, size) or (low, high, size)")
    first, last = limits_of(low, *arguments, high)
    chosen = _core.int64 if dtype is None else dtype
    drawn_size = sizes((shape,), "randint")
    return drawn("randint", drawn_size, chosen, generator, requires_grad, low=first, high=last)


def limits_of(*given: object) -> tuple[int, int]:
    """[low, high) of one or two integers."""
    limits = [n for n in map(whole, given) if n is not None]
    if not 1 <= len(limits) <= 2:
        raise InvalidType("randint() takes (high, size) or (low, high, size)")
    first, last = (0, limits[0]) if len(limits) == 1 else limits
    if first >= last:
        raise ShapeError(
            f"random_ expects 'from' to be less than 'to', but got from={first} >= to={last}"
        )
    return first, last


@takes_no_out
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """The numbers from 0 to n - 1 in random order: the order of `n` uniform numbers."""
    check_layout(layout, "randperm")
    keys = drawn("uniform", (n,), _core.float64, generator, low=0.0, high=1.0)
    order = call("sort", keys, dim=0, descending=False, stable=True)[1]
    return finish(order if dtype is None else cast(order, dtype), requires_grad)


@takes_no_out
def normal(
    mean: float | Tensor = 0.0,
    std: float | Tensor = 1.0,
    size: Size | None = None,
    *,
    generator: Generator | None = None,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """Normally distributed values; `mean` and `std` are numbers with a size, or tensors."""
    check_layout(layout, "normal")
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
        shape = broadcast_shapes(*(x.shape for x in tensors))
        unit = drawn("normal", shape, tensors[0].dtype, generator, mean=0.0, std=1.0)
        return unit * std + mean
    if size is None:
        raise InvalidType("normal() of two numbers needs a size")
    if not std >= 0:
        raise ShapeError(f"normal expects std >= 0.0, but found std {std}")
    mean, std, shape = float(mean), float(std), sizes((size,), "normal")
    if not is_finite(get_default_dtype() if dtype is None else dtype, mean, std):
        unit = drawn("normal", shape, dtype, generator, mean=0.0, std=1.0)
        return (unit * std + mean).requires_grad_(requires_grad)
    return drawn("normal", shape, dtype, generator, requires_grad, mean=mean, std=std)


def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
    memory_format: object = None,
) -> Tensor:
    """Uniform values in [0, 1) of `input`'s shape and dtype."""
    check_layout(layout, "rand_like")
    limits = (0.0, 1.0)
    return drawn_like(input, "uniform", dtype, generator, limits, requires_grad=requires_grad)


def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
    memory_format: object = None,
) -> Tensor:
    """Normally distributed values of `input`'s shape and dtype."""
    check_layout(layout, "randn_like")
    limits = (0.0, 1.0)
    return drawn_like(input, "normal", dtype, generator, limits, requires_grad=requires_grad)


def randint_like(
    input: Tensor,
    *bounds: int,
    low: int | None = None,
    high: int | None = None,
    generator: Generator | None = None,
    dtype: _core.dtype | None = None,
    device: object = None,
    layout: object = None,
    pin_memory: bool = False,
    memory_format: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high) of `input`'s shape and dtype."""
    check_layout(layout, "randint_like")
    return drawn_like(
        input,
        "randint",
        dtype,
        generator,
        limits_of(low, *bounds, high),
        requires_grad=requires_grad,
    )


__all__ = [
    "Generator",
    "default_generator",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "normal",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "seed",
    "set_rng_state",
]


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Names that users type; `fork_rng` is no name of `gt`, as it is none of PyTorch's."""
    return [*__all__, fork_rng.__name__]
