"""Makes the programs of operators without a row, and of their gradients by backward.txt.

The schema says what each argument is, so nothing stands in rows.txt for them. What is GT's own
operator, a gradient that runs the operator again, lists among the results, and a member's part of
an image run in Python (gt/worker/pytorch/generic.py), of which this has every bit.
"""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Mapping, Sequence

import torch

from gt.tensors.aten import arguments, schemas
from gt.worker.aten.program import OF_KERNEL, RESULTS_MAX, TENSOR, NotFittingError, Program
from gt.worker.pytorch import backward
from gt.worker.pytorch import generic as torch_aten
from gt.worker.pytorch import own as torch_own

ROWS = ("aten", "aten_vjp")
# Operators that are among GT's own and are PyTorch's here, too.
_PLAIN = torch_own.CHECKED | torch_own.CUT
# GT's own operators that kernels of GT's own run (csrc/table), and their gradients.
_KERNELS = frozenset(
    name + suffix
    for name in ("attention", "lstm_layer", "gru_layer", "rnn_layer")
    for suffix in ("", "_backward")
)
# Index of the attribute `part` among those that a row may leave out.
_PART = 3


class _Place:
    """Stands for an operand where an argument is looked at."""

    def __init__(self, index: int) -> None:
        self.index = index


def program(
    library: ctypes.PyDLL, kinds: Sequence[int], attributes: Sequence[object]
) -> int | None:
    """The address of a program; None where Python is to run the instruction.

    Args:
        library: the helper.
        kinds: what each operand is.
        attributes: as the rows' Python kernel gets them.
    """
    overload, text, wanted, results, _, default, *rest = attributes
    if rest[_PART : _PART + 1] not in ([], [None]) or default != torch.get_default_dtype():
        return None
    assert isinstance(overload, str), overload
    assert isinstance(text, str), text
    assert isinstance(wanted, Sequence), wanted
    assert isinstance(results, Sequence), results
    writer = _Writer(Program(library), kinds)
    try:
        writer.write(overload, text, wanted, results)
    except NotFittingError:
        writer.program.free()
        return None
    except BaseException:
        writer.program.free()
        raise
    return writer.program.address


class _Writer:
    """One instruction as one program."""

    def __init__(self, program: Program, kinds: Sequence[int]) -> None:
        self.program, self._kinds = program, kinds
        self._results = 0

    def write(
        self, overload: str, text: str, wanted: Sequence[int], results: Sequence[int]
    ) -> None:
        """The whole program.

        Raises:
            NotFittingError: it is for Python.
        """
        if overload not in schemas.overloads_allowed():
            raise NotFittingError
        if wanted:
            self._gradients(overload, text, wanted)
        else:
            self._operator(overload, text)
        self._state(results)

    def _operator(self, overload: str, text: str) -> None:
        """The call that an instruction names."""
        name, _, variant = overload.partition(".")
        if overload in _KERNELS:
            self._own_operator(overload, text)
            return
        if overload in torch_own.FORWARD.keys() | torch_own.FASTER.keys() - _PLAIN:
            raise NotFittingError
        schema = _schema(name, variant)
        build, count = arguments.parse(text, torch_aten.dtype_named)
        args, named = build([_Place(place) for place in range(count)])
        positional = [one.name for one in schema.arguments if not one.kwarg_only]
        if len(args) > len(positional):
            raise NotFittingError
        values = {**dict(zip(positional, args, strict=False)), **named}
        if not values.keys() <= {one.name for one in schema.arguments}:
            raise NotFittingError
        for formal in schema.arguments:
            self._argument(_value(values, formal), formal)
        for place in self.program.call(name, variant):
            self._result(place)

    def _own_operator(self, overload: str, text: str) -> None:
        """An operator of GT's own, whose arguments are all in their order."""
        (schema,) = schemas.of(overload)
        build, count = arguments.parse(text, torch_aten.dtype_named)
        args, named = build([_Place(place) for place in range(count)])
        names = [one.name for one in schema.arguments]
        values = {**dict(zip(names, args, strict=False)), **named}
        for name in names:
            self._own_argument(values.get(name))
        for place in self.program.kernel_alone(overload):
            self._result(place)

    def _own_argument(self, value: object) -> None:
        if isinstance(value, _Place):
            self.program.operand(value.index, self._kinds[value.index], OF_KERNEL)
        else:
            self.program.constant(value, OF_KERNEL)

    def _gradients(self, overload: str, text: str, wanted: Sequence[int]) -> None:
        """The backward operator of backward.txt, with the operands that are wanted."""
        if wanted.count(torch_aten.END) > 1:
            raise NotFittingError
        plan = backward.plan(overload, text, wanted[:-1], torch_aten.dtype_named)
        if plan is None:
            raise NotFittingError
        call = ast.parse(plan.line.call, mode="eval").body
        assert isinstance(call, ast.Call), plan.line
        name = ast.unparse(call.func)
        is_plain = name in torch_own.CHECKED and _is_ones(plan.constants["dilation"])
        is_own = name in torch_own.BACKWARD and name not in torch_own.CUT and not is_plain
        if (is_own and name not in _KERNELS) or self._kinds[plan.sources["g"]] != TENSOR:
            raise NotFittingError
        if is_own:
            self._own_gradients(name, call, plan)
            return
        self._require(ast.parse(plan.line.condition, mode="eval").body, plan)
        # The program is for real numbers: for complex ones Python runs the operator again.
        for place, kind in enumerate(self._kinds):
            if kind == TENSOR:
                self.program.guard("real", place)
        schema = _schema(name, "")
        for node, formal in zip(call.args, schema.arguments, strict=True):
            self._expression(node, formal, plan)
        places = self.program.call(name, "")
        for result in plan.kept:
            self._result(places[result])

    def _own_gradients(self, name: str, call: ast.Call, plan: backward.Plan) -> None:
        """A backward operator of GT's own, which itself asks what a line's condition does."""
        for node in call.args:
            self._own_argument(_read(node, plan))
        places = self.program.kernel_alone(name)
        for result in plan.kept:
            self._result(places[result])

    def _state(self, results: Sequence[int]) -> None:
        """Ends the program: its results are as the instruction states them."""
        self.program.results()
        stated = torch_aten.stated_results(tuple(results))
        if len(stated) != self._results or len(stated) > RESULTS_MAX:
            raise NotFittingError
        for dtype, sizes in stated:
            self.program.state(dtype, sizes, len(self._kinds))

    def _result(self, place: int) -> None:
        self.program.temporary(place)
        self._results += 1

    def _require(self, condition: ast.expr, plan: backward.Plan) -> None:
        match condition:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="ndim"), args=[ast.Name(id=name)]),
                comparators=[ast.Constant(value=int(rank))],
            ) if name in plan.sources:
                self.program.guard("rank", plan.sources[name], rank)
            case ast.Constant(value=True):
                pass
            case _:
                raise NotFittingError

    def _expression(self, node: ast.expr, formal: torch._C.Argument, plan: backward.Plan) -> None:
        """Pushes an argument of the backward operator."""
        match node:
            case ast.Name(id=name) if name in plan.sources:
                self._argument(_Place(plan.sources[name]), formal)
            case ast.Call(func=ast.Name(id="sizes"), args=[ast.Name(id=name)]) if (
                name in plan.sources
            ):
                self._sizes(plan.sources[name], formal)
            case ast.Call(
                func=ast.Name(id="last"), args=[ast.Name(id=name), ast.Constant(value=int(count))]
            ) if name in plan.sources:
                self._sizes(plan.sources[name], formal, count)
            case _ if not _names(node) & plan.sources.keys():
                self._argument(backward.expression(node)(plan.constants), formal)
            case _:
                raise NotFittingError

    def _sizes(self, place: int, formal: torch._C.Argument, count: int = -1) -> None:
        if self._kinds[place] == TENSOR:
            self.program.sizes(place, count)
        else:
            self._argument(None, formal)

    def _argument(self, value: object, formal: torch._C.Argument) -> None:
        """Pushes an argument, where its type is what the schema asks for."""
        type_ = str(formal.type)
        if isinstance(value, _Place):
            self.program.operand(value.index, self._kinds[value.index], type_)
        elif isinstance(value, list) and "Tensor" in type_:
            inner = type_.removeprefix("Optional[") if type_.startswith("Optional[L") else type_
            for one in value:
                self._argument_of_list(one, inner.removeprefix("List[").removesuffix("]"))
            self.program.listed(len(value), inner)
        else:
            self.program.constant(_checked(value, type_, getattr(formal, "N", None)), type_)

    def _argument_of_list(self, value: object, type_: str) -> None:
        if isinstance(value, _Place):
            self.program.operand(value.index, self._kinds[value.index], type_)
        else:
            self.program.constant(value, type_)


