"""Registers the device `mux` with PyTorch: its name, its module `torch.mux`, tensors made on it."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch.utils import backend_registration

import gt
from gt import _core
from gt.torch import (
    autocasting,
    compiled,
    composites,
    dispatch,
    elsewhere,
    files,
    functions,
    generators,
    parallel,
    passes,
    steps,
    ties,
)
from gt.torch.elements import DEVICE_TYPE, dtype_of
from gt.torch.tensor import MuxTensor, of_value

# Operators that PyTorch's C++ calls below the level of tensor classes.
_BELOW = ("_copy_from", "_copy_from_and_resize", "_local_scalar_dense", "_to_copy")
# Operators by which PyTorch makes small tensors from numbers alone: they run on the host.
_FROM_HOST = (
    "kaiser_window",
    "kaiser_window.beta",
    "kaiser_window.periodic",
    "tril_indices",
    "triu_indices",
)
# Registrations, which end with their library objects.
_libraries: list[torch.library.Library] = []


class Module:
    """Attributes that PyTorch asks of `torch.mux`, and programs of `torch.cuda`: the cluster is one
    device.
    """

    def is_available(self) -> bool:
        """True: workers start at the first operator."""
        return True

    def is_initialized(self) -> bool:
        """True if a session has begun."""
        return _core.is_connected()

    def init(self) -> None:
        """Begins a session, if none has."""
        _core.init()

    def device_count(self) -> int:
        """1: the dispatcher decides where tensors are on the cluster."""
        return 1

    def current_device(self) -> int:
        """0, the only device."""
        return 0

    def set_device(self, device: object) -> None:
        """Does nothing: there is one device."""

    class device:  # noqa: N801 - PyTorch's name
        """A context in which the device is the current one; it always is."""

        def __init__(self, device: object) -> None:
            del device  # there is one

        def __enter__(self) -> None:
            """Does nothing."""

        def __exit__(self, *_: object) -> None:
            """Does nothing."""

    def synchronize(self, device: object = None) -> None:  # noqa: ARG002 - there is one
        """Waits until all queued work has run; raises its errors."""
        gt.synchronize()

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed(self, seed: int) -> None:
        """Restarts the default generator at its first draw; GT's Philox draws from it."""
        gt.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: object = DEVICE_TYPE) -> torch.Tensor:  # noqa: ARG002
        """Seed and draw number, as 16 bytes on the host."""
        state: torch.Tensor = gt.to_torch(gt.get_rng_state())
        return state

    def set_rng_state(self, new_state: torch.Tensor, device: object = DEVICE_TYPE) -> None:  # noqa: ARG002
        """Restores a state that `get_rng_state` returned."""
        gt.set_rng_state(gt.from_torch(new_state))

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Dtypes that an autocast may compute in; a new autocast asks for them."""
        autocasting.register()
        return [torch.bfloat16, torch.float16]

    def empty_cache(self) -> None:
        """Does nothing: workers keep memory that they reuse."""


class _Guard(torch._C._acc.DeviceGuard):  # noqa: SLF001 - PyTorch's class for it
    # C++ reads it often, possibly while a Python error is pending (passes.py).
    type_: Any = _core.ErrorKeeper(torch._C._autograd.DeviceType.PrivateUse1)  # noqa: SLF001


class _Hooks(torch._C._acc.PrivateUse1Hooks):  # noqa: SLF001 - PyTorch's class for it
    def is_available(self) -> bool:
        return True

    def has_primary_context(self, dev_id: int) -> bool:
        return dev_id == 0

    def is_built(self) -> bool:
        return True


def register() -> None:
    """Gives PyTorch's free device the name `mux`, once in a process.

    Raises:
        RuntimeError: another library has given it a name.
    """
    name = torch._C._get_privateuse1_backend_name()  # noqa: SLF001 - nothing public tells
    if name != "privateuseone":
        raise RuntimeError(
            f"gt.torch: PyTorch has one device for other libraries, and it is {name!r} here"
        )
    backend_registration._setup_privateuseone_for_python_backend(  # noqa: SLF001
        DEVICE_TYPE, Module(), _Hooks(), _Guard()
    )
    MuxTensor.home = torch.device(DEVICE_TYPE, 0)
    MuxTensor.run = dispatch.run
    passes.install()
    generators.install()
    compiled.install()
    parallel.install()
    steps.install()
    optimizer: Any = importlib.import_module("torch.optim.optimizer")
    optimizer._foreach_supported_types.append(MuxTensor)  # noqa: SLF001
    files.register()
    ties.install()
    _register_kernels()
    composites.install()


def _register_kernels() -> None:
    """Registers kernels for calls without MuxTensors, and for calls below the level of
    their class.
    """
    aten: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    aten.impl("empty.memory_format", _empty, "PrivateUse1")
    aten.impl("empty_strided", _empty_strided, "PrivateUse1")
    aten.impl("_efficientzerotensor", _empty, "PrivateUse1")
    for name in _FROM_HOST:
        aten.impl(name, functools.partial(_from_host, functions.overload(name)), "PrivateUse1")
    for name in _BELOW:
        operator = functions.overload(name)
        aten.impl(name, functools.partial(_below, operator), "PrivateUse1")
    pin = torch.library.get_kernel("aten::_pin_memory", "CPU")
    aten.impl("_pin_memory", functools.partial(_pinned, pin), "CPU", with_keyset=True)
    _libraries.append(aten)


def _pinned(pin: Any, keys: Any, source: torch.Tensor, device: Any = None) -> torch.Tensor:  # noqa: ANN401
    """A plain copy of a host tensor: page-locked memory would not speed up uploads."""
    if elsewhere.is_here(device):
        return source.clone()
    pinned: torch.Tensor = pin.call_boxed(keys, source, device)
    return pinned


def _below(operator: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401
    return dispatch.run(operator, args, kwargs)


def _from_host(operator: Any, *args: object, **kwargs: object) -> torch.Tensor:  # noqa: ANN401
    made: torch.Tensor = operator(*args, **{**kwargs, "device": "cpu", "pin_memory": False})
    return elsewhere.upload(made)


def _empty(size: list[int], *, dtype: torch.dtype | None = None, **_: object) -> torch.Tensor:
    return of_value(_core.call("full", size=tuple(size), value=0, dtype=dtype_of(dtype)))


def _empty_strided(
    size: list[int], stride: list[int], *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """A contiguous tensor, for any `stride`."""
    del stride
    return _empty(size, dtype=dtype)
