"""The memory that tensors share, as an object that tells which memory it is and its size.

Elements are on workers, so nothing here can point at them.
"""

from gt import _core
from gt._core import Tensor
from gt.errors import NotSupported

__all__ = ["UntypedStorage"]


class UntypedStorage:
    """The memory of a tensor, which its views share: the result of `x.untyped_storage()`.

    Its address is only an identifier: equal storages have equal addresses.
    """

    def __init__(self, tensor: Tensor) -> None:
        count, _ = _core.memory(tensor)
        self._address = _core.memory_address(tensor)
        self._whole = tensor.detach().as_strided((count,), (1,), 0)

    def data_ptr(self) -> int:
        """A number that stands for the address of the first byte; 0 for empty memory."""
        return self._address if len(self) else 0

    @property
    def _cdata(self) -> int:
        return self._address

    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self._whole.nbytes)

    def size(self) -> int:
        """Size in bytes."""
        return self.nbytes()

    def element_size(self) -> int:
        """1: an element is a byte."""
        return 1

    @property
    def device(self) -> object:
        """The device of its tensors."""
        return self._whole.device

    @property
    def is_cuda(self) -> bool:
        """True if its tensors are on CUDA."""
        return bool(self._whole.is_cuda)

    def tolist(self) -> list[int]:
        """All bytes as a list; reads them."""
        return list(_core.read_bytes(self._whole).tobytes())

    def clone(self) -> "UntypedStorage":
        """A copy."""
        return UntypedStorage(self._whole.clone())

    def resize_(self, size: int) -> "UntypedStorage":
        """Returns self, if it has that size.

        Raises:
            NotSupported: it has another size: tensors that share it show its elements.
        """
        if size != self.nbytes():
            raise NotSupported(
                f"UntypedStorage.resize_: from {self.nbytes()} to {size} bytes: elements are on "
                "workers and stay; make a new tensor, or drop the tensors to free their memory"
            )
        return self

    def __len__(self) -> int:
        return self.nbytes()

    def __getitem__(self, place: int) -> int:
        return self.tolist()[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._address == other._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __repr__(self) -> str:
        return f"[gt.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


def whole(storage: UntypedStorage) -> Tensor:
    """All elements of a storage, as a vector in its memory, in its tensors' dtype."""
    return storage._whole  # noqa: SLF001 - private to its class
