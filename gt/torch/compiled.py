"""`torch.compile` for the device `mux`: a backend that runs the graphs that PyTorch captured.

A captured graph becomes operators at the level of GT's, forward and backward, without autograd and
PyTorch's dispatcher between them, in the order of the eager program. It contains `linear`, `matmul`
and attention as PyTorch composes them. No code is generated for a GPU of this machine (inductor):
workers have the elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from gt.compat import import_hooks
from gt.sessions import notices
from gt.torch import dispatch
from gt.torch.elements import DEVICE_TYPE
from gt.torch.tensor import MuxTensor

Compiled = Callable[..., Any]


def install() -> None:
    """Registers with PyTorch's compiler, when that is imported."""
    import_hooks.follow("torch._dynamo.trace_rules", _follow_rules)
    import_hooks.follow("torch._dynamo.variables.builder", _follow_builder)
    import_hooks.follow("torch._dynamo.backends.registry", _follow_registry)
    import_hooks.follow("torch._inductor.compile_fx", _follow_inductor)


def _follow_rules(module: ModuleType) -> None:
    """Makes the compiler run GT's own functions without tracing them."""
    vars(module)["add"]("gt")


def _follow_builder(module: ModuleType) -> None:
    """Makes graphs accept tensors of the device, as they accept classes composed of
    other tensors.
    """
    is_known = vars(module)["is_traceable_wrapper_subclass"]
    vars(module)["is_traceable_wrapper_subclass"] = lambda x: (
        isinstance(x, MuxTensor) or is_known(x)
    )


def _follow_registry(module: ModuleType) -> None:
    vars(module)["register_backend"](compile, name=DEVICE_TYPE)


def _follow_inductor(module: ModuleType) -> None:
    """Makes the default backend pass on graphs that are not for it."""
    code_of = vars(module)["compile_fx"]

    @functools.wraps(code_of)
    def chosen(graph: Any, inputs: Sequence[object], *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        if isinstance(graph, torch.fx.GraphModule) and any(_is_here(x) for x in _results(graph)):
            return compile(graph, inputs)
        return code_of(graph, inputs, *args, **kwargs)

    vars(module)["compile_fx"] = chosen


def compile(graph: torch.fx.GraphModule, inputs: Sequence[object], **_: object) -> Compiled:
    """The backend: a function that runs a captured graph.

    A graph runs eagerly, with one message, if PyTorch cannot separate forward from backward, or if
    it has activation checkpoints.
    """
    if any(str(node.target) == "tag_activation_checkpoint" for node in graph.graph.nodes):
        return graph.forward  # these compute twice with equal draws, as eager checkpoints do
    from torch._functorch import aot_autograd, partitioners

    captured = [node for node in graph.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta.get("example_value", x) for node, x in zip(captured, inputs, strict=True)]
    try:
        run: Compiled = aot_autograd.aot_module_simplified(
            graph,
            fakes,
            fw_compiler=_program,
            bw_compiler=_program,
            partition_fn=partitioners.default_partition,  # it computes nothing twice
        )
    except Exception as error:  # noqa: BLE001 - whatever PyTorch's tracers raise
        _say(f"torch.compile: graphs run eagerly, for PyTorch cannot separate passes: {error}")
        return graph.forward
    return run


@functools.cache
def _say(text: str) -> None:
    notices.say(text)


def _program(gm: torch.fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """A graph whose operators for the device are called by their functions."""
    del example_inputs
    from torch._functorch._aot_autograd.utils import make_boxed_func

    for node in gm.graph.nodes:
        is_operator = isinstance(node.target, torch._ops.OpOverload)  # noqa: SLF001 - its only name
        if is_operator and _has_operand_here(node):
            node.target = _direct(node.target)
    gm.recompile()
    boxed: Compiled = make_boxed_func(gm.forward)
    return boxed


def _direct(operator: Any) -> Compiled:  # noqa: ANN401 - PyTorch has no public type of an overload
    def call(*args: object, **kwargs: object) -> object:
        return dispatch.run(operator, args, kwargs)

    call.__name__ = operator.name().replace("::", "_").replace(".", "_")
    return call


def _has_operand_here(node: torch.fx.Node) -> bool:
    return any(_is_here(x.meta.get("val")) for x in node.all_input_nodes)


def _results(graph: torch.fx.GraphModule) -> list[object]:
    return [
        node.meta.get("example_value", node.meta.get("val"))
        for node in graph.graph.nodes
        if node.op != "output"
    ]


def _is_here(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_here(entry) for entry in value)
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE
