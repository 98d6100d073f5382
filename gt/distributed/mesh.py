"""Meshes: workers in one, two or three dimensions, and the lines of workers along a dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

import gt
from gt import _core
from gt._core import Tensor
from gt.distributed.work import Work
from gt.errors import IndexOutOfRange, InvalidType, InvalidValue

__all__ = ["DeviceMesh", "ProcessGroup", "init_device_mesh", "new_group"]

DIMS_MAX = 3


class DeviceMesh:
    """An arrangement of workers, the last dimension the fastest.

    Args:
        shape: Sizes of one to three dimensions; a number stands for one dimension.
        ranks: The workers' indexes, row by row; 0, 1, 2, … if not given.
        names: A name for each dimension, for `mesh["tp"]`.

    Raises:
        InvalidValue: The ranks do not fill the shape, or a worker is named twice.
    """

    __slots__ = ("names", "ranks", "shape")

    shape: tuple[int, ...]
    ranks: tuple[int, ...]
    names: tuple[str, ...] | None

    def __init__(
        self,
        shape: int | Sequence[int],
        ranks: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        try:
            self.shape = (shape,) if isinstance(shape, int) else tuple(int(size) for size in shape)
        except (TypeError, ValueError) as error:
            raise InvalidType(
                f"DeviceMesh: {shape!r} is no shape; workers have no device type "
                "(gt.distributed.init_device_mesh accepts one)"
            ) from error
        if not 1 <= len(self.shape) <= DIMS_MAX or any(size < 1 for size in self.shape):
            raise InvalidValue(
                f"DeviceMesh: a shape has one to {DIMS_MAX} sizes of at least 1, not {shape}"
            )
        count = math.prod(self.shape)
        self.ranks = tuple(range(count)) if ranks is None else tuple(int(rank) for rank in ranks)
        if len(self.ranks) != count:
            raise InvalidValue(
                f"DeviceMesh: shape {self.shape} has room for {count} workers, "
                f"{len(self.ranks)} are named"
            )
        if len(set(self.ranks)) != count or min(self.ranks) < 0:
            raise InvalidValue(f"DeviceMesh: workers {list(self.ranks)} are not each named once")
        self.names = None if names is None else tuple(names)
        if self.names is not None and (
            len(self.names) != len(self.shape) or len(set(self.names)) != len(self.names)
        ):
            raise InvalidValue(
                f"DeviceMesh: {len(self.shape)} dimensions have as many different names, "
                f"not {list(self.names)}"
            )

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @overload
    def size(self) -> int: ...
    @overload
    def size(self, dim: int | str) -> int: ...
    def size(self, dim: int | str | None = None) -> int:
        """Workers along a dimension, or all of them."""
        return len(self.ranks) if dim is None else self.shape[self.axis(dim)]

    def axis(self, dim: int | str) -> int:
        """The number of a dimension that is named or counted, also from the end."""
        if isinstance(dim, str):
            if self.names is None or dim not in self.names:
                hint = "none has a name" if self.names is None else f"there are {self.names}"
                raise InvalidValue(f"DeviceMesh: no dimension is called {dim!r}; {hint}")
            return self.names.index(dim)
        if not isinstance(dim, int):
            raise InvalidType(f"DeviceMesh: a dimension is a number or a name, not {dim!r}")
        if not -self.ndim <= dim < self.ndim:
            raise IndexOutOfRange(f"DeviceMesh: dimension {dim} of {self.ndim}")
        return dim % self.ndim

    def __getitem__(self, dims: int | str | tuple[int | str, ...]) -> ProcessGroup:
        """Some dimensions of this mesh, for layouts along them or to pass as a group."""
        listed = dims if isinstance(dims, tuple) else (dims,)
        return ProcessGroup(self, tuple(self.axis(dim) for dim in listed))

    def get_process_group(self, dim: int | str | None = None) -> ProcessGroup:
        """The group of a dimension; it may be left out where there is only one."""
        if dim is None and self.ndim > 1:
            raise InvalidValue(f"get_process_group: name one of the {self.ndim} dimensions")
        return self[0 if dim is None else dim]

    get_group = get_process_group  # PyTorch's name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return (self.shape, self.ranks) == (other.shape, other.ranks)

    def __hash__(self) -> int:
        return hash((self.shape, self.ranks))

    def __str__(self) -> str:
        """The mesh in a trace's form: `[[0,1],[2,3]]`."""
        rows = [str(rank) for rank in self.ranks]
        for size in reversed(self.shape):
            rows = [
                f"[{','.join(rows[start : start + size])}]" for start in range(0, len(rows), size)
            ]
        return rows[0]

    def __repr__(self) -> str:
        names = "" if self.names is None else f", names={self.names}"
        return f"DeviceMesh({self}{names})"


