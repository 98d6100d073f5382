"""A program as steps, run one after the other by the kernels of a backend."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gt import config
from gt._core import program_steps, view_rows
from gt.worker.backend import Kernel

VIEWS = frozenset(view_rows())
# (value) -> number of its dtype, size.
Meta = Callable[[Any], tuple[int, tuple[int, ...]]]
# Answers of `compile`.
COMPILING, READY, REFUSED = 0, 1, 2


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a program.

    Args:
        row: Name of its row.
        operands: For each operand the index of a value, a tuple of one number, or None.
        listed: The same of the operands of its list; None for a row without one.
        attributes: In the row's order.
        outputs: Indices of its results.
    """

    row: str
    operands: Sequence[Any]
    listed: Sequence[Any] | None
    attributes: Sequence[object]
    outputs: Sequence[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """The steps of a program, whose values are numbered from 0: operands first, then results."""

    data: bytes
    operands: int
    results: Sequence[int]
    steps: Sequence[Step]


def parse(data: bytes, dtypes: Sequence[object]) -> Program:
    """The program with these bytes.

    Raises:
        ValueError: They are none.
    """
    count, results, steps = program_steps(data, list(dtypes))
    return Program(data, count, tuple(results), tuple(Step(*step) for step in steps))


@dataclasses.dataclass(frozen=True, slots=True)
class Kernels:
    """Functions that run steps: those of a backend."""

    rows: Mapping[str, Kernel]
    number_first: Mapping[str, Kernel]
    # A value in row-major order.
    row_major: Kernel

    def run(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        """The program's results, some of which may be memory of its operands.

        Raises:
            ValueError: The program takes another number of operands.
            Exception: A kernel has failed.
        """
        if len(operands) != program.operands:
            raise ValueError(f"{len(operands)} operands of a program that takes {program.operands}")
        values = [*operands, *[None] * sum(len(step.outputs) for step in program.steps)]

        def value(operand: Any) -> Any:  # noqa: ANN401 - of any backend
            return values[operand] if isinstance(operand, int) else operand and operand[0]

        for step in program.steps:
            arguments = [value(operand) for operand in step.operands]
            if step.listed is not None:
                arguments.append([value(operand) for operand in step.listed])
            kernel = self.rows[step.row]
            if step.operands and isinstance(step.operands[0], tuple):
                kernel = self.number_first.get(step.row, kernel)
            made: Any = kernel(*arguments, *step.attributes)
            one_by_one = made if isinstance(made, tuple) else (made,)
            if step.row not in VIEWS:
                one_by_one = tuple(self.row_major(one) for one in one_by_one)
            values[step.outputs[0] : step.outputs[-1] + 1] = one_by_one
        return [values[result] for result in program.results]


def check_results(made: Sequence[Any], stated: Sequence[int], meta: Meta) -> None:
    """Check that results are those that a `call` states: the rest of the worker relies on that.

    Args:
        made: The results.
        stated: The attribute `results`: for each result the number of its dtype, its number of
            dimensions, its sizes.
        meta: Number of a value's dtype, and its size.

    Raises:
        RuntimeError: They are not.
    """
    found = [number for one in made for number in _described(*meta(one))]
    if found != list(stated):
        raise RuntimeError(
            f"call: the program gives {found} (dtype, dimensions, sizes of each result), and "
            f"{list(stated)} was stated"
        )


def _described(dtype: int, size: Sequence[int]) -> tuple[int, ...]:
    return (dtype, len(size), *size)


def plain_kernels(
    kernels: Kernels, dtypes: Sequence[object], answer: Callable[[int], object], meta: Meta
) -> dict[str, Kernel]:
    """Rows `compile`, which refuses, and `call`, which runs the steps, of a backend without a
    compiler.

    With GT_COMPILE=eager nothing is refused.

    Args:
        kernels: The backend's other kernels.
        dtypes: Dtypes by their number on the wire.
        answer: A number as a value.
        meta: Number of a value's dtype, and its size.
    """
    stage = READY if config.compilation() == "eager" else REFUSED

    def call(data: Any, operands: Sequence[Any], results: Sequence[int]) -> tuple[Any, ...]:  # noqa: ANN401
        made = kernels.run(parse(data.tobytes(), dtypes), operands)
        check_results(made, results, meta)
        return tuple(one.copy() for one in made)

    def compile_(_data: Any, _operands: Sequence[Any], results: Sequence[int]) -> tuple[Any, ...]:  # noqa: ANN401
        # A result without dimensions is stated by two numbers.
        asked = (stage, time.perf_counter_ns())[: len(results) // 2]
        return tuple(map(answer, asked))

    return {"compile": compile_, "call": call}
