"""The planner's choice for each placement of each operand of each row.

The planner itself is asked, in a session of two workers; `table` is everything it answers, as data.
validity.py finds the placements that would be correct without moving anything.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from samples import SAMPLES, Given, Operand, Sample

import gt
from gt import _core
from harness.convert import to_gt
from harness.entries import ROWS

MEMBERS = 2
MESH = "@[0,1]"
WHOLE = "replicate"
REDUCE_OPS = ("sum", "max", "min")
# Work costs so much that no rule is passed over for a gather that moves fewer bytes; then bytes.
PRICES = "message = 0\nkernel = 0\nbyte = 1\nflop = 1e9\ntouch = 1e9\n"
WIDEST = 8  # bytes of an element, at the most
PLACED_MAX = 2  # operands that are placed at a time, the others are whole
Placements = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """A sample with its operands in a line, as an instruction has them."""

    row: str
    sample: Sample

    @property
    def operands(self) -> list[Operand]:
        listed = [x if isinstance(x, list) else [x] for x in self.sample.operands]
        return [one for part in listed for one in part]

    @property
    def given(self) -> list[Given]:
        return [x for x in self.operands if isinstance(x, Given)]

    @property
    def names(self) -> list[str]:
        """The operand's name of each tensor; those of a list share one."""
        texts = [text.rstrip("?*") for text in ROWS[self.row]["inputs"]]
        return [
            name
            for name, x in zip(texts, self.sample.operands, strict=True)
            for one in (x if isinstance(x, list) else [x])
            if isinstance(one, Given)
        ]

    @property
    def title(self) -> str:
        """`(2, 3) (3,) | dim=1`: shapes and attributes, of which a rule depends."""
        shapes = " ".join(
            str(x.values.shape) if isinstance(x, Given) else str(x) for x in self.operands
        )
        names = [text.split(":")[0] for text in ROWS[self.row].get("attrs", [])]
        attrs = zip(names, self.sample.attrs, strict=False)  # appended ones may be left out
        return f"{shapes} | {' '.join(f'{name}={value}' for name, value in attrs)}".strip(" |")


def cases(row: str) -> list[Case]:
    """The row's samples, one of each shape and attributes: the widest usual dtype stands first."""
    table: dict[str, Case] = {}
    for sample in SAMPLES[row]:
        case = Case(row, sample)
        names = [text.split(":")[0] for text in ROWS[row].get("attrs", [])]
        named = dict(zip(names, sample.attrs, strict=False))
        is_shard = named.get("total") is not None  # what the planner gives a member
        masks = row in ("index", "index_put") and any(x.dtype == "bool" for x in case.given)
        numbers = all(
            x.dtype != "bfloat16" and x.values.size and np.isfinite(x.values).all()
            for x in case.given
        )
        if numbers and not is_shard and not masks:
            table.setdefault(case.title, case)
    return list(table.values())


def rows() -> list[str]:
    """Rows with operands that a kernel computes."""
    return [name for name in SAMPLES if ROWS[name]["inputs"]]


def placements(x: Given) -> list[str]:
    """Placements of a tensor over two members, beside whole."""
    cuts = [f"shard({dim})" for dim, size in enumerate(x.values.shape) if size >= MEMBERS]
    reduce_ops = REDUCE_OPS if x.dtype != "bool" else REDUCE_OPS[1:]
    return cuts + [f"partial({reduce_op})" for reduce_op in reduce_ops]


def alone(case: Case) -> Iterator[tuple[int, Placements]]:
    """Each placement of each operand, the others whole."""
    for position, x in enumerate(case.given):
        for one in placements(x):
            whole = [WHOLE] * len(case.given)
            whole[position] = one
            yield position, tuple(whole)


def together(case: Case) -> Iterator[Placements]:
    """Each placement of one operand or two."""
    for count in range(1, PLACED_MAX + 1):
        for chosen in itertools.combinations(range(len(case.given)), count):
            for ways in itertools.product(*(placements(case.given[at]) for at in chosen)):
                whole = [WHOLE] * len(case.given)
                for at, one in zip(chosen, ways, strict=True):
                    whole[at] = one
                yield tuple(whole)


# ---- what the planner says ----

