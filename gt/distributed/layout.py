"""Layouts: one placement of a tensor for each dimension of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from gt import _core
from gt.distributed.mesh import DeviceMesh, ProcessGroup
from gt.errors import IndexOutOfRange, InvalidType, InvalidValue
from gt.tensors.size import Size

__all__ = ["Layout", "Partial", "Placement", "Replicate", "Shard"]

Interval = tuple[int, int]


@dataclass(frozen=True)
class Replicate:
    """Every member holds all of it."""

    def __str__(self) -> str:
        return "replicate"


@dataclass(frozen=True)
class Shard:
    """Member k holds shard k of a dimension.

    Args:
        dim: The dimension; it may be of any size, even smaller than the mesh.
        blocks: Number of equal blocks, each of which is cut (3 for a fused projection of query, key
            and value, which is cut on heads inside each of the three).
        ranges: The indices that each member holds, as (start, end) or a list of those; by default
            equal parts.
    """

    dim: int
    blocks: int | None = None
    ranges: tuple[tuple[Interval, ...], ...] | None = None

    def __init__(
        self,
        dim: int,
        blocks: int | None = None,
        ranges: Sequence[Interval | Sequence[Interval]] | None = None,
    ) -> None:
        if blocks is not None and ranges is not None:
            raise InvalidValue("Shard: give blocks or ranges, not both")
        listed = None if ranges is None else tuple(_intervals(shard) for shard in ranges)
        for name, value in (("dim", dim), ("blocks", blocks), ("ranges", listed)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        if self.ranges is not None:
            members = ["+".join(f"{start}:{end}" for start, end in one) for one in self.ranges]
            return f"shard({self.dim})[{'|'.join(members)}]"
        return f"shard({self.dim})" if self.blocks is None else self._blocked()

    def _blocked(self) -> str:
        return f"shard({self.dim},blocks={self.blocks})"

    def __repr__(self) -> str:
        fields = [str(self.dim)]
        for name in ("blocks", "ranges"):
            value = getattr(self, name)
            fields += [] if value is None else [f"{name}={value}"]
        return f"Shard({', '.join(fields)})"


@dataclass(frozen=True)
class Partial:
    """Every member holds a contribution of the whole shape; their reduction is the value.

    Args:
        op: `sum`, `max`, `min` or `prod`.
    """

    op: str = "sum"

    def __str__(self) -> str:
        return f"partial({self.op})"


Placement = Replicate | Shard | Partial


def _intervals(shard: Interval | Sequence[Interval]) -> tuple[Interval, ...]:
    """The intervals of one member, which may be given as one."""
    if any(isinstance(part, int) for part in shard):
        return (cast(Interval, tuple(shard)),)
    return tuple((start, end) for start, end in cast(Sequence[Interval], shard))


def _given(
    mesh: DeviceMesh | ProcessGroup,
    rank: int,
    dim: int | None,
    placements: Sequence[Placement] | None,
) -> tuple[DeviceMesh, list[Placement]]:
    """The whole mesh, and a placement for each of its dimensions."""
    group = mesh if isinstance(mesh, ProcessGroup) else mesh[mesh.ndim - 1]
    listed = list(placements or ())
    if dim is not None and not -rank <= dim < rank:
        raise IndexOutOfRange(f"Layout: dimension {dim} of a tensor of {rank} dimensions")
    if dim is not None and (placements is not None or len(group.axes) > 1):
        raise InvalidValue("Layout: dim goes with one dimension of a mesh, and not with placements")
    if len(listed) > group.mesh.ndim:
        raise InvalidValue(
            f"Layout: {len(listed)} placements for a mesh of {group.mesh.ndim} dimensions"
        )
    if not all(isinstance(one, Placement) for one in listed):
        raise InvalidType(f"Layout: placements are Replicate, Shard and Partial, not {listed}")
    listed += [Replicate()] * (group.mesh.ndim - len(listed))
    if dim is not None:
        listed[group.axes[0]] = Shard(dim)
    return group.mesh, listed


def _placements(
    placed: Sequence[tuple[str, int, str, list[list[Interval]] | None]],
) -> tuple[Placement, ...]:
    """Placements from the tuples that gt._core parses from a layout's text."""
    return tuple(
        Replicate() if kind == "replicate" else Partial(op) if op else Shard(dim, None, ranges)
        for kind, dim, op, ranges in placed
    )


