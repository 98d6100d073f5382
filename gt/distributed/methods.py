"""Layout of a tensor, and the methods that change it. `install` attaches them to the class."""

from __future__ import annotations

from gt import _core
from gt._core import Tensor
from gt.distributed import collective
from gt.distributed.layout import Layout
from gt.distributed.mesh import DeviceMesh, ProcessGroup
from gt.distributed.picture import tensor_html
from gt.errors import IndexOutOfRange, InvalidType, ShapeError

__all__ = ["DTensor", "distribute", "install"]


def distribute(
    tensor: Tensor, layout: Layout | DeviceMesh | int | None = None, dim: int | None = None
) -> Tensor:
    """The tensor in another layout; without one it is cut over all workers.

    Results stay distributed where the operators allow; the numbers are the same either way.

    Args:
        tensor: Any tensor.
        layout: The target. A mesh alone cuts `dim` over its last dimension; without `dim` it
            replicates.
        dim: The dimension to cut; any size will do, also one smaller than the number of workers.
            None replicates.

    Raises:
        ShapeError: The layout is for another shape.
    """
    if isinstance(layout, DeviceMesh):
        layout = Layout(layout, tensor.shape, dim)
    if isinstance(layout, Layout):
        return redistribute(tensor, layout)
    if layout is not None and not isinstance(layout, int):
        raise InvalidType(f"distribute: expected a Layout, got {type(layout).__name__}")
    return _core.distribute(tensor, dim if layout is None else layout)


def redistribute(self: Tensor, layout: Layout) -> Tensor:
    """The tensor in `layout`."""
    if not isinstance(layout, Layout):
        raise InvalidType(f"redistribute: expected a Layout, got {type(layout).__name__}")
    if tuple(layout.shape) != tuple(self.shape):
        raise ShapeError(
            f"redistribute: a layout of shape {tuple(layout.shape)} "
            f"for a tensor of shape {tuple(self.shape)}"
        )
    return _core.distribute(self, None, layout.text)


def shard(self: Tensor, dim: int, group: ProcessGroup | None = None) -> Tensor:
    """The tensor cut along `dim`, over the group, its mesh's last dimension or all workers."""
    return collective.scatter(self, dim, group)


def all_reduce(self: Tensor, op: str = "sum", group: ProcessGroup | None = None) -> Tensor:
    """The tensor with its members' contributions reduced: `gt.distributed.all_reduce`."""
    return collective.all_reduce(self, op, group)


def all_gather(self: Tensor, group: ProcessGroup | None = None) -> Tensor:
    """The tensor whole on every member: `gt.distributed.all_gather`."""
    return collective.all_gather(self, group)


def sync_w_autograd(self: Tensor, op: str = "sum") -> Tensor:
    """`all_reduce`, under the name that row-parallel layers know it by; gradients pass through."""
    return collective.all_reduce(self, op)


def to_local(self: Tensor, member: int = 0) -> Tensor:
    """The shard of one member of the tensor's mesh, as a plain tensor on that worker, detached."""
    layout = self.layout
    members = layout.mesh.size()
    if not -members <= member < members:
        raise IndexOutOfRange(f"to_local: member {member} of {members}")
    return _core.local_shard(self.detach(), layout.text, member % members)


def _layout(self: Tensor) -> Layout:
    """The tensor's layout now; asks the dispatcher."""
    return Layout.parse(_core.layout(self), self.shape)


class _Spread(type):
    """`isinstance(x, DTensor)` holds for a tensor on several workers."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.layout.mesh.size() > 1


class DTensor(Tensor, metaclass=_Spread):
    """The name of a tensor on several workers; it has no separate class.

    Every tensor has `layout`, `all_reduce()`, `all_gather()`, `shard(dim)`, `redistribute(layout)`
    and `to_local(member)`. `DTensor(x, layout)` is `gt.distribute(x, layout)`.
    """

    def __new__(cls, data: Tensor, layout: Layout) -> Tensor:  # type: ignore[misc]
        return distribute(data, layout)


def install() -> None:
    """Attach the property and the methods to the tensor class."""
    setattr(Tensor, "layout", property(_layout))  # noqa: B010 - the stub calls it read-only
    setattr(Tensor, "_repr_html_", tensor_html)  # noqa: B010 - notebooks alone call it
    for method in (redistribute, shard, all_reduce, all_gather, sync_w_autograd, to_local):
        setattr(Tensor, method.__name__, method)
