"""The section of docs/ops.md on placements, from the harness's rules.json and unruled.json."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

WAYS = ("kept", "reduced", "gathered")
COLUMNS = ("first dim", "dim between", "last dim", "partial(sum)", "partial(max)")
HEAD = """
## Placements of operands

What the planner makes of one operand that is cut along a dim, or partial, where the others are
whole: **kept**, nothing moves; **reduced**, a reduction or a small exchange, now or when the
partial result is needed; **gathered**, the operand is made whole on each member. Several where it
depends on attributes or shapes: most often on whether the dim that is cut is the one worked on.
Asked over {samples} samples of {rows} operators on two workers, at prices at which every rule is
taken; `tests/operators/harness/rules.json` has each sample's answer, with the placements of the
results. `tests/layouts/test_rules.py` holds both to the code, `test_placements.py` beside it the
values and gradients under every placement to those without.

{right} placements of one or two operands are right without moving anything, as trying out tells,
and have no rule: `unruled.json` beside it; the test fails where there are more. Most are
maxima and minima that pass a monotone operator, or operands of which only the shape is read.

"""
Rules = Mapping[str, Mapping[str, str]]


def section(rules: Rules, unruled: Mapping[str, Sequence[str]]) -> str:
    """The whole section, with one line for each operator and operand; equal operands share one."""
    head = HEAD.format(
        samples=sum(map(len, rules.values())),
        rows=len(rules),
        right=sum(map(len, unruled.values())),
    )
    lines = [["operator", "operand", *COLUMNS], ["---"] * (2 + len(COLUMNS))]
    for row, samples in rules.items():
        for cells, operands in grouped(samples.values()).items():
            lines.append([f"`{row}`", ", ".join(operands), *cells])
    return head + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def grouped(samples: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
    """The cells of each operand, with the operands that have equal cells."""
    table: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for sample in samples:
        for text in filter(None, sample.split("; ")):
            operand, answers = text.split(": ")
            pairs = [answer.split(" ")[:2] for answer in answers.split(", ")]
            last = max((int(place[1:]) for place, _ in pairs if is_cut(place)), default=0)
            for place, way in pairs:
                table[operand][column(place, last)].add(way)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for operand, ways in table.items():
        groups[tuple(cell(ways.get(name, set())) for name in COLUMNS)].append(operand)
    return groups


def is_cut(place: str) -> bool:
    return re.fullmatch(r"S\d+", place) is not None


def column(place: str, last: int) -> str:
    if is_cut(place):
        dim = int(place[1:])
        return "first dim" if dim == 0 else "last dim" if dim == last else "dim between"
    return {"P+": "partial(sum)", "Pmax": "partial(max)"}.get(place, "")


def cell(ways: set[str]) -> str:
    return ", ".join(way for way in WAYS if way in ways) or "-"
