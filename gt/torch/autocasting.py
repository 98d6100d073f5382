"""`torch.autocast("mux")`: casts before operators, by the GPU list of gt/amp/policies.txt.

PyTorch has autocast kernels for its own devices only; those of `mux` are made when an autocast of
the device is first used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gt.amp import casting
from gt.torch.elements import DEVICE_TYPE

_KEY = "AutocastPrivateUse1"
_WIDE = frozenset({torch.float32, torch.float64})
_NARROW = frozenset({torch.float16, torch.bfloat16})
# Registrations, which end with their library objects.
_libraries: list[torch.library.Library] = []


@functools.cache
def register() -> None:
    """Makes a kernel for every overload of every operator in the list."""
    rest: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    rest.fallback(torch.library.fallthrough_kernel, _KEY)
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name, (_, policy) in casting.POLICIES.items():
        cast = _CASTS.get(policy)
        packet = getattr(torch.ops.aten, name, None)
        if cast is None or packet is None:
            continue
        for word in packet.overloads():
            overload = getattr(packet, word)
            if not any(x.alias_info for x in overload._schema.arguments):  # noqa: SLF001
                library.impl(overload, functools.partial(_within, overload, cast), _KEY)
    _libraries.extend([library, rest])


def _within(
    overload: Callable[..., object],
    cast: Callable[[list[torch.Tensor]], torch.dtype | None],
    *args: object,
    **kwargs: object,
) -> object:
    """Runs the operator on cast operands, with autocast off for the operators of its
    composition.
    """
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))  # noqa: SLF001
    with torch._C._ExcludeDispatchKeyGuard(keys):  # noqa: SLF001 - it has no public name
        floats: list[torch.Tensor] = []
        _collect([args, list(kwargs.values())], floats)
        dtype = cast(floats)
        if dtype is not None:
            args = tuple(_cast(x, dtype) for x in args)
            kwargs = {word: _cast(x, dtype) for word, x in kwargs.items()}
        return overload(*args, **kwargs)


def _collect(value: object, floats: list[torch.Tensor]) -> None:
    """Collects the tensors of the device that an autocast may cast."""
    if isinstance(value, list | tuple):
        for entry in value:
            _collect(entry, floats)
    elif _is_cast(value):
        floats.append(value)  # type: ignore[arg-type]


def _is_cast(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == DEVICE_TYPE
        and value.dtype in _WIDE | _NARROW
        and value.dtype != torch.float64
    )


def _cast(value: object, dtype: torch.dtype) -> object:
    if isinstance(value, list | tuple):
        return [_cast(entry, dtype) for entry in value]
    return value.to(dtype) if _is_cast(value) else value  # type: ignore[attr-defined]


def _lower(floats: list[torch.Tensor]) -> torch.dtype | None:
    return torch.get_autocast_dtype(DEVICE_TYPE) if floats else None


def _float32(floats: list[torch.Tensor]) -> torch.dtype | None:
    return torch.float32 if floats else None


def _promote(floats: list[torch.Tensor]) -> torch.dtype | None:
    """The widest of their dtypes."""
    dtypes = {x.dtype for x in floats}
    if torch.float32 in dtypes or len(dtypes) > 1:
        return torch.float32
    return None


def _refuse(floats: list[torch.Tensor]) -> torch.dtype | None:
    del floats
    raise RuntimeError(casting.REFUSED)


_CASTS: dict[str, Callable[[list[torch.Tensor]], torch.dtype | None]] = {
    "lower": _lower,
    "float32": _float32,
    "promote": _promote,
    "refused": _refuse,
}
