"""Storages of the device `mux`, for PyTorch.

The device has tensors only. A storage that a program asks for gives the address and the size of
memory; its content is read through tensors. A storage that is saved or loaded is a copy on the
host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gt import _core
from gt.torch.elements import DEVICE_TYPE


class HostStorage(torch.UntypedStorage):
    """Memory of the host whose tensors are to be on the device.

    `waiting` holds functions that upload it again for each tensor made of it before it was read: a
    file in PyTorch's older format has its tensors first, and their content at its end.
    """

    waiting: list[Callable[[], object]] | None = None

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device `mux`."""
        return torch.device(DEVICE_TYPE, 0)

    def _set_from_file(self, *args: object) -> Any:  # noqa: ANN401 - whatever PyTorch's returns
        filled = super()._set_from_file(*args)  # type: ignore[no-untyped-call]
        for upload in self.waiting or ():
            upload()
        self.waiting = None
        return filled


class DeviceStorage(HostStorage):
    """A tensor's memory: its address and size, by which programs recognize shared memory."""

    address: int
    bytes_held: int

    def data_ptr(self) -> int:
        """A number that stands for the address: it differs for different memory."""
        return self.address

    def nbytes(self) -> int:
        """Size of the memory in bytes."""
        return self.bytes_held

    size = __len__ = nbytes


# Methods of PyTorch's storages that read or write the bytes themselves.
_READ_OR_WRITTEN = (
    *("__getitem__", "__setitem__", "byteswap", "clone", "copy_", "cpu", "cuda", "fill_", "hpu"),
    *("mps", "pin_memory", "resize_", "share_memory_", "to", "tolist", "type", "__iter__"),
    *("bfloat16", "bool", "byte", "char", "complex_double", "complex_float", "double", "float"),
    *("half", "int", "long", "short", "__reduce__", "__copy__", "__deepcopy__", "__repr__"),
)


def _refused(name: str) -> Callable[..., Any]:
    def refuse(self: object, *_: object, **__: object) -> object:
        del self
        raise NotImplementedError(
            f"UntypedStorage.{name} is not implemented for the device {DEVICE_TYPE}: its tensors "
            "read and write memory, x.cpu().untyped_storage() is a copy"
        )

    return refuse


for _name in _READ_OR_WRITTEN:
    setattr(DeviceStorage, _name, _refused(_name))


def storage_of(value: _core.Tensor, itemsize: int) -> DeviceStorage:
    """The memory of a tensor with elements of `itemsize` bytes."""
    storage = DeviceStorage(0)  # type: ignore[no-untyped-call]
    storage.address = _core.memory_address(value)
    storage.bytes_held = _core.memory(value)[0] * itemsize
    return storage


def saved(host: torch.Tensor, place: str) -> torch.UntypedStorage:
    """The memory of a copy on the host, which `torch.save` writes under the name of `place`."""
    storage = host.untyped_storage()
    if place.partition(":")[0] != DEVICE_TYPE:
        return storage
    held = HostStorage(storage.nbytes())  # type: ignore[no-untyped-call]
    held.copy_(storage)
    return held
