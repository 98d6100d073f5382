"""Makes the program that runs an instruction, from its row's first line that fits.

A program is made once for each form of an instruction (its row, its operands' kinds, the attributes
that are not read at each run); the worker's loop keeps the programs. Instructions without a fitting
line run in Python.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import dataclasses
from collections.abc import Sequence

import torch

from gt.worker.aten import generic, table
from gt.worker.aten.program import (
    ABSENT,
    ATTRIBUTE,
    BUILTINS,
    OF_KERNEL,
    TENSOR,
    NotFittingError,
    Program,
)
from gt.worker.aten.table import Line

_CODES = {"none": 0, "mean": 1, "sum": 2}


@dataclasses.dataclass(frozen=True)
class _Operands:
    """Indices of a run's inputs: of operands, of the list, of changing attributes."""

    names: dict[str, int]
    kinds: dict[str, int]
    listed: list[tuple[int, int]]  # place and kind


class Binder:
    """Programs of one helper, for values on one device.

    Args:
        library: The helper library.
        device: Device of the values.
        in_python: Rows, and operators of generic rows, that have no program.
    """

    def __init__(
        self, library: ctypes.PyDLL, device: torch.device, in_python: frozenset[str] = frozenset()
    ) -> None:
        self._library = library
        self._device = device
        self._in_python = in_python

    def bind(
        self,
        row: str,
        kinds: Sequence[int],
        listed: Sequence[int],
        over: int,
        attributes: Sequence[object],
    ) -> tuple[int, int] | None:
        """The program's address, and the attributes (a bit each) whose numbers are passed to each
        run.

        Args:
            row: name of the row.
            kinds: kind of each operand that is not in the list.
            listed: kind of each operand in the list.
            over: operands whose buffers it overwrites, a bit each.
            attributes: as the row's Python kernel gets them.
        """
        if (attributes[0] if row in generic.ROWS else row) in self._in_python:
            return None
        if row in generic.ROWS:
            address = generic.program(self._library, listed, attributes)
            return None if address is None else (address, 0)
        for line in table.lines().get(row, ()):
            if line.over != over:
                continue
            compiler = _Compiler(self._library, self._device, line)
            try:
                return compiler.compile(kinds, listed, attributes)
            except NotFittingError:
                continue
        return None


