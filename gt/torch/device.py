"""The device `mux` made known to PyTorch: its name, its module `torch.mux`, tensors made on it."""

from __future__ import annotations

import functools
import importlib
import itertools
from typing import Any

import torch
from torch.utils import backend_registration

import gt
from gt import _core, config
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
    sparse,
    sparse_made,
    steps,
    ties,
)
from gt.torch.elements import DEVICE_TYPE, dtype_of
from gt.torch.fast import start
from gt.torch.tensor import MuxTensor, of_value

# Operators that PyTorch's C++ calls on tensors whose class it leaves aside.
_BELOW = ("_copy_from", "_copy_from_and_resize", "_local_scalar_dense", "_to_copy")
# Tensors that PyTorch makes of numbers alone, which are few: they are made on the host.
_FROM_HOST = (
    "kaiser_window",
    "kaiser_window.beta",
    "kaiser_window.periodic",
    "tril_indices",
    "triu_indices",
)
# PyTorch's names for a sparse layout of the device.
_SPARSE_KEYS = ("SparsePrivateUse1", "SparseCsrPrivateUse1")
# Registrations end with the objects that made them.
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
        """One: where tensors are on the cluster is the dispatcher's decision."""
        return 1

    def current_device(self) -> int:
        """0."""
        return 0

    def set_device(self, device: object) -> None:
        """Nothing: there is one."""

    class device:  # noqa: N801 - PyTorch's name
        """A context in which the device is the current one: it always is."""

        def __init__(self, device: object) -> None:
            del device  # there is one

        def __enter__(self) -> None:
            """Nothing."""

        def __exit__(self, *_: object) -> None:
            """Nothing."""

    def synchronize(self, device: object = None) -> None:  # noqa: ARG002 - there is one
        """Waits until everything that was queued has run; raises what failed."""
        gt.synchronize()

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed(self, seed: int) -> None:
        """Starts the default generator again; GT's own Philox draws from it."""
        gt.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: object = DEVICE_TYPE) -> torch.Tensor:  # noqa: ARG002
        """Seed and draw, as 16 bytes on the host."""
        state: torch.Tensor = gt.to_torch(gt.get_rng_state())
        return state

    def set_rng_state(self, new_state: torch.Tensor, device: object = DEVICE_TYPE) -> None:  # noqa: ARG002
        """Goes on where `get_rng_state` was asked."""
        gt.set_rng_state(gt.from_torch(new_state))

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Dtypes that an autocast may compute in; a new autocast asks for them."""
        autocasting.register()
        return [torch.bfloat16, torch.float16]

    def empty_cache(self) -> None:
        """Nothing: workers keep what they reuse."""


class _Guard(torch._C._acc.DeviceGuard):  # noqa: SLF001 - PyTorch's class for it
    # Asked from C++ all the time, where an error of Python's may be on its way (passes.py).
    type_: Any = _core.ErrorKeeper(torch._C._autograd.DeviceType.PrivateUse1)  # noqa: SLF001


class _Hooks(torch._C._acc.PrivateUse1Hooks):  # noqa: SLF001 - PyTorch's class for it
    def is_available(self) -> bool:
        return True

    def has_primary_context(self, dev_id: int) -> bool:
        return dev_id == 0

    def is_built(self) -> bool:
        return True


def register() -> None:
    """Names PyTorch's free device `mux`, once a process.

    Raises:
        RuntimeError: another library has named it.
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
    sparse.install()
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
    start.begin(config.front())


def _register_kernels() -> None:
    """For calls whose operands are no MuxTensors, or where PyTorch looks past their class."""
    aten: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    aten.impl("empty.memory_format", _empty, "PrivateUse1")
    aten.impl("empty_strided", _empty_strided, "PrivateUse1")
    aten.impl("_efficientzerotensor", _empty, "PrivateUse1")
    for name, key in itertools.product(("empty.memory_format", "empty_strided"), _SPARSE_KEYS):
        refuse = functools.partial(_of_no_layout, functions.overload(name))
        aten.impl(name, refuse, key)
    aten.impl("_sparse_coo_tensor_with_dims", sparse_made.of_sizes, _SPARSE_KEYS[0])
    aten.impl("_sparse_coo_tensor_with_dims_and_tensors", sparse_made.of_parts, _SPARSE_KEYS[0])
    for name in _FROM_HOST:
        aten.impl(name, functools.partial(_from_host, functions.overload(name)), "PrivateUse1")
    for name in _BELOW:
        operator = functions.overload(name)
        aten.impl(name, functools.partial(_below, operator), "PrivateUse1")
    pin = torch.library.get_kernel("aten::_pin_memory", "CPU")
    aten.impl("_pin_memory", functools.partial(_pinned, pin), "CPU", with_keyset=True)
    rest: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    for key in _SPARSE_KEYS:
        rest.fallback(_refused, key)
    _libraries.extend((aten, rest))


def _refused(operator: Any, *_args: object, **_kwargs: object) -> object:  # noqa: ANN401
    raise sparse.refusal(operator)


def _pinned(pin: Any, keys: Any, source: torch.Tensor, device: Any = None) -> torch.Tensor:  # noqa: ANN401
    """A copy of a tensor of the host: uploads gain nothing by pages that stay."""
    if elsewhere.is_here(device):
        return source.clone()
    pinned: torch.Tensor = pin.call_boxed(keys, source, device)
    return pinned


def _below(operator: Any, *args: object, **kwargs: object) -> object:  # noqa: ANN401
    return dispatch.run(operator, args, kwargs)


def _from_host(operator: Any, *args: object, **kwargs: object) -> torch.Tensor:  # noqa: ANN401
    host_tensor: torch.Tensor = operator(*args, **{**kwargs, "device": "cpu", "pin_memory": False})
    return elsewhere.upload(host_tensor)


def _empty(size: list[int], *, dtype: torch.dtype | None = None, **_: object) -> torch.Tensor:
    return of_value(_core.call("full", size=tuple(size), value=0, dtype=dtype_of(dtype)))


def _of_no_layout(
    operator: Any,  # noqa: ANN401 - PyTorch has no public type of an overload
    *_args: object,
    layout: object = None,
    **_kwargs: object,
) -> torch.Tensor:
    raise elsewhere.layout_refused(operator, layout)


def _empty_strided(
    size: list[int], stride: list[int], *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """Contiguous, whatever `stride` says."""
    del stride
    return _empty(size, dtype=dtype)
