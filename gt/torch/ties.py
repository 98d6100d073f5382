"""`Module.to` and its like: parameters stay the same objects, so that tied ones stay tied.

PyTorch does so itself for parameters that move to the device `mux` (`conversions`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from gt.torch import conversions
from gt.torch.tensor import MuxTensor

Apply = Callable[..., Any]
Convert = Callable[[torch.Tensor], torch.Tensor]


def install() -> None:
    """Replaces PyTorch's conversion."""
    apply = conversions.counted(torch.nn.Module._apply)  # noqa: SLF001 - its only place
    torch.nn.Module._apply = _keeping_ties(apply)  # type: ignore[method-assign] # noqa: SLF001


def _keeping_ties(apply: Apply) -> Apply:
    @functools.wraps(apply)
    def converted(module: torch.nn.Module, fn: Convert, recurse: bool = True) -> object:
        parameters = module._parameters  # noqa: SLF001 - as PyTorch's own function
        if not any(isinstance(x, MuxTensor) for x in parameters.values()):
            return apply(module, fn, recurse)
        if recurse:
            for child in module.children():
                child._apply(fn)  # type: ignore[no-untyped-call] # noqa: SLF001
        here = {name: x for name, x in parameters.items() if _is_converted_here(x, fn)}
        parameters.update(dict.fromkeys(here))  # None: PyTorch leaves it out
        try:
            return _swapping(apply, module, fn)
        finally:
            parameters.update(here)

    return converted


def _is_converted_here(parameter: torch.Tensor | None, fn: Convert) -> bool:
    """True if it was on the device and stays there; then it and its gradient get other memory.

    The object stays: results that a module computed of it, as `weight_norm` does, refer to it.
    """
    if not isinstance(parameter, MuxTensor):
        return False
    with torch.no_grad():
        result = fn(parameter)
        if not isinstance(result, MuxTensor):
            return False
        gradient = parameter.grad
        if result is not parameter:
            parameter.data = result
            if gradient is not None:
                gradient.data = fn(gradient)
    return True


def _swapping(apply: Apply, module: torch.nn.Module, fn: Convert) -> object:
    """PyTorch's conversion, in which parameters that leave the device change their class in place.

    PyTorch's setting for that would also affect `load_state_dict`, which then fails for recurrent
    layers, and lazy modules; so it is on during this call alone. A parameter that others refer to
    becomes another object, as between any two devices in PyTorch.
    """
    future = torch.__future__
    before = future.get_swap_module_params_on_conversion()
    future.set_swap_module_params_on_conversion(True)
    try:
        return apply(module, fn, False)
    except RuntimeError as error:
        if "Couldn't swap" not in str(error):
            raise
    finally:
        future.set_swap_module_params_on_conversion(before)
    return apply(module, fn, False)
