"""`DistributedDataParallel` for a model on `mux`, where one program has all workers already."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from gt.config import environment, variables
from gt.torch.elements import DEVICE_TYPE
from gt.torch.tensor import MuxTensor

_TEXT = (
    f"DistributedDataParallel: the model is on {DEVICE_TYPE!r}, where one program drives all "
    "workers; leave the wrapper out and spread the batches by a YAML file of layouts (GT_CONFIG) "
    "or GT_AUTO_SHARD=1; with GT_DDP=ignore the wrapper does nothing"
)


def install() -> None:
    """Makes the class check if a model is on `mux`."""
    wrapper: Any = DistributedDataParallel
    wrapper.__init__ = _looking(wrapper.__init__)
    wrapper.forward = _passing(wrapper.forward)


def _looking(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def looking(self: Any, module: torch.nn.Module, *args: Any, **named: Any) -> None:  # noqa: ANN401
        if not _is_here(module):
            init(self, module, *args, **named)
            return
        if environment.read(variables.DDP) != "ignore":
            raise RuntimeError(_TEXT)
        torch.nn.Module.__init__(self)
        self.module = module
        self.require_backward_grad_sync = True  # no_sync() sets it

    return looking


def _passing(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def passing(self: Any, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401 - as a module's
        if _is_here(self.module):
            return self.module(*inputs, **named)
        return forward(self, *inputs, **named)

    return passing


def _is_here(module: torch.nn.Module) -> bool:
    return any(isinstance(parameter, MuxTensor) for parameter in module.parameters())