SHORT = {
    "replicate": "R",
    "partial(sum)": "P+",
    "partial(max)": "Pmax",
    "partial(min)": "Pmin",
    "partial(prod)": "P*",
}


def short(placement: str) -> str:
    """`shard(1)` -> `S1`, `partial(sum)` -> `P+`, `replicate` -> `R`."""
    if placement.startswith("shard("):
        return "S" + placement[len("shard(") :].replace(")", "", 1)
    return SHORT[placement]


@dataclasses.dataclass(frozen=True)
class Planned:
    """The plan of an instruction."""

    way: str  # kept, reduced, gathered
    gives: tuple[str, ...]  # the placement of each result
    moved_bytes: int

    def __str__(self) -> str:
        return " ".join([self.way, *map(short, self.gives)])


@contextmanager
def session() -> Iterator[None]:
    """Two workers, and prices by which every rule is taken that there is."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        prices = Path(folder) / "prices"
        prices.write_text(PRICES, encoding="utf-8")
        patch.setenv("GT_PRICES", str(prices))
        patch.setenv("GT_BACKEND", "numpy")
        gt.disconnect()
        gt.gpu_workers(MEMBERS)
        try:
            yield
        finally:
            gt.disconnect()
            patch.undo()
            gt.gpu_workers(1)


def planned(case: Case, how: Placements) -> Planned:
    """The plan for tensors of these placements; nothing is computed."""
    placed = [
        _core.distribute(_tensor(x), layout=one + MESH)
        for x, one in zip(case.given, how, strict=True)
    ]
    rest = iter(placed)
    operands = [next(rest) if isinstance(x, Given) else x for x in case.operands]
    names = [text.split(":")[0] for text in ROWS[case.row].get("attrs", [])]
    attrs = zip(names, case.sample.attrs, strict=False)
    named = {key: _attr(value) for key, value in attrs if value is not None}
    before = gt.debug.stats()
    outputs = _core.call(case.row, *operands, **named)
    after = gt.debug.stats()
    results = outputs if isinstance(outputs, tuple) else (outputs,)
    explained = [gt.explain(x) for x in results]
    gives = tuple(one.layout.removesuffix(MESH) for one in explained)
    moved = {name: after[name] - before[name] for name in after}
    resharded = " ".join(explained[0].reshards)
    return Planned(_way(case, how, gives, moved, resharded), gives, moved["moved_bytes"])


def line(case: Case) -> str:
    """Plans by placement, such as `self: S0 kept S0, S1 reduced P+; other: S0 gathered R`."""
    groups: dict[str, list[str]] = {}
    for position, how in alone(case):
        name = case.names[position]
        groups.setdefault(name, []).append(f"{short(how[position])} {planned(case, how)}")
    return "; ".join(f"{name}: {', '.join(dict.fromkeys(all_))}" for name, all_ in groups.items())


def table() -> dict[str, dict[str, str]]:
    """Text of `line`, by row and sample."""
    return {row: {case.title: line(case) for case in cases(row)} for row in rows()}


def _way(
    case: Case, how: Placements, gives: Sequence[str], moved: dict[str, int], resharded: str
) -> str:
    """Gathered: a cut operand is resharded, or what is exchanged is no smaller than it is."""
    if "from shard" in resharded:
        return "gathered"
    cuts = [
        (x, int(one[len("shard(") : -1]))
        for x, one in zip(case.given, how, strict=True)
        if one.startswith("shard")
    ]
    # One number a member is as much as two members' all.
    sizes = [x.values.size * WIDEST for x, dim in cuts if x.values.shape[dim] > MEMBERS]
    exchanged = moved["all_gathers"] + moved["all_to_alls"]
    if sizes and exchanged and moved["moved_bytes"] >= min(sizes):
        return "gathered"
    is_owed = bool(cuts) and any(one.startswith("partial") for one in gives)
    return "reduced" if is_owed or moved["moved_bytes"] else "kept"


def _tensor(x: Given) -> gt.Tensor:
    return to_gt(_torch(x))


def _torch(x: Given) -> torch.Tensor:
    return torch.from_numpy(x.values.copy()).to(getattr(torch, x.dtype))


def _attr(value: object, library: object = _core) -> object:
    is_dtype = isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype)
    return getattr(library, str(value)) if is_dtype else value
