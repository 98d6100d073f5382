"""Operators that write: in place by GT's methods, or the functional result into `out=`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import gt
from gt import _core
from gt._core import Tensor
from gt.composite.inplace import check_kind
from gt.tensors import foreach
from gt.torch import functions, named, operands
from gt.torch.fast import offers
from gt.torch.functions import Function, Overload, Run
from gt.torch.operands import Named
from gt.torch.tensor import MuxTensor, become

# Operators that change a tensor's sizes, and the views that they turn it into.
_RESHAPED = {
    "as_strided_", "detach_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_",
    "unsqueeze_",
}  # fmt: skip


def found(operator: Overload, written: Sequence[Any]) -> Run | None:
    """The function that runs an operator that writes; None if GT has none."""
    name = functions.overload_name(operator)
    title = name.partition(".")[0]
    if title in _RESHAPED:
        return _reshaped(title[:-1])
    if all(x.is_out for x in written):
        return _into_out(operator, written)
    if title.startswith("_foreach_") and title in foreach.NAMES:
        return _each(operator, getattr(gt, title))
    if name in named.FUNCTIONS:
        return _writing(named.FUNCTIONS[name], len(operator._schema.returns))  # noqa: SLF001
    if len(written) == 1 and written[0].name == "self" and title.endswith("_"):
        return _in_place(operator, title)
    return None


def _each(operator: Overload, function: Function) -> Run:
    """An operator over lists of tensors, which returns nothing."""
    offers.offer(operator, offers.Use.WRITE, function)

    def run(args: Sequence[object], kwargs: Named) -> None:
        function(*[operands.operand(x) for x in args], **operands.words(kwargs))

    return run


def _writing(function: Function, returned: int) -> Run:
    """A function that writes by itself: it returns results, or its first operand is the result."""

    def run(args: Sequence[object], kwargs: Named) -> object:
        result = function(*[operands.operand(x) for x in args], **operands.words(kwargs))
        if result is None:
            return args[0] if returned else None
        return operands.results(result)

    return run


def _reshaped(title: str) -> Run:
    function: Function = getattr(Tensor, title)

    def run(args: Sequence[object], kwargs: Named) -> object:
        target = args[0]
        assert isinstance(target, MuxTensor)
        values = [operands.operand(x) for x in args[1:]]
        view = function(target.value, *values, **operands.words(kwargs))
        assert isinstance(view, Tensor)
        return become(target, view.detach())

    return run


def _in_place(operator: Overload, title: str) -> Run | None:
    method: Function | None = getattr(Tensor, title, None)
    if method is None:
        functional = functional_of(operator)
        function = None if functional is None else functions.function_of(functional)
        if function is None:
            return None
        method = _assigned(function)
    offers.offer(operator, offers.Use.WRITE, method)

    def run(args: Sequence[object], kwargs: Named) -> object:
        values = [operands.written(args[0]), *[operands.operand(x) for x in args[1:]]]
        if kwargs:
            method(*values, **operands.words(kwargs))
        else:
            method(*values)
        return args[0]

    return run


def _assigned(function: Function) -> Function:
    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        value = function(_core.value_before(self), *args, **kwargs)
        assert isinstance(value, Tensor)
        check_kind(self, value.dtype)
        return _core.assign_(self, value, True)

    return method


def functional_of(operator: Overload) -> Overload | None:
    """The overload that returns the values that this one writes."""
    schema = operator._schema  # noqa: SLF001 - PyTorch's only way to ask
    title = schema.name.partition("::")[2].removesuffix("_")
    packet = getattr(torch.ops.aten, title, None)
    if packet is None:
        return None
    wanted = [(x.name, str(x.type)) for x in schema.arguments if not x.is_out]
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        arguments = candidate._schema.arguments  # noqa: SLF001
        if any(x.alias_info is not None and x.alias_info.is_write for x in arguments):
            continue
        formals = [(x.name, str(x.type)) for x in arguments if x.name not in operands.PLACES]
        if [x for x in formals if x in wanted] == wanted and len(formals) <= len(wanted) + 1:
            return candidate
    return None


def _into_out(operator: Overload, written: Sequence[Any]) -> Run | None:
    name = functions.overload_name(operator)
    function = named.FUNCTIONS.get(name)
    if function is None:
        functional = functional_of(operator)
        function = None if functional is None else functions.function_of(functional)
    if function is None:
        return None
    names = [x.name for x in written]
    operands_of = [x for x in operator._schema.arguments if not x.is_out]  # noqa: SLF001
    is_made = not any("Tensor" in str(x.type) for x in operands_of)  # its dtype is that of `out`

    def run(args: Sequence[object], kwargs: Named) -> object:
        targets = [kwargs[word] for word in names]
        arguments = {word: value for word, value in kwargs.items() if word not in names}
        options = operands.words(arguments)
        if is_made:
            options["dtype"] = targets[0].value.dtype  # type: ignore[attr-defined]
        result = function(*[operands.operand(x) for x in args], **options)
        values = result if isinstance(result, list | tuple) else [result]
        for target, value in zip(targets, values, strict=True):
            _write_out(target, value)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return run


def _write_out(target: object, value: object) -> None:
    """Writes into a tensor, which takes the result's sizes, in its own memory if that is large
    enough.
    """
    assert isinstance(target, MuxTensor)
    assert isinstance(value, Tensor)
    written = target.value
    check_kind(written, value.dtype)
    if written.shape == value.shape:
        written.copy_(value)
        return
    start = written.storage_offset()
    if start + value.numel() <= _core.memory(written)[0]:
        part = written.as_strided(value.shape, _row_major(value.shape), start)
        become(target, part.copy_(value))
    else:
        become(target, value if value.dtype == written.dtype else value.to(written.dtype))


def _row_major(sizes: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor of these sizes."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return strides[: len(sizes)]