class _Compiler:
    """Compiles one line into one program."""

    def __init__(self, library: ctypes.PyDLL, device: torch.device, line: Line) -> None:
        self._device, self._line = device, line
        self._program = Program(library)
        self._temporaries: dict[str, int] = {}
        self._attributes: dict[str, object] = {}
        self._operands = _Operands({}, {}, [])

    def compile(
        self, kinds: Sequence[int], listed: Sequence[int], attributes: Sequence[object]
    ) -> tuple[int, int]:
        try:
            changing = self._name(kinds, listed, attributes)
            if self._line.condition is not None:
                self._require(self._line.condition)
            for call in self._line.calls:
                self._statement(call)
            self._result(self._line.result)
        except BaseException:
            self._program.free()
            raise
        return self._program.address, changing

    def _name(
        self, kinds: Sequence[int], listed: Sequence[int], attributes: Sequence[object]
    ) -> int:
        """Names operands and attributes; returns the attributes that are passed to each run."""
        line, places = self._line, self._operands
        names = [name for name in line.parameters if name != line.listed]
        if bool(listed) != (line.listed is not None) or len(kinds) > len(names):
            raise NotFittingError
        own, rest = names[: len(kinds)], names[len(kinds) :]
        for place, (name, kind) in enumerate(zip(own, kinds, strict=True)):
            places.names[name], places.kinds[name] = place, kind
        places.listed.extend((len(kinds) + place, kind) for place, kind in enumerate(listed))
        if len(rest) > len(attributes) or any(one is not None for one in attributes[len(rest) :]):
            raise NotFittingError
        self._attributes = dict(zip(rest, attributes, strict=False))
        changing, first = 0, len(kinds) + len(listed)
        for place, name in enumerate(rest):
            if name in line.changing:
                places.names[name], places.kinds[name] = first + changing.bit_count(), ATTRIBUTE
                changing |= 1 << place
        return changing

    def _require(self, condition: ast.expr) -> None:
        if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
            for one in condition.values:
                self._require(one)
        elif isinstance(condition, ast.Compare) and isinstance(condition.left, ast.Call):
            self._guard(condition.left, condition.comparators[0])
        elif not self._holds(condition):
            raise NotFittingError

    def _guard(self, asked: ast.Call, value: ast.expr) -> None:
        (of,) = asked.args
        assert isinstance(of, ast.Name), ast.dump(of)
        assert isinstance(asked.func, ast.Name), ast.dump(asked)
        if self._operands.kinds[of.id] != TENSOR:
            raise NotFittingError
        place = self._operands.names[of.id]
        self._program.guard(asked.func.id, place, ast.literal_eval(value))

    def _holds(self, condition: ast.expr) -> bool:
        if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
            return not self._holds(condition.operand)
        if isinstance(condition, ast.Name):
            return bool(self._attributes[condition.id])
        assert isinstance(condition, ast.Compare), ast.dump(condition)
        assert isinstance(condition.left, ast.Name), ast.dump(condition)
        name, (asked,) = condition.left.id, condition.ops
        expected = ast.literal_eval(condition.comparators[0])
        if name in self._attributes:
            is_equal = self._attributes[name] == expected
        else:
            assert expected is None, ast.dump(condition)
            is_equal = self._operands.kinds[name] == ABSENT
        return is_equal == isinstance(asked, (ast.Eq, ast.Is))

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Expr):
            self._call(statement.value)
            return
        assert isinstance(statement, ast.Assign), ast.dump(statement)
        (target,) = statement.targets
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        places = self._call(statement.value)
        for name, place in zip(names, places, strict=True):
            assert isinstance(name, ast.Name), ast.dump(name)
            self._temporaries[name.id] = place

    def _result(self, result: ast.expr) -> None:
        parts = result.elts if isinstance(result, ast.Tuple) else [result]
        # Calls come first: their arguments are pushed at the place of their results.
        called = [
            self._call(one) if isinstance(one, (ast.Call, ast.BinOp)) else None for one in parts
        ]
        for places, part in zip(called, parts, strict=True):
            if places is None:
                self._argument(part, "Tensor")
                continue
            for place in places:
                self._program.temporary(place)
        self._program.results()

    def _call(self, call: ast.expr) -> range:
        """Pushes a call, with its kernel before it; returns the places of its results."""
        if isinstance(call, ast.BinOp):
            self._kernel_before(call.left)
            call = call.right
        assert isinstance(call, ast.Call), ast.dump(call)
        name, _, overload = ast.unparse(call.func).partition(".")
        if name == "kernel":
            self._arguments_of_kernel(call)
            return self._program.kernel_alone(overload)
        if not overload and name in BUILTINS:
            for argument in call.args:
                self._argument(argument, "Tensor" if argument is call.args[0] else "List[int]")
            return self._program.built_in(name)
        schema = torch._C._get_schema("aten::" + name, overload)  # noqa: SLF001
        for argument, formal in zip(call.args, schema.arguments, strict=True):
            self._argument(argument, str(formal.type))
        return self._program.call(name, overload)

    def _kernel_before(self, call: ast.expr) -> None:
        assert isinstance(call, ast.Call), ast.dump(call)
        assert isinstance(call.func, ast.Attribute), ast.dump(call)
        self._arguments_of_kernel(call)
        with contextlib.suppress(NotFittingError):  # the operator alone
            self._program.kernel(call.func.attr)

    def _arguments_of_kernel(self, call: ast.Call) -> None:
        for argument in call.args:
            self._argument(argument, OF_KERNEL)

    def _argument(self, node: ast.expr, type_: str) -> None:
        """Pushes an argument of the given schema type."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            self._named(node.operand, "number or Tensor")
        elif isinstance(node, ast.BoolOp):
            name, default = node.values
            assert isinstance(name, ast.Name), ast.dump(node)
            value = self._attributes[name.id]
            self._program.constant(ast.literal_eval(default) if value is None else value, type_)
        elif isinstance(node, ast.Attribute):
            self._named(node.value, "Tensor")
            self._program.dtype_of_last()
        elif isinstance(node, ast.List) and "Tensor" in type_:
            for one in node.elts:
                self._named(one, "Tensor")
            self._program.listed(len(node.elts), "List[Tensor]")
        elif isinstance(node, ast.Name):
            self._named(node, type_)
        else:
            self._program.constant(self._literal(node), type_)

    def _literal(self, node: ast.expr) -> object:
        if isinstance(node, ast.Call):  # code(reduction)
            (of,) = node.args
            assert isinstance(of, ast.Name), ast.dump(of)
            return _CODES[str(self._attributes[of.id])]
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Name):
            value = self._attributes[node.operand.id]
            assert isinstance(value, (int, float)), value
            return -value
        return ast.literal_eval(node)

    def _named(self, node: ast.expr, type_: str) -> None:
        assert isinstance(node, ast.Name), ast.dump(node)
        name = node.id
        if name in self._temporaries:
            self._program.temporary(self._temporaries[name])
        elif name in self._operands.names:
            self._program.operand(self._operands.names[name], self._operands.kinds[name], type_)
        elif name == self._line.listed:
            for place, kind in self._operands.listed:
                self._program.operand(place, kind, type_.removeprefix("List[").removesuffix("]"))
            self._program.listed(len(self._operands.listed), type_)
        elif name == "device":
            self._program.device(self._device)
        elif name == "float32":
            self._program.constant(torch.float32, type_)
        else:
            self._program.constant(self._attributes[name], type_)
