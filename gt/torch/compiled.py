"""`torch.compile` of what is on the device `mux`: a backend that runs what PyTorch captured.

The captured graph becomes operators of the level at which GT has them, forward and backward,
without autograd and PyTorch's dispatcher between them, in the order of the eager program. `linear`,
`matmul` and attention are in it as PyTorch composes them. Code for a GPU of this machine (inductor)
is not written: workers have the elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from gt import import_hooks, notices
from gt.torch import dispatch
from gt.torch.elements import DEVICE_TYPE
from gt.torch.tensor import MuxTensor

Compiled = Callable[..., Any]


def install() -> None:
    """Tells PyTorch's compiler, when it is imported."""
    import_hooks.follow("torch._dynamo.trace_rules", _follow_rules)
    import_hooks.follow("torch._dynamo.variables.builder", _follow_builder)
    import_hooks.follow("torch._dynamo.backends.registry", _follow_registry)
    import_hooks.follow("torch._inductor.compile_fx", _follow_inductor)


def _follow_rules(module: ModuleType) -> None:
    """GT's own functions run as they are."""
    vars(module)["add"]("gt")


def _follow_builder(module: ModuleType) -> None:
    """Graphs take tensors of the device, as they take those of classes that are made of others."""
    is_known = vars(module)["is_traceable_wrapper_subclass"]
    vars(module)["is_traceable_wrapper_subclass"] = lambda x: (
        isinstance(x, MuxTensor) or is_known(x)
    )


def _follow_registry(module: ModuleType) -> None:
    vars(module)["register_backend"](compile, name=DEVICE_TYPE)


def _follow_inductor(module: ModuleType) -> None:
    """The default backend passes on what is not for it."""
    code_of = vars(module)["compile_fx"]

    @functools.wraps(code_of)
    def chosen(graph: Any, inputs: Sequence[object], *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        if isinstance(graph, torch.fx.GraphModule) and any(_is_here(x) for x in _results(graph)):
            return compile(graph, inputs)
        return code_of(graph, inputs, *args, **kwargs)

    vars(module)["compile_fx"] = chosen


def compile(graph: torch.fx.GraphModule, inputs: Sequence[object], **_: object) -> Compiled:
    """The backend: a function that runs a captured graph.

    Where PyTorch cannot separate forward from backward, the graph runs eagerly, which is said once;
    and where it has activation checkpoints.
    """
    if any(str(node.target) == "tag_activation_checkpoint" for node in graph.graph.nodes):
        return graph.forward  # computed twice with the same draws, which eager checkpoints do
    from torch._functorch import aot_autograd, partitioners

    captured = [node for node in graph.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta.get("example_value", x) for node, x in zip(captured, inputs, strict=True)]
    try:
        run: Compiled = aot_autograd.aot_module_simplified(
            graph,
            fakes,
            fw_compiler=_program,
            bw_compiler=_program,
            partition_fn=partitioners.default_partition,  # which computes nothing twice
        )
    except Exception as error:  # noqa: BLE001 - whatever PyTorch's tracers raise
        _say(f"torch.compile: graphs run eagerly, for PyTorch cannot separate passes: {error}")
        return graph.forward
    return run


@functools.cache
def _say(text: str) -> None:
    notices.say(text)


def _program(gm: torch.fx.GraphModule, example_inputs: Sequence[object]) -> Compiled:
    """A graph of operators with each that is for the device called by its function."""
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
