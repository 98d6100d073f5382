"""Gradients of operators with a backward operator of their own (gt/tensors/aten/backward.txt).

All others run again under torch's autograd (pytorch/generic.py), of which this file is independent.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gt.tensors.aten import arguments, schemas
from gt.tensors.aten.backward import Line, lines
from gt.worker.pytorch import own

# Names and values for an expression.
Names = Mapping[str, Any]
Expression = Callable[[Names], Any]
Operands = Sequence["Tensor | None"]
Gradients = tuple[Tensor, ...]
# (operands, gradients of the results, saved results) -> the wanted gradients; None if only another
# run of the operator can give them.
Backward = Callable[[Operands], "Gradients | None"]

_FUNCTIONS: dict[str, Callable[..., object]] = {
    "sizes": lambda x: None if x is None else list(x.shape),
    "last": lambda x, count: list(x.shape[-count:]),
    "ndim": lambda x: x.dim(),
    "zeros": lambda numbers: [0] * len(numbers),
    "item": lambda numbers, place: None if numbers is None else numbers[place],
}


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A parsed line: the operator, its arguments, and the condition under which it holds."""

    operator: Callable[..., Any]
    arguments: tuple[Expression, ...]
    # Names that each argument reads.
    names: tuple[frozenset[str], ...]
    condition: Expression


@functools.cache
def _rule(overload: str, functions: own.Functions) -> Rule:
    line = lines()[overload]
    call = ast.parse(line.call, mode="eval").body
    assert isinstance(call, ast.Call), line
    name = ast.unparse(call.func)
    operator = functions.backward.get(name) or getattr(torch.ops.aten, name).default
    condition = ast.parse(line.condition, mode="eval").body
    names = (frozenset(x.id for x in ast.walk(n) if isinstance(x, ast.Name)) for n in call.args)
    readers = tuple(map(expression, call.args))
    return Rule(operator, readers, tuple(names), expression(condition))


def expression(node: ast.expr) -> Expression:
    """A function that evaluates an expression of backward.txt on names."""
    match node:
        case ast.Name(id=name):
            return lambda names: names[name]
        case ast.Constant(value=value):
            return lambda _: value
        case ast.Call(func=ast.Name(id=name), args=args):
            function, readers = _FUNCTIONS[name], [expression(arg) for arg in args]
            return lambda names: function(*(read(names) for read in readers))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            one, other = expression(left), expression(right)
            return lambda names: one(names) == other(names)
        case _:
            raise ValueError(f"{ast.unparse(node)} is no expression of backward.txt")


class _Place:
    """Marks an operand while the places of arguments are looked up."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A line for one call: the sources of its expression, and its wanted results."""

    line: Line
    # Index of each name among the operands: arguments, gradients of results, saved results.
    sources: Mapping[str, int]
    # Arguments that are no operands; and `mask`, which tells the wanted ones among the line's
    # operands.
    constants: Names
    kept: tuple[int, ...]


def plan(
    overload: str, text: str, places: Sequence[int], dtype: Callable[[str], object]
) -> Plan | None:
    """The plan for the gradients of the operands at `places`; None if no line gives them."""
    line = lines().get(overload)
    if line is None:
        return None
    build, count = arguments.parse(text, dtype)
    schema = next(x for x in schemas.of(overload.partition(".")[0]) if x.overload == overload)
    operands = [_Place() for _ in range(count)]
    values = _named(schema, build(operands))
    names = {name: x for name, x in values.items() if isinstance(x, _Place)}
    if sorted(map(id, names.values())) != sorted(map(id, operands)):
        return None  # one operand is two arguments, or is in a list
    arguments_of = {operand: name for name, operand in names.items()}
    wanted = [arguments_of[operands[place]] for place in places]
    if not set(wanted) <= set(line.operands):
        return None
    # The operands are followed by the gradients of the results, then by the saved results.
    first = count + len(schema.results)
    sources = {name: operands.index(operand) for name, operand in names.items()} | {"g": count}
    sources |= {f"g{place}": count + place for place in range(1, len(schema.results))}
    sources |= {f"out{result}": first + at for at, result in enumerate(line.results)}
    constants = values | {"mask": [name in wanted for name in line.operands]}
    return Plan(line, sources, constants, tuple(line.operands.index(name) for name in wanted))


def backward(
    overload: str,
    text: str,
    places: Sequence[int],
    dtype: Callable[[str], object],
    functions: own.Functions = own.PLAIN,
) -> Backward | None:
    """A function that computes the gradients of the operands at `places`; None if no line gives
    them.
    """
    own_plan = plan(overload, text, places, dtype)
    if own_plan is None:
        return None
    rule, constants, sources = _rule(overload, functions), own_plan.constants, own_plan.sources
    arguments_of_call = _partial(rule, constants, sources)

    def run(values: Operands) -> Gradients | None:
        values_by_name = {**constants, **{name: values[place] for name, place in sources.items()}}
        if values_by_name["g"] is None or not rule.condition(values_by_name):
            return None
        results = rule.operator(*arguments_of_call(values_by_name))
        if results is None:
            return None
        results = (results,) if isinstance(results, Tensor) else results
        return tuple(results[place] for place in own_plan.kept)

    return run


def _partial(
    rule: Rule, constants: Names, sources: Mapping[str, int]
) -> Callable[[Names], list[object]]:
    """A function that makes the arguments; those that read no source are read here, once."""
    pairs = list(zip(rule.arguments, rule.names, strict=True))
    fixed = [None if names & sources.keys() else read(constants) for read, names in pairs]
    others = [(at, read) for at, (read, names) in enumerate(pairs) if names & sources.keys()]

    def fill(given: Names) -> list[object]:
        filled = fixed.copy()
        for at, read in others:
            filled[at] = read(given)
        return filled

    return fill


def _named(schema: schemas.Schema, values: arguments.Arguments) -> dict[str, Any]:
    """Arguments by name, with the schema's defaults."""
    args, by_name = values
    names = {argument.name: argument.default for argument in schema.arguments}
    positional = [argument.name for argument in schema.arguments if not argument.is_keyword]
    return names | dict(zip(positional, args, strict=False)) | by_name
