"""einx on GT's tensors: a backend in its registry, with its functions for torch on GT's functions.

einx is not imported here: import_hooks.py calls this when a program imports it.
"""

import importlib
import types
from typing import Any

from gt._core import Tensor

# A part of einx, or a result of its functions, which have no types.
Part = Any


def register(_module: types.ModuleType) -> None:
    """Adds the backend `gt` to einx's registry, which makes it at GT's first tensor."""
    _part("frontend.backend").registry.register_on_import("gt", "gt", _create)


def _part(name: str) -> Part:
    return importlib.import_module(f"einx._src.{name}")


def _create() -> Part:
    """The backend: einx traces calls of functions, here those of the module `gt`."""
    adapter, tracer = _part("adapter"), _part("tracer")
    surface = tracer.signature.python.import_("gt")
    functions = tracer.signature.torch(surface)
    devices = adapter.TorchDeviceStack()
    classical = adapter.classical_from_torch.ops(functions, get_device=devices.get_device)
    named = adapter.namedtensor_from_decomposednamedtensor.ops(
        _operators(adapter, functions, classical, devices), classical
    )
    called = adapter.namedtensor_calltensorfactory.ops(
        devices.namedtensor.ops(named), expected_type=functions.Tensor
    )
    skipped = tracer.optimizer.classical
    return _part("frontend.backend").Backend(
        ops=adapter.einx_from_namedtensor.ops(called),
        name="gt",
        priority=0,
        optimizations=[
            skipped.SkipReshape(surface.reshape),
            skipped.SkipTranspose(surface.permute),
            skipped.SkipBroadcastTo(surface.broadcast_to),
            skipped.SkipConcatenate(surface.cat),
            tracer.optimizer.InlineGraph(),
            tracer.optimizer.SkipCast(),
        ],
        compiler=tracer.compiler.python,
        is_supported_tensor=lambda x: isinstance(x, Tensor),
        get_shape=lambda x: tuple(x.shape),
    )


def _operators(adapter: Part, functions: Part, classical: Part, devices: Part) -> dict[str, Part]:
    """einx's operators by name, each made from the function of torch's interface that it stands
    for.
    """
    adapters = adapter.decomposednamedtensor_from_classical
    kinds = {
        "elementwise": lambda function: adapters.elementwise(function, classical),
        "reduce": adapters.reduce,
        "preserve_shape": adapters.preserve_shape,
        "argfind": lambda function: adapters.argfind(function, classical),
        "update_at": lambda function: adapters.update_at_ravelled(function, classical),
    }
    operators = {
        name: make(getattr(classical, name))
        for kind, make in kinds.items()
        for name in getattr(adapter.ops, kind)
    }
    einsum = adapter.einsum_from_torch(functions, get_device=devices.get_device)
    operators["dot"] = adapter.decomposednamedtensor_from_einsum.dot(einsum)
    operators["get_at"] = adapters.get_at_ravelled(classical)
    return operators
