"""Display of a tensor in a notebook: its text, and for a distributed one a grid of its shards."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence

from gt._core import Tensor
from gt.distributed.layout import Interval, Layout

__all__ = ["grid", "tensor_html"]

PARTS_MAX = 16  # along a direction; more would be too small to read
CELL = "border:1px solid #78909c;padding:2px 10px;text-align:center;color:#000"
COLOURS = ("#bbdefb", "#ffe0b2", "#c8e6c9", "#e1bee7", "#fff9c4", "#b2dfdb", "#ffcdd2", "#d7ccc8")
Box = dict[int, Interval]  # ranges by dimension; other dimensions are whole
NO_CUT: Box = {}
Held = Sequence[tuple[tuple[Interval, ...], ...]]  # ranges by member and dimension


def tensor_html(self: Tensor) -> str:
    """The repr as HTML without scripts; a distributed tensor adds a table of workers and shards."""
    text = f"<pre>{html.escape(repr(self))}</pre>"
    layout = self.layout
    return text if layout.is_replicated else text + grid(layout)


def grid(layout: Layout) -> str:
    """A table over the first two dimensions that are cut; a cell names the workers that hold it."""
    held = [layout.local_ranges(member) for member in range(layout.mesh.size())]
    ends = [_ends(held, dim) for dim in range(len(layout.shape))]
    cut = [dim for dim in range(len(ends)) if len({ranges[dim] for ranges in held}) > 1]
    if len(cut) == 1 and cut[0] > 0:
        rows, columns = (
            [NO_CUT],
            _boxes(cut, ends),
        )  # the last dimension goes across, as in the text
    else:
        rows, columns = _boxes(cut[:1], ends), _boxes(cut[1:2], ends)
    lines = ["<tr><th></th>" + "".join(f"<th>{_name(box)}</th>" for box in columns) + "</tr>"]
    for row in rows:
        cells = "".join(_cell(layout, held, row | column) for column in columns)
        lines.append(f"<tr><th>{_name(row)}</th>{cells}</tr>")
    notes = [layout.text]
    if any(len(ends[dim]) > PARTS_MAX + 1 for dim in cut[:2]):
        notes.append(f"only the first {PARTS_MAX} parts of a dimension are drawn")
    caption = f'<caption style="white-space:nowrap">{html.escape("; ".join(notes))}</caption>'
    return f'<table style="border-collapse:collapse">{caption}{"".join(lines)}</table>'


def _ends(held: Held, dim: int) -> list[int]:
    """Starts and ends of the shards along a dimension, in order."""
    return sorted({end for ranges in held for interval in ranges[dim] for end in interval})


def _boxes(dims: Sequence[int], ends: Sequence[Sequence[int]]) -> list[Box]:
    """The parts of one dimension between the ends of shards; without a dimension, one
    box for all.
    """
    return [
        {dim: part} for dim in dims for part in list(itertools.pairwise(ends[dim]))[:PARTS_MAX]
    ] or [NO_CUT]


def _cell(layout: Layout, held: Held, box: Box) -> str:
    """The workers that hold a part, on the colour of the first of them."""
    members = [
        member
        for member, ranges in enumerate(held)
        if all(
            any(start <= first and last <= end for start, end in ranges[dim])
            for dim, (first, last) in box.items()
        )
    ]
    workers = ", ".join(str(layout.mesh.ranks[member]) for member in members)
    word = "worker" if len(members) == 1 else "workers"
    colour = COLOURS[members[0] % len(COLOURS)]
    return f'<td style="{CELL};background:{colour}">{word} {workers}</td>'


def _name(box: Box) -> str:
    return ", ".join(f"dim {dim}: {start}:{end}" for dim, (start, end) in box.items())
