"""`torch.compile` of what is on the device `mux`: numbers of the eager program, graphs captured."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from test_front_training import OPTIMIZERS, PROGRAMS, losses
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_session import torch_workers

import gt.torch  # noqa: F401 - the device

# Dynamo, and the modules that it imports.
pytestmark = [pytest.mark.timeout(180), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("program", "backend"), [*((program, "inductor") for program in PROGRAMS), (PROGRAMS[0], "mux")]
)
def test_a_compiled_model_trains_as_eagerly(program: Any, backend: str) -> None:
    torch.manual_seed(0)
    model, inputs, targets = program()
    eager, local = copy.deepcopy(model).to("mux"), copy.deepcopy(model)
    optimizer = OPTIMIZERS["adamw"]
    remote = model.to("mux")
    compiled = torch.compile(remote, backend=backend)
    inputs_there, targets_there = inputs.to("mux"), targets.to("mux")
    seen = losses(compiled, optimizer(remote.parameters()), inputs_there, targets_there)
    again = losses(eager, optimizer(eager.parameters()), inputs_there, targets_there)
    # Products and attention are one operator each eagerly, and PyTorch's composition in a graph.
    torch.testing.assert_close(seen, again, rtol=1e-6, atol=1e-6)
    expected = losses(local, optimizer(local.parameters()), inputs, targets)
    torch.testing.assert_close(seen, expected, rtol=1e-6, atol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1


def written_in_place(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x[1:].add_(1)


def drawn(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn(3, 4, device=x.device)


def looked_at(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum().item() > 0 else x - 1


def made_here(x: torch.Tensor) -> torch.Tensor:
    made = torch.arange(4, device=x.device) + torch.ones(3, 4, device="mux")
    return x + made + torch.tensor(2.0)


def cast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("mux", torch.bfloat16):
        return x @ x.t()


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "written in place": written_in_place,
    "views": lambda x: (x.t(), x[1:], x.view(-1)[::2]),
    "draws": drawn,
    "a number read": looked_at,
    "made on the device": made_here,
    "sizes of values": lambda x: x[x > 0],
    "dtypes": lambda x: (x.double(), x.bfloat16() * 2, (x > 0).sum()),
    "the host": lambda x: x.cpu() + torch.ones(4),
    "autocast": cast,
    "an operator of its own": torch.linalg.svdvals,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_function_gives_what_it_gives_eagerly(name: str) -> None:
    function = FUNCTIONS[name]
    start = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    outcomes = []
    for run in (function, torch.compile(function)):
        torch.manual_seed(3)
        x = start.to("mux")
        outcomes.append((run(x), x))
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=0, atol=0)


def test_sizes_that_change_need_no_further_graph_each() -> None:
    compiled = torch.compile(lambda x: (x * 2).sum(0))
    for rows in (2, 3, 4, 5, 6, 7):
        x = torch.ones(rows, 4).to("mux")
        assert compiled(x).tolist() == [2.0 * rows] * 4
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_a_compiled_step_has_gradients_of_inputs_and_of_gradients() -> None:
    layer = nn.Linear(4, 4).to("mux")
    compiled = torch.compile(layer)
    gradients = []
    for module in (layer, compiled):
        x = torch.ones(2, 4).to("mux").requires_grad_()
        gradients.append(torch.autograd.grad(module(x).square().sum(), [x, layer.weight]))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)


def test_a_compiled_checkpoint_draws_again_what_it_drew() -> None:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)).to("mux")

    def run(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(layer, x, use_reentrant=False)

    gradients = []
    for function in (run, torch.compile(run)):
        torch.manual_seed(5)
        x = torch.ones(2, 4).to("mux").requires_grad_()
        gradients.append(torch.autograd.grad(function(x).square().sum(), [x, layer[0].weight]))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-6, atol=1e-6)


def test_tensors_of_the_host_go_to_the_default_backend() -> None:
    seen: list[object] = []
    compile_fx: Any = __import__("torch._inductor.compile_fx").__dict__["_inductor"].compile_fx
    own = compile_fx.compile_fx.__wrapped__
    patch = pytest.MonkeyPatch()
    chosen = compile_fx.compile_fx
    cell = chosen.__closure__[chosen.__code__.co_freevars.index("code_of")]
    patch.setattr(cell, "cell_contents", lambda graph, *_, **__: seen.append(graph) or graph)
    try:
        torch.compile(lambda x: x + 1)(torch.ones(2))
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1)(torch.ones(2, device="mux"))
    finally:
        patch.undo()
    assert len(seen) == 1
    assert chosen.__wrapped__ is own
