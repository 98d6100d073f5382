"""Conversion of arguments and results between PyTorch's operators and GT's functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gt import _core
from gt.torch import elsewhere, named
from gt.torch.elements import DTYPES
from gt.torch.tensor import MuxTensor, of_value

Named = Mapping[str, object]

# Arguments about the place and form of memory, which a worker decides.
PLACES = frozenset({"device", "layout", "pin_memory", "memory_format", "implicit", "non_blocking"})
_PLAIN = frozenset({int, float, bool, str, complex, type(None)})


def operand(x: object) -> object:
    """An argument in the form for GT's functions.

    Raises:
        RuntimeError: the tensor is of another device and is no number.
    """
    kind = type(x)
    if kind is MuxTensor:
        return x.value  # type: ignore[attr-defined]
    if kind in _PLAIN:
        return x
    if kind is list or kind is tuple:
        return [operand(entry) for entry in x]  # type: ignore[attr-defined]
    if kind is torch.dtype:
        return DTYPES[x]  # type: ignore[index]
    return _other_operand(x)


def _other_operand(x: object) -> object:
    if isinstance(x, MuxTensor):
        return x.value
    if isinstance(x, torch.Tensor):
        if x.ndim and not elsewhere.uploads_operands:
            raise _devices_differ(x)
        return elsewhere.upload(x).value
    if isinstance(x, torch.Generator):
        return named.generator_of(x)
    if isinstance(x, list | tuple):  # torch.Size
        return [operand(entry) for entry in x]
    return x


def written(x: object) -> _core.Tensor:
    """The operand that an operator writes.

    Raises:
        RuntimeError: the tensor is of another device than the other operands, which are on `mux`.
    """
    if not isinstance(x, MuxTensor):
        raise _devices_differ(x)
    return x.value


def _devices_differ(x: Any) -> RuntimeError:  # noqa: ANN401 - a tensor of another device
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{MuxTensor.home} and {x.device}!"
    )


def words(kwargs: Named) -> dict[str, object]:
    """Keyword arguments in the form for GT's functions."""
    return {name: operand(value) for name, value in kwargs.items() if name not in PLACES}


def results(result: object) -> object:
    """The results of a GT function, with PyTorch's tensors in place of GT's."""
    if isinstance(result, _core.Tensor):
        return of_value(result)
    if isinstance(result, list | tuple):
        return tuple([results(entry) for entry in result])
    return result
