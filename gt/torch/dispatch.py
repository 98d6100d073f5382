"""PyTorch's operators as calls of GT's functions, looked up once for each overload and kept.

The schema selects the module: operators that write (`writes`), views (`views`), and all others,
which have a function (`functions`) or PyTorch's own composition.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch

from gt import _core
from gt.torch import backward_scopes, elsewhere, named, passes, views, writes
from gt.torch.elements import DEVICE_TYPE
from gt.torch.fast import offers
from gt.torch.functions import (
    Function,
    Overload,
    Run,
    function_of,
    overload_name,
    own_function,
)
from gt.torch.operands import Named, operand, results, words
from gt.torch.tensor import MuxTensor, of_value

# Functions by the id of an overload, since its hash is a Python call; the overloads are kept alive.
_runs: dict[int, Run] = {}
_overloads: list[Overload] = []
this_thread = passes.this_thread
scopes = backward_scopes.made


def run(operator: Overload, args: Sequence[object], kwargs: Named | None = None) -> object:
    """Runs an overload on tensors of the device `mux`.

    Raises:
        NotImplementedError: GT has nothing that runs it.
    """
    if not this_thread.has_entered:
        passes.enter_thread()
    if scopes:
        backward_scopes.look(args, kwargs)
    function = _runs.get(id(operator))
    try:
        if function is None:
            function = _kept(operator)
            if offers.was_taken(operator):  # this call too
                return operator(*args, **(kwargs or {}))
        return function(args, kwargs or {})
    except Exception as error:
        if passes.is_running():
            return passes.wait(error)
        raise


def _kept(operator: Overload) -> Run:
    """The function that runs an overload, found once and kept."""
    _overloads.append(operator)
    function = _runs[id(operator)] = _of_strided(operator, _found(operator))
    return function


def _of_strided(operator: Overload, run: Run) -> Run:
    """`run`, which refuses a `layout=` that tensors of `mux` do not have."""
    schema = operator._schema  # noqa: SLF001 - PyTorch's only way to ask
    if not any(x.name == "layout" for x in schema.arguments):
        return run
    if overload_name(operator) in named.WHOLE or _is_composite(operator):
        return run  # which look at it themselves, or pass it on

    def checked(args: Sequence[object], kwargs: Named) -> object:
        layout = kwargs.get("layout")
        if layout in (None, torch.strided) or not elsewhere.is_here(kwargs.get("device")):
            return run(args, kwargs)
        raise elsewhere.layout_refused(operator, layout)

    return checked


def _found(operator: Overload) -> Run:
    own = named.WHOLE.get(overload_name(operator))
    if own is not None:
        return own
    if _is_composite(operator) and own_function(overload_name(operator)) is None:
        return _composed(operator)
    arguments = operator._schema.arguments  # noqa: SLF001 - PyTorch's only way to ask
    written = [x for x in arguments if x.alias_info is not None and x.alias_info.is_write]
    if written:
        function = writes.found(operator, written)
    elif any(x.alias_info is not None for x in arguments):
        function = views.found(operator)
    else:
        function = _of_function(operator)
    return function or _composed(operator)


def _of_function(operator: Overload) -> Run | None:
    """A function for an operator that neither writes nor views its operands; None if GT
    has none.
    """
    function = function_of(operator)
    if function is None:
        return None
    is_elsewhere = any(x.name == "device" for x in operator._schema.arguments)  # noqa: SLF001
    offers.offer(operator, offers.Use.FUNCTION, function)

    def run(args: Sequence[object], kwargs: Named) -> object:
        if kwargs:
            if is_elsewhere and not elsewhere.is_here(kwargs.get("device")):
                return elsewhere.created(operator, args, kwargs)
            result = function(*[operand(x) for x in args], **words(kwargs))
        else:
            result = function(*[x.value if type(x) is MuxTensor else operand(x) for x in args])
        if type(result) is _core.Tensor:
            return of_value(result)
        return results(result)

    return run


def _composed(operator: Overload) -> Run:
    """PyTorch's own composition of other operators, if it has one."""
    if _is_composite(operator):
        return lambda args, kwargs: operator.decompose(*args, **kwargs)
    decomposition = _decompositions().get(operator)
    if decomposition is not None:
        return lambda args, kwargs: decomposition(*args, **kwargs)
    schema = operator._schema  # noqa: SLF001
    back = f", and take its result back by .to({DEVICE_TYPE!r})"
    if schema.name.startswith("aten::_to_sparse"):
        back = ", where its result stays: GT has coordinates, x.to_sparse()"

    def refuse(_args: Sequence[object], _kwargs: Named) -> object:
        raise NotImplementedError(
            f"{schema} is not implemented for the device {DEVICE_TYPE}: run it on a copy, "
            f"x.cpu(){back}"
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
