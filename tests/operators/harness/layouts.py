"""Layouts as texts: drawing one for a shape, and giving it to a tensor. No comparing in here.

A text is `PLACEMENT,...@MESH`, a placement for each dimension of the mesh, as `x.layout` prints it:
`shard(0),replicate@[[0,1],[2,3]]`, `shard(1)[0:2|2:7]@[0,1]`, `partial(sum)@[2,0]`.
"""

import itertools
import json
import math
import random
import re
from collections.abc import Sequence

import numpy as np

import gt
from gt import _core
from harness.convert import DIMENSIONS_MAX

WHOLE = "whole"  # on one worker, as a tensor without a layout is
REDUCE_OPS = ("sum", "sum", "sum", "max", "min", "prod")
ROWS_BYTES = 40_000
LARGE = 1e6  # beyond it a contribution could overflow
_OUTSIDE = re.compile(r",(?![^(\[]*[)\]])")  # commas outside of brackets


def place(x: gt.Tensor, layout: str, which: int = 0) -> gt.Tensor:
    """Distribute `x` as the text says; only this function knows the Python form.

    A partial value is not moved but computed: its contributions, drawn element by element, are
    along dims of their own and are reduced. The draw depends on `which` operand it is: if two
    operands had their contributions on the same members, a reduce_op of both could pass wrongly.
    """
    if layout == WHOLE:
        return x
    axes, mesh = _parsed(layout)
    reduce_ops = [axis[len("partial(") : -1] for axis in axes if axis.startswith("partial")]
    if not reduce_ops or x.ndim + len(reduce_ops) >= DIMENSIONS_MAX:
        return _core.distribute(x, layout=layout)
    counts = [n for n, axis in zip(_sizes(mesh), axes, strict=True) if axis.startswith("partial")]
    leading = iter(range(len(counts)))
    cut = [
        f"shard({next(leading)})"
        if axis.startswith("partial")
        else re.sub(r"\d+", lambda dim: str(int(dim[0]) + len(counts)), axis, count=1)
        for axis in axes
    ]
    reduce_op = reduce_ops[0]
    if x.dtype == gt.bool and reduce_op == "sum":
        reduce_op = "max"
    if x.is_complex():
        reduce_op = "sum"  # they have no order
    parts = _lengthened(
        _contributions(x, counts, reduce_op, which), x, reduce_op
    )  # [counts..., x's shape...]
    return _reduced(
        _core.distribute(parts, layout=f"{','.join(cut)}@{mesh}"), len(counts), reduce_op
    )


def _lengthened(parts: gt.Tensor, x: gt.Tensor, reduce_op: str) -> gt.Tensor:
    """More rows for each member, which change nothing: reducing locally is to be cheaper."""
    rows = ROWS_BYTES // max(x.numel() * x.element_size(), 1)
    count, *rest = parts.shape
    if reduce_op in ("sum", "prod"):
        make = gt.zeros if reduce_op == "sum" else gt.ones
        more = make(count, rows, *rest, dtype=x.dtype)
    else:
        more = parts.unsqueeze(1).expand(count, rows, *rest)
    return gt.cat([parts.unsqueeze(1), more], 1).reshape(count * (rows + 1), *rest)


def _reduced(parts: gt.Tensor, count: int, reduce_op: str) -> gt.Tensor:
    dims = tuple(range(count))
    if reduce_op == "prod":
        return parts.prod(0, dtype=parts.dtype)
    if reduce_op == "sum":
        return parts.sum(dims, dtype=parts.dtype)
    return parts.amin(dims) if reduce_op == "min" else parts.amax(dims)


def _contributions(x: gt.Tensor, counts: Sequence[int], reduce_op: str, which: int) -> gt.Tensor:
    """Contributions: two members' values reduce exactly to the element, others are neutral."""
    shape = (math.prod(counts), *x.shape)
    generator = np.random.Generator(np.random.PCG64([math.prod(shape), which]))
    order = generator.permuted(np.arange(shape[0] * math.prod(x.shape)).reshape(shape), axis=0)
    rank = order.argsort(axis=0)  # 0: the owner, 1: who has the other share, if there is one
    shares, neutral = _shares(rank, reduce_op, shape[0])
    wide = gt.tensor(shares, dtype=x.dtype)
    if x.dtype == gt.bool:
        less = gt.tensor(rank == 1)  # of two members at the least
        masked = x | less if reduce_op in ("min", "prod") else x & ~less
    elif reduce_op == "sum":
        masked = gt.where(x.abs() < LARGE, x * wide, gt.where(gt.tensor(rank == 0), x, neutral))
    elif reduce_op == "prod":
        masked = gt.where(gt.tensor(rank == 0), x * wide, wide)
    else:
        masked = gt.minimum(x, x - wide) if reduce_op == "max" else gt.maximum(x, x + wide)
    return masked.reshape(*counts, *x.shape)


def _shares(rank: np.ndarray, reduce_op: str, members: int) -> tuple[np.ndarray, int]:
    """Factors of the members' contributions, and the neutral element."""
    alone = members == 1
    if reduce_op == "sum":
        return np.where(rank == 0, 1 if alone else 2, np.where(rank == 1, -1, 0)), 0
    if reduce_op == "prod":
        return np.where(rank == 0, 1 if alone else -1, np.where(rank == 1, -1, 1)), 1
    return np.where(rank == 0, 0, 3 * rank), 0


