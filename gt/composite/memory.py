"""Identity of the memory that a tensor is a part of, and exchange of that memory."""

from collections.abc import Sequence

from gt import _core
from gt._core import Tensor
from gt.compat.storage import UntypedStorage, whole
from gt.composite.common import Method
from gt.composite.strides import blank, row_major
from gt.errors import NotSupported


def data_ptr(self: Tensor) -> int:
    """A number that stands for the address of the first element; 0 for an empty tensor. Nothing can
    be read there.

    It is constant for the memory's life; tensors that begin at one element have one number.
    """
    if not self.numel():
        return 0
    return _core.memory_address(self) + self.storage_offset() * self.element_size()


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that this tensor is a part of."""
    return UntypedStorage(self)


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """True if both show the same elements of one memory in the same order."""
    return (
        _core.memory_address(self) == _core.memory_address(tensor)
        and self.storage_offset() == tensor.storage_offset()
        and (self.shape, self.stride()) == (tensor.shape, tensor.stride())
    )


def set_(
    self: Tensor,
    source: Tensor | UntypedStorage | None = None,
    storage_offset: int = 0,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Tensor:
    """Gives `self` the memory of `source`; other tensors keep the former one.

    Args:
        source: a tensor or its storage; empty memory if not given.
        storage_offset: start of `self` in that memory, if a size is given.
        size: shape of `self`; that of `source` if not given.
        stride: distance of two elements along each dimension; that of a contiguous tensor if not
            given.

    Raises:
        RuntimeError: the call would be recorded for a gradient, or the dtypes differ.
        NotSupported: the tensor's gradient is recorded.
    """
    _core.check_writable(self)
    if self.requires_grad and not self.is_leaf:
        raise NotSupported(
            "set_: of a tensor whose gradient is recorded: assign the other tensor to its name, "
            "or call it of self.detach()"
        )
    memory = whole(source) if isinstance(source, UntypedStorage) else source
    if memory is None:
        memory = blank((0,), self.dtype, False)
    if size is not None:
        steps = row_major(size) if stride is None else stride
        memory = memory.detach().as_strided(size, steps, storage_offset)
    _core.take_memory(self, memory.detach())
    return self


METHODS: dict[str, Method] = {
    "data_ptr": data_ptr,
    "is_set_to": is_set_to,
    "untyped_storage": untyped_storage,
}
WRITING: dict[str, Method] = {"set_": set_}
