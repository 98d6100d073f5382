"""`torch.load(file, map_location="mux")`: makes a file's tensors on the device.

PyTorch moves memory to a device before it makes tensors of it, but this device has tensors only. So
the memory stays on the host under the device's name until a tensor is made of it, and then
uploaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gt.torch import elsewhere
from gt.torch.elements import DEVICE_TYPE
from gt.torch.storages import HostStorage
from gt.torch.tensor import MuxTensor, become

# Priority before PyTorch's own function, which copies to the device's memory.
_PRIORITY = 5


def register() -> None:
    """Registers the device with `torch.load`."""
    torch.serialization.register_package(_PRIORITY, _location, _restored)


def _location(storage: object) -> str | None:
    return str(MuxTensor.home) if isinstance(storage, HostStorage) else None


def _restored(storage: Any, location: str) -> torch.UntypedStorage | None:  # noqa: ANN401
    if location.partition(":")[0] != DEVICE_TYPE:
        return None
    held = HostStorage(storage.nbytes())  # type: ignore[no-untyped-call]
    held.copy_(storage)
    if getattr(storage, "_torch_load_uninitialized", False):
        held.waiting = []
    return held


def set_(args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """`aten::set_` from memory with sizes and strides."""
    del kwargs
    target, storage, *geometry = args
    assert isinstance(target, MuxTensor)
    assert isinstance(storage, torch.UntypedStorage)
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - a mode would make it on the device
        host = torch.empty(0, dtype=target.dtype).set_(storage, *geometry)
    if isinstance(storage, HostStorage) and storage.waiting is not None:
        storage.waiting.append(lambda: target.value.copy_(elsewhere.upload(host).value))
    return become(target, elsewhere.upload(host).value)


def share(args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """`aten::set_` from another tensor, whose memory the first one takes."""
    del kwargs
    target, source = args
    assert isinstance(target, MuxTensor)
    assert isinstance(source, MuxTensor)
    return become(target, source.value.detach())