class Layout:
    """The distribution of a tensor of some shape over a mesh.

    Args:
        mesh: The workers. `mesh["tp"]` means the whole mesh, and `dim` is cut along that dimension.
        shape: Shape of the whole tensor.
        dim: The dimension to cut over the mesh's last dimension, or over the one that `mesh`
            names; None replicates.
        placements: One for each dimension of the mesh instead of `dim`; absent ones replicate.

    Raises:
        InvalidValue: The placements do not fit the mesh or the shape.
        IndexOutOfRange: The shape has no such dimension.
    """

    __slots__ = ("mesh", "placements", "shape", "text")

    mesh: DeviceMesh
    shape: Size
    placements: tuple[Placement, ...]
    text: str

    def __init__(
        self,
        mesh: DeviceMesh | ProcessGroup,
        shape: Sequence[int],
        dim: int | None = None,
        placements: Sequence[Placement] | None = None,
    ) -> None:
        whole, each = _given(mesh, len(tuple(shape)), dim, placements)
        text = f"{','.join(map(str, each))}@{whole}"
        self.text, _, _, placed = _core.parse_layout(text, tuple(shape))
        self.mesh, self.shape, self.placements = whole, Size(shape), _placements(placed)

    @classmethod
    def parse(cls, text: str, shape: Sequence[int]) -> Layout:
        """The layout that a text like `shard(0)@[0,1]` describes for a tensor of that shape."""
        _, sizes, ranks, placed = _core.parse_layout(text, tuple(shape))
        return cls(DeviceMesh(sizes, ranks), shape, placements=_placements(placed))

    @property
    def dim(self) -> int | None:
        """The dimension that is cut; None where it is whole, the first where several are."""
        return next((one.dim for one in self.placements if isinstance(one, Shard)), None)

    @property
    def is_replicated(self) -> bool:
        """True if every member holds the whole tensor."""
        return all(isinstance(one, Replicate) for one in self.placements)

    @property
    def is_partial(self) -> bool:
        """True if the members' contributions are still to be reduced."""
        return any(isinstance(one, Partial) for one in self.placements)

    def local_ranges(self, member: int = 0) -> tuple[tuple[Interval, ...], ...]:
        """The indices that a member of the mesh holds: for each dimension its ranges, in order."""
        ranges: list[tuple[Interval, ...]] = [((0, size),) for size in self.shape]
        place = range(self.mesh.size())[member]
        for axis in reversed(range(self.mesh.ndim)):
            place, coordinate = divmod(place, self.mesh.shape[axis])
            placement = self.placements[axis]
            if isinstance(placement, Shard):  # at most one axis cuts a dimension
                ranges[placement.dim] = self._shard(placement, axis, coordinate)
        return tuple(ranges)

    def _shard(self, placement: Shard, axis: int, coordinate: int) -> tuple[Interval, ...]:
        """Indices of one shard; the first shards have one more if the size does not divide."""
        if placement.ranges is not None:
            return placement.ranges[coordinate]
        size, more = divmod(self.shape[placement.dim], self.mesh.shape[axis])
        start = coordinate * size + min(coordinate, more)
        return ((start, start + size + int(coordinate < more)),)

    def local_shape(self, member: int = 0) -> Size:
        """Shape of the shard that a member of the mesh holds."""
        ranges = self.local_ranges(member)
        return Size([sum(end - start for start, end in one) for one in ranges])

    def replaced(self, axis: int, placement: Placement) -> Layout:
        """A copy with another placement along one dimension of the mesh."""
        placements = list(self.placements)
        placements[axis] = placement
        return Layout(self.mesh, self.shape, placements=placements)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return (self.text, self.shape) == (other.text, other.shape)

    def __hash__(self) -> int:
        return hash((self.text, self.shape))

    def __repr__(self) -> str:
        return self.text
