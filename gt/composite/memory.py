"""Identity of the memory that a tensor is a part of, and exchange of that memory."""

from collections.abc import Sequence

from gt import _core
from gt._core import Tensor
from gt.composite.common import Method
from gt.composite.strides import blank, row_major
from gt.errors import NotSupported
from gt.storage import UntypedStorage, whole


def data_ptr(self: Tensor) -> int:
    """A number that stands for the address of the first element; 0 for an empty tensor. Nothing can
    be read there.

    It stays as long as the memory; two tensors have the same where they begin at the same element.
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
    """`self` takes the memory of `source`; others keep the one it had.

    Args:
        source: a tensor or its storage; none where not given.
        storage_offset: where `self` begins in that memory, if a size is given.
        size: its shape; that of `source` if not given.
        stride: elements from one to the next along each dimension; those of a contiguous tensor.

    Raises:
        RuntimeError: a recorded call of what requires a gradient, or another dtype.
        NotSupported: of a tensor whose gradient is recorded.
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
