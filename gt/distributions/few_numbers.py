"""Checks of a few numbers that are in the program's process: no operator runs for them.

A worker checks by PyTorch's rounding. Here only what is certain counts: a True is a True there as
well, and a False leaves the answer to the worker.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gt
from gt import Tensor, _core
from gt.distributions import constraints
from gt.distributions.constraints import Constraint

__all__ = ["ELEMENTS_MAX", "of_program", "read_together", "surely"]

# Most elements that are read for a check. More are checked where they are.
ELEMENTS_MAX = 64
# Whole numbers below are exact in float32, in which PyTorch may compare.
EXACT_MAX = 2.0**24
SUM_TOLERANCE = constraints.SUM_TOLERANCE / 2  # the rest is for the rounding of float32
DTYPES = frozenset({gt.float32, gt.float64, gt.int64, gt.bool})

Number = float | int | bool
Check = Callable[[Any, Sequence[Number], int], bool]


def of_program(value: Tensor) -> list[Number] | None:
    """The numbers of a value that the program itself sent; None for any other."""
    return _core.known_numbers(value) if value.dtype in DTYPES else None


def read_together(values: Sequence[Tensor]) -> list[list[Number] | None]:
    """The numbers of a few small values by one read; None for values that are better checked where
    they are.
    """
    nothing: list[list[Number] | None] = [None] * len(values)
    first = values[0]
    shape, dtype = first.shape, first.dtype
    if first.numel() * len(values) > ELEMENTS_MAX or dtype not in DTYPES:
        return nothing
    if any(value.shape != shape or value.dtype != dtype for value in values[1:]):
        return nothing
    if len(values) == 1:
        return [_core.read_numbers(first)]
    with gt.no_grad():
        numbers = _core.read_numbers(gt.stack(list(values)))
    size = first.numel()
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def can_check(limit: Constraint) -> bool:
    """True if `surely` can ever be True of this region."""
    return type(limit) in CHECKS


def surely(limit: Constraint, numbers: Sequence[Number] | None, row: int) -> bool:
    """True if the region holds the numbers for certain.

    Args:
        limit: the region.
        numbers: the elements, row-major; None if they are not here.
        row: size of the last dimension.
    """
    check = CHECKS.get(type(limit))
    return check is not None and numbers is not None and check(limit, numbers, row)


def _real(_limit: Constraint, numbers: Sequence[Number], _row: int) -> bool:
    return all(x == x for x in numbers)  # noqa: PLR0124 - no NaN


def _independent(limit: Any, numbers: Sequence[Number], row: int) -> bool:
    return surely(limit.base_constraint, numbers, row)


def _boolean(_limit: Constraint, numbers: Sequence[Number], _row: int) -> bool:
    return all(x in (0, 1) for x in numbers)


def _above(limit: Any, numbers: Sequence[Number], _row: int) -> bool:
    bound = limit.lower_bound
    # Another bound may round to the number itself.
    return _is_exact(bound) and all(x > bound for x in numbers)


def _at_least(limit: Any, numbers: Sequence[Number], _row: int) -> bool:
    bound = limit.lower_bound
    return _is_number(bound) and all(x >= bound for x in numbers)


def _whole_at_least(limit: Any, numbers: Sequence[Number], row: int) -> bool:
    return _at_least(limit, numbers, row) and _whole(numbers)


def _between(limit: Any, numbers: Sequence[Number], _row: int) -> bool:
    low, high = limit.lower_bound, limit.upper_bound
    return _is_number(low) and _is_number(high) and all(low <= x <= high for x in numbers)


def _whole_between(limit: Any, numbers: Sequence[Number], row: int) -> bool:
    return _between(limit, numbers, row) and _whole(numbers)


def _simplex(_limit: Constraint, numbers: Sequence[Number], row: int) -> bool:
    if row == 0 or not all(x >= 0 for x in numbers):
        return False
    rows = (numbers[start : start + row] for start in range(0, len(numbers), row))
    return all(abs(sum(each) - 1) < SUM_TOLERANCE for each in rows)


def _is_number(bound: object) -> bool:
    return isinstance(bound, (int, float))


def _is_exact(bound: Any) -> bool:
    return _is_number(bound) and abs(bound) < EXACT_MAX and bound == int(bound)


def _whole(numbers: Sequence[Number]) -> bool:
    return all(x % 1 == 0 for x in numbers)


# By the class itself: a subclass may check something else.
CHECKS: dict[type[Constraint], Check] = {
    type(constraints.real): _real,
    type(constraints.real_vector): _independent,
    type(constraints.boolean): _boolean,
    type(constraints.positive): _above,
    type(constraints.nonnegative): _at_least,
    type(constraints.nonnegative_integer): _whole_at_least,
    type(constraints.unit_interval): _between,
    constraints.integer_interval: _whole_between,
    type(constraints.simplex): _simplex,
}
