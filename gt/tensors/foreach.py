"""`gt._foreach_add` and the like: PyTorch's operators over lists of tensors, as loops.

Programs call them to launch fewer kernels; here instructions are queued anyway. Signatures are
PyTorch's, in the order in which its parser tries them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

import gt
from gt import _core
from gt._core import Tensor
from gt.compat import misses
from gt.errors import ShapeError
from gt.tensors.aten import binding, schemas
from gt.tensors.aten.call import call

Value: TypeAlias = Any  # a tensor, a number, a list of either, or a dtype
Operator: TypeAlias = Callable[..., Tensor]

_ELEMENTWISE = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor",
    "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_NUMBERS = ("Scalar scalar", "Scalar[] scalars")
_SCALED = ("Tensor other, *, Scalar alpha=1", "Tensor[] other, *, Scalar alpha=1")
_LISTS = "Tensor[] tensor1, Tensor[] tensor2, "
_FACTORS = ("Scalar[] scalars", "Tensor scalars", "Scalar value=1")
# Parameters that follow the list `self` in each overload.
_OVERLOADS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*_ELEMENTWISE, "max", "zero"), ("",)),
    "add": (*_NUMBERS, *_SCALED),
    "sub": (*_NUMBERS, _SCALED[1]),
    **dict.fromkeys(("mul", "div"), (*_NUMBERS, "Tensor other", "Tensor[] other")),
    **dict.fromkeys(
        ("clamp_max", "clamp_min", "maximum", "minimum"), (*_NUMBERS, "Tensor[] other")
    ),
    "pow": ("Scalar exponent", "Scalar[] exponent", "Tensor[] exponent"),
    **dict.fromkeys(("addcdiv", "addcmul"), tuple(_LISTS + factor for factor in _FACTORS)),
    "lerp": tuple(
        f"Tensor[] tensors1, {weight}"
        for weight in ("Scalar weight", "Scalar[] weight", "Tensor[] weights")
    ),
    **dict.fromkeys(("norm", "powsum"), ("Scalar ord=2, ScalarType? dtype=None",)),
    "mm": ("Tensor[] mat2",),
    "clone": ("*, MemoryFormat? memory_format=None",),
    "copy": ("Tensor[] src, bool non_blocking=False",),
}
_WRITTEN_ONLY = {"copy", "zero"}
_RETURNED_ONLY = {"clone", "max", "mm", "norm", "powsum"}
_EUCLIDEAN = 2
# Operators that differ from the method of the name.
_METHODS = {"maximum": "clamp_min", "minimum": "clamp_max"}
NAMES = sorted(
    [f"_foreach_{name}" for name in _OVERLOADS.keys() - _WRITTEN_ONLY]
    + [f"_foreach_{name}_" for name in _OVERLOADS.keys() - _RETURNED_ONLY]
)


@functools.cache
def _candidates(name: str) -> tuple[schemas.Schema, ...]:
    """The overloads of `_foreach_name`."""
    texts = [f"Tensor[] self, {rest}".removesuffix(", ") for rest in _OVERLOADS[name]]
    if name == "pow":
        texts.insert(0, "Scalar self, Tensor[] exponent")
    return tuple(schemas.parsed("", f"_foreach_{name}({text}) -> Tensor[]") for text in texts)


def _bound(title: str, name: str, args: tuple[Value, ...], named: dict[str, Value]) -> list[Value]:
    """The arguments' values in order; a tensor of one element may stand for a number."""
    candidates = _candidates(name)
    try:
        return binding.bound_to(title, candidates, args, named)[1]
    except TypeError:
        numbers = [_number(x) for x in args], {word: _number(x) for word, x in named.items()}
        with contextlib.suppress(TypeError):
            return binding.bound_to(title, candidates, *numbers)[1]
        raise


def _is_number(value: Value) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and not value.ndim and not value.requires_grad


def _number(value: Value) -> Value:
    return value.item() if _is_number(value) else value


def _columns(values: list[Value]) -> list[list[Value]]:
    """Each argument as a list with a value for each tensor."""
    lists = [x for x in values if isinstance(x, list)]
    count = len(lists[0])
    if not count:
        raise ShapeError("Tensor list must have at least one tensor.")
    for other in lists[1:]:
        if len(other) == count:
            continue
        if isinstance(other[0] if other else None, Tensor):
            raise ShapeError(
                f"Tensor lists must have the same number of tensors, got {count} and {len(other)}"
            )
        raise ShapeError("Tensor list must have same number of elements as scalar list.")
    return [x if isinstance(x, list) else [x] * count for x in values]