def _schema(name: str, variant: str) -> torch._C.FunctionSchema:
    """Schema of an operator all of whose results are tensors, and which ATen's dispatcher has."""
    overload = f"aten::{name}.{variant}" if variant else f"aten::{name}"
    if not torch._C._dispatch_has_kernel(overload):  # noqa: SLF001  TorchScript has it alone
        raise NotFittingError
    schema = torch._C._get_schema(f"aten::{name}", variant)  # noqa: SLF001
    if any(str(one.type) != "Tensor" for one in schema.returns):
        raise NotFittingError
    return schema


def _value(values: Mapping[str, object], formal: torch._C.Argument) -> object:
    if formal.name in values:
        return values[formal.name]
    if not formal.has_default_value():
        raise NotFittingError
    return formal.default_value


def _checked(value: object, type_: str, count: int | None) -> object:
    """A constant of the type; a number for a list of so many is one for each."""
    inner = type_.removeprefix("Optional[").removesuffix("]") if "Optional" in type_ else type_
    if value is None:
        if inner == type_:
            raise NotFittingError
        return None
    if inner.startswith("List["):
        item = inner.removeprefix("List[").removesuffix("]")
        values = value if isinstance(value, (list, tuple)) else [value] * (count or 0)
        if not values and value not in ([], ()):
            raise NotFittingError
        return [_checked_one(one, item) for one in values]
    return _checked_one(value, inner)


def _checked_one(value: object, type_: str) -> object:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        "int": isinstance(value, torch.dtype) or (is_number and isinstance(value, int)),
        "float": is_number,
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
        "number": isinstance(value, (int, float)),
    }
    if not fits.get(type_, False):
        raise NotFittingError
    return value


def _read(node: ast.expr, plan: backward.Plan) -> object:
    """An argument of a backward operator that is an operand, or has none in it."""
    if isinstance(node, ast.Name) and node.id in plan.sources:
        return _Place(plan.sources[node.id])
    if _names(node) & plan.sources.keys():
        raise NotFittingError
    return backward.expression(node)(plan.constants)


def _is_ones(lengths: object) -> bool:
    return lengths == 1 or (isinstance(lengths, (list, tuple)) and set(lengths) == {1})


def _names(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
