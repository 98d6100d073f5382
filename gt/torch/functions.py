"""GT functions by PyTorch's operators: each computes an overload's results from GT tensors.

They are, in this order: one of `named` or `gradients`; a method or function of GT with PyTorch's
name; the generic instruction by the schema.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

import gt
from gt import _core
from gt.tensors import foreach
from gt.tensors.aten import call, composed, schemas
from gt.torch import attention, gradients, named, products
from gt.torch.operands import Named

# An overload of PyTorch, which has no public type.
Overload = Any
Run = Callable[[Sequence[object], Named], object]
Function = Callable[..., object]


def overload(name: str) -> Overload:
    """The overload with a name such as `add.Tensor` or `relu`."""
    title, _, word = name.partition(".")
    return getattr(getattr(torch.ops.aten, title), word or "default")


def overload_name(operator: Overload) -> str:
    """Name of an overload such as `add.Tensor`, or `relu` for one without a name."""
    name: str = operator._schema.name.partition("::")[2]  # noqa: SLF001 - nothing public tells
    overload: str = operator._overloadname  # noqa: SLF001
    return name if overload == "default" else f"{name}.{overload}"


def own_function(name: str) -> Function | None:
    """The function of this package for the overload of a name; None if it has none."""
    for table in (named.FUNCTIONS, gradients.FUNCTIONS, products.FUNCTIONS, attention.FUNCTIONS):
        if name in table:
            return table[name]
    return None


def function_of(operator: Overload) -> Function | None:
    """The function that computes an operator's results from GT tensors; None if GT has none."""
    name = overload_name(operator)
    own = own_function(name)
    if own is not None or operator.namespace != "aten":
        return own
    title = name.partition(".")[0]
    schema = operator._schema  # noqa: SLF001 - PyTorch's only way to ask
    is_allowed = name in schemas.overloads_allowed()
    # Public functions may omit results that nobody asks for, or take tensors one by one.
    by_schema = is_allowed and title not in _rows() and _is_special(schema)
    public = None if by_schema else public_of(title, schema)
    if public is not None:
        return public
    if title in composed.OPERATORS:
        return composed.OPERATORS[title]
    if is_allowed:
        exact = name if "." in name else f"{name}.default"
        return functools.partial(_by_schema, exact)
    return gradients.found(operator)


def _is_special(schema: Overload) -> bool:
    first = schema.arguments[0] if schema.arguments else None
    return len(schema.returns) > 1 or (first is not None and str(first.type) == "List[Tensor]")


def public_of(title: str, schema: Overload) -> Function | None:
    """GT's public method or function with the name of an operator."""
    if title.startswith("_") and title not in foreach.NAMES:
        return None
    first = schema.arguments[0] if schema.arguments else None
    method: Function | None = None
    if first is not None and first.name == "self" and str(first.type) == "Tensor":
        method = getattr(_core.Tensor, title, None)
    function: Function | None = method or getattr(gt, title, None)
    return function if callable(function) else None


@functools.cache
def _rows() -> frozenset[str]:
    """Names of operators that have a row."""
    return frozenset(name.removesuffix("_dim") for name, *_ in _core.op_table())


def _by_schema(name: str, *args: object, **kwargs: object) -> object:
    return call.call(name, args, kwargs)
