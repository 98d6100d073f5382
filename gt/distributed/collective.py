"""Collectives, for one program that speaks for all workers.

A tensor is its whole value, wherever its shards are; a collective changes their places and never
the value. So a sum that a program requests twice is added once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, overload

from gt import _core
from gt._core import Tensor
from gt.distributed.layout import Layout, Partial, Placement, Replicate
from gt.distributed.mesh import DeviceMesh, ProcessGroup
from gt.distributed.work import Work
from gt.errors import InvalidValue

OPS = ("sum", "max", "min", "prod")


class ReduceOp:
    """PyTorch's names of the reductions."""

    SUM, MAX, MIN, PRODUCT = OPS


@overload
def all_reduce(
    tensor: Tensor, op: str = ..., group: ProcessGroup | None = ..., async_op: Literal[False] = ...
) -> Tensor: ...
@overload
def all_reduce(
    tensor: Tensor, op: str = ..., group: ProcessGroup | None = ..., *, async_op: Literal[True]
) -> Work: ...
def all_reduce(
    tensor: Tensor, op: str = "sum", group: ProcessGroup | None = None, async_op: bool = False
) -> Tensor | Work:
    """Reduce the members' contributions: a partial tensor becomes whole on each member.

    A tensor that is not partial is whole already, and is returned as it is: parameters and
    gradients that every worker holds need no call, and one too many adds nothing.

    Args:
        tensor: Any tensor.
        op: How its contributions are reduced; any other operation than `tensor`'s is refused.
        group: `mesh["tp"]` or `mesh.get_process_group("tp")`; every dimension of the tensor's mesh
            if not given.
        async_op: Return a `Work` whose `wait()` is the result.

    Raises:
        InvalidValue: Its contributions reduce by another operation, or it is on another mesh.
    """
    if op not in OPS:
        raise InvalidValue(
            f"all_reduce: op is one of {', '.join(OPS)}, not {op!r}; "
            "for a mean divide by get_world_size()"
        )

    def whole(placement: Placement) -> Placement:
        if not isinstance(placement, Partial):
            return placement
        if placement.op != op:
            raise InvalidValue(f"all_reduce: {tensor.layout} is the {placement.op} of its parts")
        return Replicate()

    return _done(_changed(tensor, group, whole), async_op=async_op)