def share_max(placements: Sequence[str]) -> int:
    """Largest ratio of the contributions made by `place` to the values."""
    return 2 if any("partial(sum)" in layout for layout in placements) else 1


def _parsed(layout: str) -> tuple[list[str], str]:
    axes, mesh = layout.split("@")
    return _OUTSIDE.split(axes), mesh


def _sizes(mesh: str) -> list[int]:
    """`[[0,1],[2,3]]` -> 2, 2."""
    return list(np.array(json.loads(mesh)).shape)


def kind(layout: str) -> str:
    """The text without dims and members, and without mesh dimensions of one member."""
    if layout == WHOLE:
        return WHOLE
    axes, mesh = _parsed(layout)
    wide = [axis for axis, size in zip(axes, _sizes(mesh), strict=True) if size > 1] or [
        "replicate"
    ]
    short = [re.sub(r"\[.*\]", "[..]", re.sub(r"shard\(\d(.*?)\)", r"shard\1", a)) for a in wide]
    return ",".join(sorted(re.sub(r"shard,blocks=\d", "shard[blocks]", axis) for axis in short))


def workers(layout: str) -> int:
    """Number of workers that a layout needs; 0 where it names none."""
    return 0 if layout == WHOLE else 1 + max(map(int, re.findall(r"\d+", _parsed(layout)[1])))


def cuts(layout: str) -> list[tuple[int, int]]:
    """Each cut dim, and over how many members."""
    if layout == WHOLE:
        return []
    axes, mesh = _parsed(layout)
    pairs = zip(axes, _sizes(mesh), strict=True)
    return [(int(axis[6]), size) for axis, size in pairs if axis.startswith("shard")]


# ---- drawing ----


def meshes(workers: int, draw: random.Random) -> str:
    """A mesh of one to three dimensions over some of the workers, in some order."""
    members = draw.sample(range(workers), workers if draw.random() < 0.8 else max(workers - 1, 1))
    if draw.random() < 0.5:
        members.sort()
    shapes = [
        sizes
        for rank in (1, 2, 3)
        for sizes in itertools.product(range(1, len(members) + 1), repeat=rank)
        if math.prod(sizes) == len(members)
    ]
    weights = [0.05 if 1 in sizes else 1.0 for sizes in shapes]  # a dim of one member cuts nothing
    text = str(np.array(members).reshape(draw.choices(shapes, weights)[0]).tolist())
    return text.replace(" ", "")


def even(dim: int, workers: int) -> str:
    """Cut evenly over all workers in a line."""
    return f"shard({dim})@[{','.join(map(str, range(workers)))}]"


def drawn(shape: Sequence[int], workers: int, draw: random.Random, dim: int | None = None) -> str:
    """A layout for a shape; one that cuts `dim`, if that is given."""
    if dim is None and draw.random() < 0.15:
        return WHOLE
    mesh = meshes(workers, draw)
    sizes = _sizes(mesh)
    free = [other for other in range(len(shape)) if other != dim]
    draw.shuffle(free)
    reduce_op = draw.choice(REDUCE_OPS if sizes.count(1) >= len(sizes) - 1 else REDUCE_OPS[:-1])
    place_of_dim = draw.choice([at for at, n in enumerate(sizes) if n > 1] or [0])
    axes = []
    for at, size in enumerate(sizes):
        if dim is not None and at == place_of_dim:
            axes.append(_cut(dim, shape[dim], size, draw))
        elif (chance := draw.random()) < 0.5 and free:
            other = free.pop()
            axes.append(_cut(other, shape[other], size, draw))
        elif chance < 0.75 or (reduce_op == "prod" and "partial(prod)" in axes):
            axes.append("replicate")
        else:
            axes.append(f"partial({reduce_op})")
    return f"{','.join(axes)}@{mesh}"


def _cut(dim: int, size: int, members: int, draw: random.Random) -> str:
    """A dim cut evenly, unevenly, in blocks, or each member with several intervals."""
    chance = draw.random()
    blocks = [n for n in (2, 3, 4, 5) if size and size % n == 0]
    if chance < 0.4:
        return f"shard({dim})"
    if chance < 0.55 and blocks:
        return f"shard({dim},blocks={draw.choice(blocks)})"
    if chance < 0.8 or size < 2:
        edges = [0, *sorted(draw.randint(0, size) for _ in range(members - 1)), size]
        intervals = [f"{a}:{b}" if b > a else "" for a, b in itertools.pairwise(edges)]
        return f"shard({dim})[{'|'.join(intervals)}]"
    edges = [0, *sorted(draw.sample(range(1, size), min(size - 1, members))), size]
    intervals = [f"{a}:{b}" for a, b in itertools.pairwise(edges)]
    draw.shuffle(intervals)  # a member's intervals need not ascend either
    owned: list[list[str]] = [[] for _ in range(members)]
    for interval in intervals:
        draw.choice(owned).append(interval)
    return f"shard({dim})[{'|'.join('+'.join(one) for one in owned)}]"