class ProcessGroup:
    """Some dimensions of a mesh: each line of workers along them works together.

    There is one program, so a group is not the lines that *this* process belongs to: it means all
    of them at once.
    """

    __slots__ = ("axes", "mesh")

    mesh: DeviceMesh
    axes: tuple[int, ...]

    def __init__(self, mesh: DeviceMesh, axes: tuple[int, ...]) -> None:
        if not axes or len(set(axes)) != len(axes):
            raise InvalidValue(f"ProcessGroup: dimensions {axes} of {mesh!r}")
        self.mesh, self.axes = mesh, axes

    def size(self) -> int:
        """Workers of a line."""
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @property
    def ranks(self) -> tuple[tuple[int, ...], ...]:
        """The lines: each has the workers that differ in these dimensions only."""
        lines: dict[tuple[int, ...], list[int]] = {}
        for place, rank in enumerate(self.mesh.ranks):
            rest, others = place, []
            for axis in reversed(range(self.mesh.ndim)):
                rest, coordinate = divmod(rest, self.mesh.shape[axis])
                others.append(-1 if axis in self.axes else coordinate)
            lines.setdefault(tuple(others), []).append(rank)
        return tuple(tuple(line) for line in lines.values())

    def all_reduce_async(self, x: Tensor, op: str = "sum") -> Work:
        """`gt.distributed.all_reduce` along this group."""
        return gt.distributed.all_reduce(x, op, self, async_op=True)

    def all_gather_async(self, x: Tensor) -> Work:
        """`gt.distributed.all_gather` along this group."""
        return gt.distributed.all_gather(x, self, async_op=True)

    def reduce_scatter_async(self, x: Tensor, dim: int = 0, op: str = "sum") -> Work:
        """`gt.distributed.reduce_scatter` along this group."""
        return gt.distributed.reduce_scatter(x, dim, op, self, async_op=True)

    def all_to_all_async(self, x: Tensor, dim: int) -> Work:
        """`gt.distributed.all_to_all` along this group."""
        return gt.distributed.all_to_all(x, dim, self, async_op=True)

    def broadcast_async(self, x: Tensor, src: int = 0) -> Work:
        """`gt.distributed.broadcast` along this group."""
        return gt.distributed.broadcast(x, src, self, async_op=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessGroup):
            return NotImplemented
        return (self.mesh, self.axes) == (other.mesh, other.axes)

    def __hash__(self) -> int:
        return hash((self.mesh, self.axes))

    def __repr__(self) -> str:
        names = self.mesh.names
        along = [axis if names is None else names[axis] for axis in self.axes]
        return f"ProcessGroup({self.mesh!r}, along {along})"


def init_device_mesh(
    device_type: str,  # noqa: ARG001 - PyTorch's
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
) -> DeviceMesh:
    """PyTorch's form of `DeviceMesh(mesh_shape, names=mesh_dim_names)`."""
    return DeviceMesh(mesh_shape, names=mesh_dim_names)


def new_group(ranks: Sequence[int] | None = None) -> ProcessGroup:
    """The group of these workers, in this order; of all of them if none are named."""
    if ranks is None:
        ranks = _core.workers()
    return DeviceMesh(len(ranks), ranks)[0]
