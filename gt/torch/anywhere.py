"""Runs programs that name another device, or none, on the device `mux`: `gt run`.

There is one device: tensors that a program makes on `cpu` or `cuda`, or moves there, are on `mux`,
and `numpy()` reads. So a program never mixes devices. A DataLoader is the exception: it works on
the host, also in its workers, and its batches are uploaded.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device, data

from gt.sessions import notices
from gt.torch import elsewhere, old_types
from gt.torch.elements import DEVICE_TYPE
from gt.torch.tensor import MuxTensor

Function = Callable[..., Any]
DEVICES = ("cpu", "cuda", "mps", "xpu")  # `meta` stays
DEPTH_MAX = 4  # depth to which a dataset's attributes are searched for tensors


class _State(threading.local):
    """Flag of each thread: true while it prepares data on the host."""

    on_host = False


_state = _State()


class Anywhere(TorchFunctionMode):
    """Gives every call of PyTorch the device `mux` in place of the device that it names or leaves
    out.
    """

    def __torch_function__(
        self,
        func: Function,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        kwargs = kwargs or {}
        own = _FUNCTIONS.get(func)
        if _state.on_host and (own is None or not isinstance(args[0], MuxTensor)):
            return func(*args, **kwargs)
        if own is not None:
            return own(*args, **kwargs)
        if func in _constructors():
            kwargs = {**kwargs, "device": _here(kwargs.get("device")) or DEVICE_TYPE}
        elif "device" in kwargs:
            kwargs = {**kwargs, "device": _here(kwargs["device"])}
        return func(*args, **kwargs)


@functools.cache
def _constructors() -> frozenset[Function]:
    return frozenset(_device._device_constructors())  # noqa: SLF001 - nothing public lists them


def _here(device: Any) -> Any:  # noqa: ANN401 - what a program says of a device, or something else
    """`mux` in place of one of DEVICES or of a GPU's number; other values unchanged."""
    if isinstance(device, bool):
        return device
    if isinstance(device, int):
        return DEVICE_TYPE
    if isinstance(device, torch.device):
        return DEVICE_TYPE if device.type in DEVICES else device
    if isinstance(device, str):
        return DEVICE_TYPE if device.partition(":")[0] in DEVICES else device
    return device


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401
    if "device" in kwargs:
        kwargs["device"] = _here(kwargs["device"])
    return tensor.to(*[_here(x) for x in args], **kwargs)


