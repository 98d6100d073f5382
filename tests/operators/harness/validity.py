"""Finds, by trying, placements of operands that are correct without moving data; uses no rule.

Each of two members runs the numpy kernel on its shards, and every placement is tried on their
results: replicated, shards of a dimension, contributions to a sum, a maximum or a minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from samples import Given, Operand

from gt.worker.reference import kernels as reference
from gt.worker.reference.values import Array, cast
from harness.entries import ROWS
from harness.rules import (
    MEMBERS,
    WHOLE,
    Case,
    Placements,
    Planned,
    cases,
    planned,
    rows,
    short,
    together,
)

TOLERANCE = 1e-4  # of float32 sums in another order, relative to the largest value
DRAWS = 12
ORDER = ("replicate", "shard", "partial")  # of several right placements the first is planned


def valid(case: Case, how: Placements) -> tuple[str, ...] | None:
    """The placement of each result where each member runs the kernel on its shards, if any.

    Several sets of values, so that what is right by chance is not right each time.
    """
    spread: list[set[str]] = []
    for draw in range(DRAWS):
        generator = np.random.Generator(np.random.PCG64(draw))
        values = [_drawn(x, generator) if draw else x for x in case.given]
        placements = _result_placements(case, how, values, generator)
        spread = (
            [a & b for a, b in zip(spread, placements, strict=True)]
            if draw and placements
            else placements
        )
        if not spread or not all(spread):
            return None
    return tuple(min(placement, key=_order) for placement in spread)


def _drawn(x: Given, draw: np.random.Generator) -> Given:
    """The values in another order; what is floating also by factors and more, or rounded."""
    values = draw.permutation(x.values.reshape(-1)).reshape(x.values.shape)
    if x.dtype.startswith("float"):
        values = values * draw.uniform(0.3, 1.5, x.values.shape)
        values = values + draw.choice([0.0, 0.7]) * draw.uniform(0.0, 1.0, x.values.shape)
        values = np.round(values) if draw.random() < 0.5 else values  # some are alike then
    return Given(values, x.dtype)


def _order(placement: str) -> tuple[int, str]:
    return ORDER.index(placement.partition("(")[0]), placement


def _result_placements(
    case: Case, how: Placements, values: Sequence[Given], draw: np.random.Generator
) -> list[set[str]]:
    """For each result the placements that the members' results are; nothing where one refuses."""
    whole = [cast(x.values, x.dtype) for x in values]
    shards = [_shards(x, one, draw) for x, one in zip(whole, how, strict=True)]
    try:
        expected = _run(case, whole)
        members = [_run(case, list(own)) for own in zip(*shards, strict=True)]
    except (IndexError, RuntimeError, TypeError, ValueError):
        return []
    return [_placements_of([x[at] for x in members], one) for at, one in enumerate(expected)]


def _run(case: Case, arrays: list[Array]) -> list[Array]:
    rest = iter(arrays)

    def operand(x: Operand) -> object:
        if isinstance(x, list):
            return [operand(one) for one in x]
        return next(rest) if isinstance(x, Given) else x

    operands = [operand(x) for x in case.sample.operands]
    with reference.quiet():
        results = reference.NUMPY[case.row](*operands, *case.sample.attrs)
    several = ROWS[case.row].get("outputs", 1) > 1
    return [np.asarray(x) for x in (results if several else (results,))]


def _shards(x: Array, how: str, draw: np.random.Generator) -> Sequence[Array]:
    """Shard of each member."""
    if how == WHOLE:
        return [x] * MEMBERS
    if how.startswith("shard"):
        return np.array_split(x, MEMBERS, int(how[len("shard(") : -1]))
    first = draw.random(x.shape) < 0.5  # which member has what reduces to the value
    if x.dtype == bool:
        own, rest = x, np.where(draw.random(x.shape) < 0.5, x, how == "partial(min)")
    elif how == "partial(sum)":
        own = _steps(x, draw) * np.where(draw.random(x.shape) < 0.5, 1, -1).astype(x.dtype)
        rest = x - own
    else:
        steps = _steps(x, draw)
        own, rest = x, x - steps if how == "partial(max)" else x + steps
    return [np.where(first, own, rest), np.where(first, rest, own)]


def _steps(x: Array, draw: np.random.Generator) -> Array:
    """Positive numbers of any size, whole ones for integers."""
    steps = draw.uniform(0.2, 1.0, x.shape) * draw.choice([1, 5], x.shape)
    whole = x.dtype.kind != "f" or draw.random() < 0.5
    return (np.ceil(steps) if whole else steps).astype(x.dtype)


def _placements_of(parts: Sequence[Array], whole: Array) -> set[str]:
    """Every placement of which these are the members' parts."""
    placements = set()
    if any(x.dtype != whole.dtype or x.ndim != whole.ndim for x in parts):
        return placements
    if all(_same(x, whole) for x in parts):
        placements.add(WHOLE)
    for dim in range(whole.ndim):
        shapes = {(*x.shape[:dim], *x.shape[dim + 1 :]) for x in (*parts, whole)}
        if len(shapes) == 1 and _same(np.concatenate(parts, dim), whole):
            placements.add(f"shard({dim})")
    if all(x.shape == whole.shape for x in parts):
        ufuncs = {"max": np.maximum, "min": np.minimum}
        if whole.dtype != bool:
            ufuncs |= {"sum": np.add, "prod": np.multiply}
        with reference.quiet():
            combined = {reduce_op: by(*parts) for reduce_op, by in ufuncs.items()}
        placements |= {
            f"partial({reduce_op})" for reduce_op, x in combined.items() if _same(x, whole)
        }
    return placements


def _same(a: Array, b: Array) -> bool:
    if a.shape != b.shape:
        return False
    if b.dtype.kind != "f":
        return np.array_equal(a, b)
    finite = np.abs(b[np.isfinite(b)])
    scale = max(float(finite.max(initial=0.0)), 0.01)
    with reference.quiet():
        return np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)


def unruled(case: Case, ask: Callable[[Case, Placements], Planned] = planned) -> Iterator[str]:
    """Placements that are correct without moving data, but for which the planner moves data.

    Two placed operands count only where neither of them alone is such a case.

    Yields:
        The operands' placements, `->`, and the results', as in rules.json.
    """
    results: list[Placements] = []
    for how in together(case):
        fewer = [
            alone
            for alone in results
            if all(one in (WHOLE, other) for one, other in zip(alone, how, strict=True))
        ]
        if fewer or (outputs := valid(case, how)) is None:
            continue
        if ask(case, how).moved_bytes:
            results.append(how)
            yield " ".join([*map(short, how), "->", *map(short, outputs)])


def table() -> dict[str, list[str]]:
    """Row, and what is right of it without a rule."""
    listed = {
        row: sorted({text for case in cases(row) for text in unruled(case)}) for row in rows()
    }
    return {row: texts for row, texts in listed.items() if texts}
