"""The table of gradient rules, and what more than one family uses; no operator's rule."""

import dis
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from gt import _core
from gt._core import Tensor, call
from gt.errors import NotDifferentiable

Shape: TypeAlias = tuple[int, ...]
Rule: TypeAlias = Callable[..., Tensor | None]
Made = TypeVar("Made")


class Saved(Protocol):
    """What a forward instruction kept: operands, outputs and attributes by name (hence `Any`)."""

    def shape_of(self, operand: str, k: int = 0) -> Any: ...
    def dtype_of(self, operand: str, k: int = 0) -> Any: ...
    def needs(self, operand: str, k: int = 0) -> bool: ...
    def once(self, make: Callable[[], Made]) -> Made: ...
    def __getattr__(self, name: str) -> Any: ...


LOOK_UPS = ("LOAD_ATTR", "LOAD_METHOD")
GRADIENTS: dict[str, tuple[Rule | None, ...]] = {}


def gradient(op: str, **rules: Rule | None) -> None:
    """Enter the rules of `op`, one for each operand in the row's order; None: never a gradient."""
    GRADIENTS[op] = tuple(rules.values())


def zeros(g: Tensor, s: Saved, operand: str, k: int = 0) -> Tensor:
    """Zeros of an operand's shape and dtype, where the gradient is."""
    return call("full_like", g, size=s.shape_of(operand, k), value=0, dtype=s.dtype_of(operand, k))


def zero(g: Tensor, s: Saved) -> Tensor:
    """The gradient of a step function: zero everywhere."""
    return call("full_like", g, size=g.shape, value=0, dtype=g.dtype)


def same(g: Tensor, s: Saved) -> Tensor:
    return g


def refused(aten: str) -> Rule:
    """A rule that raises PyTorch's error when a gradient is asked for."""

    def rule(g: Tensor, s: Saved) -> Tensor:
        raise NotDifferentiable(f"derivative for aten::{aten} is not implemented")

    return rule


def used(rule: Rule) -> tuple[str, ...] | None:
    """The names that `rule` looks up in what was saved, by its code; None where it passes `s` on.

    The tape asks once an operator and saves nothing that no needed rule uses.
    """
    code = getattr(rule, "__code__", None)
    if code is None or code.co_argcount < 2 or code.co_cellvars:
        return None
    saved, names = code.co_varnames[1], []
    steps = list(dis.get_instructions(code))
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        loaded = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if step.opname.startswith("LOAD_FAST") and saved in loaded:
            alone = loaded[-1] == saved and loaded.count(saved) == 1
            if not alone or following is None or following.opname not in LOOK_UPS:
                return None
            names.append(str(following.argval))
    return tuple(names)


def cast(g: Tensor, dtype: _core.dtype) -> Tensor:
    return g if g.dtype == dtype else call("cast", g, dtype=dtype)


def dims_of(dim: int | Sequence[int] | None, ndim: int) -> Shape:
    """The reduced dimensions as non-negative numbers; none given means all."""
    given = (dim,) if isinstance(dim, int) else tuple(dim or range(ndim))
    return tuple(d % max(ndim, 1) for d in given)


def keep(x: Tensor, shape: Shape, dim: int | Sequence[int] | None) -> Tensor:
    """A reduction's result with its reduced dimensions back as size 1."""
    dims = dims_of(dim, len(shape))
    return x.reshape(tuple(1 if d in dims else n for d, n in enumerate(shape)))


def reduced_count(shape: Shape, dim: int | Sequence[int] | None) -> int:
    dims = dims_of(dim, len(shape))
    return math.prod(n for d, n in enumerate(shape) if d in dims)


def spread(g: Tensor, s: Saved) -> Tensor:
    """The gradient of a sum: the same for each element that went in."""
    shape = s.shape_of("self")
    return cast(keep(g, shape, s.dim), s.dtype_of("self")).expand(shape)


def sum_to(g: Tensor, shape: Shape) -> Tensor:
    """The sum over the dimensions in which `shape` was broadcast to g's shape."""
    if g.shape == tuple(shape):
        return g
    lead = g.ndim - len(shape)
    grown = tuple(lead + d for d, n in enumerate(shape) if n == 1 and g.shape[lead + d] != 1)
    dims = tuple(range(lead)) + grown
    total = call("sum", g, dim=dims, keepdim=False) if dims else g
    return total.reshape(shape) if grown else total
