"""Operators of PyTorch's as calls of GT's, found once an overload and kept.

What a schema says decides on the way: operators that write (`writes`), views (`views`), and all
others. These are, in this order, a function of `named`, a method or function of GT's by PyTorch's
name, the generic instruction by the schema, and what PyTorch itself composes the operator of.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any

import torch

import gt
from gt import _core, foreach
from gt.aten import call, composed, schemas
from gt.torch import elsewhere, gradients, named, passes
from gt.torch.elements import DEVICE_TYPE, DTYPES
from gt.torch.tensor import MuxTensor, of_value

# PyTorch's overload; it has no public type.
Overload = Any
Named = Mapping[str, object]
Run = Callable[[Sequence[object], Named], object]
Function = Callable[..., object]

# Arguments that say where and how memory is; a worker decides.
PLACES = frozenset({"device", "layout", "pin_memory", "memory_format", "implicit", "non_blocking"})
_PLAIN = frozenset({int, float, bool, str, complex, type(None)})

_runs: dict[Overload, Run] = {}
threads = passes.threads


def run(operator: Overload, args: Sequence[object], kwargs: Named | None = None) -> object:
    """Runs an overload on tensors of the device `mux`.

    Raises:
        NotImplementedError: nothing here runs it.
    """
    thread = get_ident()
    if thread not in threads:
        passes.enter_thread(thread)
    found = _runs.get(operator)
    try:
        if found is None:
            found = _runs[operator] = _found(operator)
        return found(args, kwargs or {})
    except Exception as error:
        if passes.is_running():
            return passes.wait(error)
        raise


def overload(name: str) -> Overload:
    """The overload of a name such as `add.Tensor` or `relu`."""
    title, _, word = name.partition(".")
    return getattr(getattr(torch.ops.aten, title), word or "default")


def overload_name(operator: Overload) -> str:
    """`add.Tensor`; of the overload without a name `relu`."""
    name: str = operator._schema.name.partition("::")[2]  # noqa: SLF001 - nothing public tells
    overload: str = operator._overloadname  # noqa: SLF001
    return name if overload == "default" else f"{name}.{overload}"


def _found(operator: Overload) -> Run:
    from gt.torch import views, writes

    own = named.WHOLE.get(overload_name(operator))
    if own is not None:
        return own
    if _is_composite(operator) and overload_name(operator) not in named.FUNCTIONS:
        return _composed(operator)
    arguments = operator._schema.arguments  # noqa: SLF001 - PyTorch's only way to ask
    written = [x for x in arguments if x.alias_info is not None and x.alias_info.is_write]
    if written:
        found = writes.found(operator, written)
    elif any(x.alias_info is not None for x in arguments):
        found = views.found(operator)
    else:
        found = of_function(operator)
    return found or _composed(operator)


def of_function(operator: Overload) -> Run | None:
    """What runs an operator by a function that neither writes nor views its operands."""
    function = function_of(operator)
    if function is None:
        return None
    is_elsewhere = any(x.name == "device" for x in operator._schema.arguments)  # noqa: SLF001

    def run(args: Sequence[object], kwargs: Named) -> object:
        if kwargs:
            if is_elsewhere and not elsewhere.is_here(kwargs.get("device")):
                return elsewhere.created(operator, args, kwargs)
            result = function(*[operand(x) for x in args], **words(kwargs))
        else:
            result = function(*[operand(x) for x in args])
        if type(result) is _core.Tensor:
            return of_value(result)
        return results(result)

    return run


def function_of(operator: Overload) -> Function | None:
    """What computes an operator's results from GT tensors; None where GT has nothing for it."""
    name = overload_name(operator)
    own = named.FUNCTIONS.get(name) or gradients.FUNCTIONS.get(name)
    if own is not None or operator.namespace != "aten":
        return own
    title = name.partition(".")[0]
    schema = operator._schema  # noqa: SLF001 - PyTorch's only way to ask
    is_allowed = name in schemas.overloads_allowed()
    # Functions may leave out results that nobody asks for, and take tensors one by one.
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
    """GT's method, or function, that programs call by an operator's name."""
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


def _composed(operator: Overload) -> Run:
    """PyTorch's own composition of other operators, where it has one."""
    if _is_composite(operator):
        return lambda args, kwargs: operator.decompose(*args, **kwargs)
    decomposition = _decompositions().get(operator)
    if decomposition is not None:
        return lambda args, kwargs: decomposition(*args, **kwargs)
    schema = operator._schema  # noqa: SLF001

    def refuse(_args: Sequence[object], _kwargs: Named) -> object:
        raise NotImplementedError(
            f"{schema} is not implemented for the device {DEVICE_TYPE}: run it on a copy, "
            f"x.cpu(), and take its result back by .to({DEVICE_TYPE!r})"
        )

    return refuse


def _is_composite(operator: Overload) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001 - its only name
    has_kernel: bool = operator.has_kernel_for_dispatch_key(key)
    return has_kernel


@functools.cache
def _decompositions() -> Mapping[Overload, Function]:
    from torch import _decomp

    return _decomp.decomposition_table


def operand(x: object) -> object:
    """An argument as GT's functions take it.

    Raises:
        RuntimeError: a tensor of another device that is no number.
    """
    kind = type(x)
    if kind is MuxTensor:
        return x.value  # type: ignore[attr-defined]
    if kind in _PLAIN:
        return x
    if kind is list or kind is tuple:
        return [operand(entry) for entry in x]  # type: ignore[attr-defined]
    if kind is torch.dtype:
        return DTYPES[x]  # type: ignore[index]
    return _other_operand(x)


def _other_operand(x: object) -> object:
    if isinstance(x, MuxTensor):
        return x.value
    if isinstance(x, torch.Tensor):
        if x.ndim and not elsewhere.uploads_operands:
            raise _devices_differ(x)
        return elsewhere.upload(x).value
    if isinstance(x, torch.Generator):
        return named.generator_of(x)
    if isinstance(x, list | tuple):  # torch.Size
        return [operand(entry) for entry in x]
    return x


def written(x: object) -> _core.Tensor:
    """The operand that an operator writes.

    Raises:
        RuntimeError: a tensor of another device: the other operands are of `mux`.
    """
    if not isinstance(x, MuxTensor):
        raise _devices_differ(x)
    return x.value


def _devices_differ(x: Any) -> RuntimeError:  # noqa: ANN401 - a tensor of another device
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{MuxTensor.home} and {x.device}!"
    )


def words(kwargs: Named) -> dict[str, object]:
    """Keyword arguments as GT's functions take them."""
    return {name: operand(value) for name, value in kwargs.items() if name not in PLACES}


def results(result: object) -> object:
    """What a function of GT's returned, with PyTorch's tensors in place of GT's."""
    if isinstance(result, _core.Tensor):
        return of_value(result)
    if isinstance(result, list | tuple):
        return tuple([results(entry) for entry in result])
    return result