def _packed(factors: Tensor, count: int) -> list[Value]:
    """The numbers of a tensor that addcmul and addcdiv accept for a list of numbers."""
    if factors.ndim != 1:
        raise ShapeError(
            f"Expected packed scalar Tensor to be of dimension 1. Got {factors.ndim} instead."
        )
    if not factors.is_contiguous():
        raise ShapeError("Expected scalars to be contiguous.")
    if len(factors) != count:
        raise ShapeError(
            f"Expected length of scalars to match input of length {count} "
            f"but got {len(factors)} instead."
        )
    return list(factors.tolist())


def _rows(name: str, values: list[Value]) -> list[tuple[Value, ...]]:
    """The arguments of the operator for each tensor of the list."""
    last = values[-1]
    if name in ("addcdiv", "addcmul") and isinstance(last, Tensor):
        values = [*values[:-1], _packed(last, len(values[0]))]
    elif name in ("add", "div", "mul") and isinstance(other := values[1], Tensor) and other.ndim:
        raise ShapeError(
            f"scalar tensor expected to be 0 dim but it has {other.ndim} dimensions "
            f"and {other.numel()} elements."
        )
    elif name == "mm" and len(values[0]) != len(values[1]):
        raise ShapeError("_foreach_mm: self and mat2 must have the same number of tensors")
    return list(zip(*_columns(values), strict=True))


def _operator(name: str, *, writes: bool) -> Operator:
    """The operator on one tensor, with the arguments in the schema's order."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name == "pow" and not writes:
        return gt.pow  # a number may precede tensors
    method: Operator = getattr(Tensor, _METHODS.get(name, name) + "_" * writes)
    if name in ("addcdiv", "addcmul"):
        return lambda x, first, second, value: method(x, first, second, value=value)
    if name in ("add", "sub"):
        return lambda x, other, alpha=1: method(x, other, alpha=alpha)
    return method if writes or name not in _METHODS else _halved(name, method)


def _halved(name: str, method: Operator) -> Operator:
    """The operator for a number as a tensor: an equal element gets half of the gradient."""

    def operator(tensor: Tensor, other: Value) -> Tensor:
        if isinstance(other, Tensor) or tensor.dtype.is_complex:
            return method(tensor, other)
        number = gt.scalar_tensor(other, dtype=gt.result_type(tensor, other))
        return tensor.maximum(number) if name == "maximum" else tensor.minimum(number)

    return operator


def _maximum(tensor: Tensor) -> Tensor:
    if not tensor.numel():
        raise ShapeError(
            "_foreach_max cannot compute the maximum of an empty tensor; "
            "max over zero elements is undefined."
        )
    return tensor.max()


def _norm(tensor: Tensor, order: Value, dtype: Value) -> Tensor:
    """The vector norm; the 2-norm has a row, which workers without torch have too."""
    if order == _EUCLIDEAN and dtype is None and tensor.is_floating_point():
        return tensor.norm()
    result: Tensor = call("linalg_vector_norm", (tensor, order), {"dtype": dtype})
    return result


_FUNCTIONS: dict[str, Operator] = {
    "clone": lambda x, _: x.clone(),
    "max": _maximum,
    "norm": _norm,
    "powsum": lambda x, order, dtype: call("linalg__powsum", (x, order), {"dtype": dtype}),
}


def _returning(name: str) -> Callable[..., tuple[Tensor, ...]]:
    def listed(*args: Value, **named: Value) -> tuple[Tensor, ...]:
        rows = _rows(name, _bound(f"_foreach_{name}", name, args, named))
        operator = _operator(name, writes=False)
        return tuple([operator(*row) for row in rows])

    return listed


def _writing(name: str) -> Callable[..., Value]:
    def listed(*args: Value, **named: Value) -> Value:
        values = _bound(f"_foreach_{name}_", name, args, named)
        rows = _rows(name, values)
        operator = _operator(name, writes=True)
        # A leaf raises before anything is written, as in PyTorch.
        rows_refused = [row for row in rows if _core.is_grad_enabled() and _is_leaf(row[0])]
        for row in itertools.chain(rows_refused, rows):
            operator(*row)
        return args[0] if args else named["self"]

    return listed


def _is_leaf(value: Value) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and value.is_leaf


def _named(title: str) -> Callable[..., object]:
    name = title.removeprefix("_foreach_")
    function = _writing(name[:-1]) if name.endswith("_") else _returning(name)
    function.__name__ = function.__qualname__ = title
    verb = "Write" if name.endswith("_") else "Return"
    function.__doc__ = f"{verb} what `{name}` gives of each tensor of a list."
    return function


globals().update({title: _named(title) for title in NAMES})
__getattr__ = misses.hook("gt")