def _moved(tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return tensor.to(DEVICE_TYPE)


def _on_host(method: Function) -> Function:
    def read(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return method(tensor.to("cpu"), *args, **kwargs)

    return read


_FUNCTIONS: Mapping[Function, Function] = {
    torch.Tensor.to: _to,
    torch.Tensor.cpu: _moved,
    torch.Tensor.cuda: _moved,
    torch.Tensor.type: old_types.converted,
    torch.Tensor.pin_memory: lambda tensor, *_, **__: tensor,
    torch.Tensor.numpy: _on_host(torch.Tensor.numpy),
    torch.Tensor.__array__: _on_host(torch.Tensor.__array__),
}


def install() -> None:
    """Runs this thread's program on `mux` from here on, for the rest of the process."""
    elsewhere.uploads_operands = True
    MuxTensor.saved_device = "cpu"  # saved tensors can be read without GT
    Anywhere().__enter__()  # type: ignore[no-untyped-call] # PyTorch's
    for owner, name, replacement in (
        (torch, "from_numpy", _uploaded),
        (torch, "frombuffer", _uploaded),
        (torch, "load", _loaded),
        (data.DataLoader, "__iter__", _begun),
        (data.dataloader._BaseDataLoaderIter, "__next__", _batched),  # noqa: SLF001
        (torch.autocast, "__init__", _cast),
    ):
        setattr(owner, name, _around(getattr(owner, name), replacement))
    old_types.install(lambda: _state.on_host)
    parameter: Any = torch.nn.Parameter
    parameter.__new__ = staticmethod(_around(parameter.__new__, _parameter))


def _around(function: Function, replacement: Function) -> Function:
    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return replacement(function, *args, **kwargs)

    return around


def _uploaded(function: Function, *args: Any, **kwargs: Any) -> torch.Tensor:  # noqa: ANN401
    """A tensor that the program makes from host memory, uploaded; GT and PyTorch themselves mean
    the host.
    """
    result: torch.Tensor = function(*args, **kwargs)
    caller = str(sys._getframe(2).f_globals.get("__name__"))  # noqa: SLF001 - behind `around`
    is_program = caller.partition(".")[0] not in {"gt", "torch"}
    return result.to(DEVICE_TYPE) if is_program and not _state.on_host else result


def _parameter(
    function: Function,
    kind: type,
    data: torch.Tensor | None = None,
    requires_grad: bool = True,
    **kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Makes a parameter; no call of PyTorch tells of a tensor made by a type, as in
    `Parameter(torch.Tensor(3, 4))`.
    """
    if isinstance(data, torch.Tensor) and data.device.type in DEVICES and not _state.on_host:
        data = data.to(DEVICE_TYPE)
    return function(kind, data, requires_grad, **kwargs)


def _loaded(
    function: Function,
    f: Any,  # noqa: ANN401 - a path or a file
    map_location: Any = None,  # noqa: ANN401
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Loads a file to the host, from where operators upload."""
    if map_location is None or isinstance(map_location, str | torch.device):
        map_location = "cpu"
    before, _state.on_host = _state.on_host, True
    try:
        return _moved_all(function(f, map_location, *args, **kwargs))
    finally:
        _state.on_host = before


def _begun(function: Function, loader: Any) -> Any:  # noqa: ANN401 - a DataLoader
    """An iterator of a DataLoader, whose workers are forked while this thread is on the host."""
    loader.pin_memory = False
    if loader.num_workers and _holds_mux(loader.dataset, DEPTH_MAX):
        loader.num_workers, loader.timeout = 0, 0
        notices.say(
            f"a DataLoader's dataset holds tensors of {DEVICE_TYPE}: the program loads its batches "
            "itself, without workers",
            notices.INFO,
        )
    before, _state.on_host = _state.on_host, True
    try:
        return function(loader)
    finally:
        _state.on_host = before


def _batched(function: Function, iterator: object) -> object:
    before, _state.on_host = _state.on_host, True
    try:
        batch = function(iterator)
    finally:
        _state.on_host = before
    return _moved_all(batch)


def _cast(
    function: Function,
    autocast: object,
    device_type: str,
    dtype: torch.dtype | None = None,
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> None:
    """Sets up an autocast whose default dtype is that of the device which the program names."""
    if device_type in DEVICES:
        dtype = dtype or torch.get_autocast_dtype(device_type)
        device_type = DEVICE_TYPE
    function(autocast, device_type, dtype, *args, **kwargs)


def _holds_mux(value: object, depth: int) -> bool:
    if isinstance(value, MuxTensor):
        return True
    if depth == 0 or isinstance(value, str | bytes | torch.Tensor):
        return False
    entries: Any = ()
    if isinstance(value, Mapping):
        entries = value.values()
    elif isinstance(value, list | tuple | set):
        entries = value
    elif hasattr(value, "__dict__"):
        entries = vars(value).values()
    return any(_holds_mux(entry, depth - 1) for entry in entries)


def _moved_all(value: Any) -> Any:  # noqa: ANN401 - a batch, or what a file holds
    """A value with its host tensors uploaded; a value without tensors is returned as it is."""
    if isinstance(value, torch.Tensor):
        moved = value.to(DEVICE_TYPE)
        is_parameter = isinstance(value, torch.nn.Parameter)
        return torch.nn.Parameter(moved, value.requires_grad) if is_parameter else moved
    if isinstance(value, torch.nn.Module):
        return value.to(DEVICE_TYPE)
    if isinstance(value, tuple):
        entries = [_moved_all(entry) for entry in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    if isinstance(value, list):
        value[:] = [_moved_all(entry) for entry in value]
    elif isinstance(value, dict):
        for key, entry in value.items():
            value[key] = _moved_all(entry)
    return value