@overload
def all_gather(
    tensor: Tensor, group: ProcessGroup | None = ..., async_op: Literal[False] = ...
) -> Tensor: ...
@overload
def all_gather(
    tensor: Tensor, group: ProcessGroup | None = ..., *, async_op: Literal[True]
) -> Work: ...
def all_gather(
    tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Tensor | Work:
    """Make a tensor whole on every member of the group; a partial tensor is reduced too."""
    return _done(_changed(tensor, group, lambda _: Replicate()), async_op=async_op)


@overload
def reduce_scatter(
    tensor: Tensor,
    dim: int = ...,
    op: str = ...,
    group: ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> Tensor: ...
@overload
def reduce_scatter(
    tensor: Tensor,
    dim: int = ...,
    op: str = ...,
    group: ProcessGroup | None = ...,
    *,
    async_op: Literal[True],
) -> Work: ...
def reduce_scatter(
    tensor: Tensor,
    dim: int = 0,
    op: str = "sum",
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Tensor | Work:
    """Reduce the members' contributions, and leave each member its shard of `dim`.

    A tensor that is not partial is only cut.
    """
    for placement in tensor.layout.placements:
        if isinstance(placement, Partial) and placement.op != op:
            raise InvalidValue(
                f"reduce_scatter: {tensor.layout} is the {placement.op} of its parts"
            )
    return _done(_cut(tensor, dim, group), async_op=async_op)


@overload
def all_to_all(
    tensor: Tensor, dim: int, group: ProcessGroup | None = ..., async_op: Literal[False] = ...
) -> Tensor: ...
@overload
def all_to_all(
    tensor: Tensor, dim: int, group: ProcessGroup | None = ..., *, async_op: Literal[True]
) -> Work: ...
def all_to_all(
    tensor: Tensor, dim: int, group: ProcessGroup | None = None, async_op: bool = False
) -> Tensor | Work:
    """Cut along `dim` a tensor that was cut along another dimension (from sequence to
    heads, say).
    """
    return _done(_cut(tensor, dim, group), async_op=async_op)


@overload
def broadcast(
    tensor: Tensor,
    src: int = ...,
    group: ProcessGroup | DeviceMesh | None = ...,
    async_op: Literal[False] = ...,
) -> Tensor: ...
@overload
def broadcast(
    tensor: Tensor,
    src: int = ...,
    group: ProcessGroup | DeviceMesh | None = ...,
    *,
    async_op: Literal[True],
) -> Work: ...
def broadcast(
    tensor: Tensor,
    src: int = 0,
    group: ProcessGroup | DeviceMesh | None = None,
    async_op: bool = False,
) -> Tensor | Work:
    """Hold a tensor whole on every worker, or on every one of a mesh.

    Args:
        src: Accepted and not needed: all copies of a tensor are equal.
    """
    del src
    if group is None:
        return _done(_core.distribute(tensor), async_op=async_op)
    mesh = group.mesh if isinstance(group, ProcessGroup) else group
    return _done(_core.distribute(tensor, None, Layout(mesh, tensor.shape).text), async_op=async_op)


@overload
def scatter(
    tensor: Tensor, dim: int = ..., group: ProcessGroup | None = ..., async_op: Literal[False] = ...
) -> Tensor: ...
@overload
def scatter(
    tensor: Tensor, dim: int = ..., group: ProcessGroup | None = ..., *, async_op: Literal[True]
) -> Work: ...
def scatter(
    tensor: Tensor, dim: int = 0, group: ProcessGroup | None = None, async_op: bool = False
) -> Tensor | Work:
    """Leave each member of the group (all workers if not given) its shard of `dim`."""
    return _done(_cut(tensor, dim, group), async_op=async_op)


@overload
def send(tensor: Tensor, dst: int, async_op: Literal[False] = ...) -> Tensor: ...
@overload
def send(tensor: Tensor, dst: int, *, async_op: Literal[True]) -> Work: ...
def send(tensor: Tensor, dst: int, async_op: bool = False) -> Tensor | Work:
    """Move a tensor to worker `dst`, whole.

    The returned tensor is the one on that worker, so nobody has to receive it.
    """
    return _done(_core.distribute(tensor, None, f"replicate@[{int(dst)}]"), async_op=async_op)


@overload
def gather(tensor: Tensor, dst: int = ..., async_op: Literal[False] = ...) -> Tensor: ...
@overload
def gather(tensor: Tensor, dst: int = ..., *, async_op: Literal[True]) -> Work: ...
def gather(tensor: Tensor, dst: int = 0, async_op: bool = False) -> Tensor | Work:
    """Gather the shards of a tensor on worker `dst`; `send` under PyTorch's other name."""
    return send(tensor, dst, async_op=True) if async_op else send(tensor, dst)


def _done(result: Tensor, *, async_op: bool) -> Tensor | Work:
    return Work(result) if async_op else result


def _cut(tensor: Tensor, dim: int, group: ProcessGroup | None) -> Tensor:
    """The tensor cut along the group, or along the last dimension of its mesh."""
    layout = tensor.layout
    if group is None and layout.mesh.size() == 1:
        return _core.distribute(tensor, dim)
    mesh = layout.mesh if group is None else group.mesh
    axes = (mesh.ndim - 1,) if group is None else group.axes
    target = Layout(ProcessGroup(mesh, axes), tensor.shape, dim)
    if layout.mesh != mesh:
        return _core.distribute(tensor, None, target.text)
    (axis,) = axes
    return _core.distribute(tensor, None, layout.replaced(axis, target.placements[axis]).text)


def _changed(
    tensor: Tensor, group: ProcessGroup | None, change: Callable[[Placement], Placement]
) -> Tensor:
    """tensor with other placements along the group; tensor itself where nothing changes."""
    layout = tensor.layout
    if group is not None and layout.mesh != group.mesh:
        if all(change(placement) == placement for placement in layout.placements):
            return tensor
        raise InvalidValue(f"{layout} is not on {group.mesh!r}; tensor.redistribute(layout) first")
    axes = range(layout.mesh.ndim) if group is None else group.axes
    target = layout
    for axis in axes:
        target = target.replaced(axis, change(target.placements[axis]))
    return tensor if target == layout else _core.distribute(tensor, None, target.text)
