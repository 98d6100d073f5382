"""Operators called in C++ (gt/torch/fast) do what they do in Python, to the bit."""

import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from front_paths import install
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_session import torch_workers

import gt
import gt.torch
from gt.tools import doctor
from gt.torch import MuxTensor
from gt.torch.fast import start
from gt.worker.aten import build, compiling

Program = Callable[[], Any]


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    if not install():
        pytest.skip("no C++ compiler")
    with torch_workers(1):
        yield


def ramp(*sizes: int) -> Any:
    count = torch.Size(sizes).numel()
    return torch.linspace(-2.0, 3.0, count).reshape(sizes).to("mux")


def outcome(program: Program, *, is_on: bool) -> tuple[Any, int]:
    """The program's results or its error, and the number of operators that ran in C++."""
    start.switch(is_on=is_on)
    before = start.calls()
    torch.manual_seed(0)
    try:
        results = [described(x) for x in tree_leaves(program())]
    except Exception as error:  # noqa: BLE001 - whatever an operator raises is compared
        results = [(type(error), str(error))]
    finally:
        start.switch(is_on=True)
    return results, start.calls() - before


def described(x: Any) -> Any:
    """Everything of a result that a program can see."""
    if not isinstance(x, torch.Tensor):
        return x
    bits = x.detach().cpu().resolve_conj().contiguous().view(torch.uint8).flatten().tolist()
    memory = (x.stride(), x.storage_offset(), x.untyped_storage().nbytes(), x._version)
    return (type(x), x.shape, memory, x.dtype, x.device, x.requires_grad, str(x.grad_fn)[:16], bits)


def same(program: Program) -> int:
    """Checks that the results are the same; returns the number of operators that ran in C++."""
    outcome(program, is_on=True)  # operators are found at their first call
    expected, none = outcome(program, is_on=False)
    seen, calls = outcome(program, is_on=True)
    assert none == 0
    assert seen == expected
    return calls


PROGRAMS: dict[str, Program] = {
    "elementwise": lambda: [ramp(2, 3) * 2 + 1, ramp(4).exp(), 1 - ramp(3), ramp(3) > 0.5],
    "alpha": lambda: torch.add(ramp(3), ramp(3), alpha=3),
    "integers": lambda: [torch.arange(4, device="mux") + 1.5, torch.arange(4, device="mux") + True],
    "numbers": lambda: [ramp(3).clamp(0, 1), ramp(3).clamp(min=0.5), ramp(3).pow(2)],
    "dtypes": lambda: [
        ramp(3).sum(dtype=torch.float64),
        torch.zeros_like(ramp(2), dtype=torch.int8),
    ],
    "reductions": lambda: [
        ramp(2, 3).sum(),
        ramp(2, 3).mean((0, 1), keepdim=True),
        ramp(2, 3).max(1),
    ],
    "products": lambda: [ramp(2, 3) @ ramp(3, 4), F.linear(ramp(2, 3), ramp(4, 3), ramp(4))],
    "views": lambda: [ramp(2, 3).t(), ramp(6).view(2, 3)[1], ramp(4, 3)[::2], ramp(3).expand(2, 3)],
    "views of all": lambda: [ramp(3).view(3), ramp(3)[:], ramp(3).detach(), ramp(1, 3).squeeze()],
    "splits": lambda: [ramp(5, 2).split(2), ramp(4).chunk(2), ramp(2, 3).unbind()],
    "lists": lambda: [torch.cat([ramp(2), ramp(3)]), torch.stack([ramp(2), ramp(2)], 1)],
    "creation": lambda: [torch.ones_like(ramp(2)), ramp(2).new_zeros(3), ramp(2).new_full((2,), 7)],
    "elsewhere": lambda: [
        torch.ones_like(ramp(2), device="cpu"),
        ramp(2).new_zeros(3, device="cpu"),
    ],
    "no dimensions": lambda: [ramp(1).squeeze() + 1, ramp(3).sum() * ramp(3)],
    "host numbers": lambda: ramp(3) * torch.tensor(2.0),
    "drawn": lambda: [torch.rand_like(ramp(5)), F.dropout(ramp(9)), ramp(4).bernoulli(0.5)],
    "several results": lambda: [ramp(3, 2).sort(), ramp(4).topk(2), F.layer_norm(ramp(2, 3), (3,))],
    "strings": lambda: [F.gelu(ramp(4), approximate="tanh"), ramp(3).div(2, rounding_mode="floor")],
    "complex": lambda: [
        torch.complex(ramp(3), ramp(3)) * 2j,
        torch.complex(ramp(2), ramp(2)).conj(),
    ],
    "two devices": lambda: ramp(3) + torch.ones(3),
    "shapes": lambda: ramp(3) + ramp(4),
    "no such dim": lambda: ramp(3).sum(2),
    "other layout": lambda: torch.zeros_like(ramp(3), layout=torch.sparse_coo),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same(name: str) -> None:
    calls = same(PROGRAMS[name])
    falls = {"two devices", "elsewhere", "other layout", "no such dim", "shapes"}
    assert calls > 0 or name in falls


def written() -> list[Any]:
    x = ramp(2, 3)
    row, alias = x[1], x.view(6)
    x.add_(1).mul_(ramp(3))
    row.zero_()
    torch._foreach_add_([x, alias], 1.0)
    torch.nn.init.uniform_(y := ramp(4))
    return [x, row, alias, y, x.relu_() is x]


def recorded() -> list[Any]:
    x, w, b = (ramp(*s).requires_grad_() for s in ((4, 3), (2, 3), (2,)))
    y = F.linear(x, w, b)
    z = (y.softmax(-1) * y[:, :1] + (x @ w.t()).exp()).square().mean()
    grads = torch.autograd.grad(z, (x, w, b), create_graph=True)
    again = torch.autograd.grad(grads[0].square().sum(), (x, w))
    return [z, *grads, *again]


def modules() -> list[Any]:
    torch.manual_seed(1)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to("mux")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        model(ramp(2, 3, 8)).square().mean().backward()
        optimizer.step()
    return list(model.parameters())


def autocast() -> Any:
    with torch.autocast("mux", dtype=torch.bfloat16):
        return (ramp(2, 3) @ ramp(3, 2)).softmax(0)


def inference() -> list[Any]:
    x = ramp(2, 3)
    with torch.inference_mode():
        y = ramp(3)
        return [x.t(), y.view(3, 1), (x + y).is_inference(), F.linear(x, x)]


def transformed() -> list[Any]:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.t()).exp().sum()

    x = ramp(2, 2)
    return [
        torch.func.grad(loss)(x), torch.func.vmap(torch.sum)(x), torch.func.hessian(loss)(x),
        torch.func.jvp(loss, (x,), (x,)),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize(
    "program",
    [written, recorded, modules, autocast, inference, transformed],
    ids=lambda x: x.__name__,
)
def test_programs_are_the_same(program: Program) -> None:
    assert same(program) > 0


def test_autograd_minds_writes() -> None:
    def program() -> None:
        x = ramp(3).requires_grad_()
        y = x.exp()
        y.add_(1)
        y.sum().backward()

    (error,), _ = outcome(program, is_on=True)
    assert "modified by an inplace operation" in error[1]
    same(program)


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_operators() -> None:
    x = ramp(3)
    x + x
    with Seen() as mode:
        x + x
    assert mode.names == ["aten.add.Tensor"]


def test_a_subclass_that_holds_tensors_of_the_device_sees_operators() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(ramp(3), ramp(3))
    before = start.calls()
    y = x * x + 1
    assert isinstance(y, TwoTensor)
    assert torch.equal(y.a.cpu(), (ramp(3) * ramp(3) + 1).cpu())
    assert start.calls() >= before + 4


def test_an_error_in_a_backward_pass_is_its_callers() -> None:
    """The operator's own, from a hook's operator or from a node's."""

    def program() -> None:
        x = ramp(3).requires_grad_()
        y = x * 2
        y.register_hook(lambda gradient: gradient.view(7))
        y.sum().backward()

    same(program)
    (error,), _ = outcome(program, is_on=True)
    assert "7" in error[1]
    x = ramp(2).requires_grad_()
    (x * x).sum().backward()  # the thread is as before
    assert torch.equal(x.grad.cpu(), (2 * x).detach().cpu())


def test_threads() -> None:
    sums: list[float] = []

    def work() -> None:
        x = ramp(4).requires_grad_()
        for _ in range(20):
            (x * x).sum().backward()
        sums.append(x.grad.sum().item())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = 40 * ramp(4).sum().item()
    assert sums == [pytest.approx(expected)] * 4


def test_no_tensor_is_left() -> None:
    """Results, arguments and errors hold no reference after they are gone."""
    import gc
    import weakref

    x = ramp(3)
    y = (x + x).view(3, 1)
    refs = [weakref.ref(y), weakref.ref(gt.torch.unwrap(y))]
    del y
    with pytest.raises(RuntimeError):
        x + ramp(4)
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    counts = [sys.getrefcount(x.value), sys.getrefcount(x)]
    for _ in range(100):
        (x + x * 2.0).sum(0)
        x.add_(0.0)
    assert [sys.getrefcount(x.value), sys.getrefcount(x)] == counts


def run(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {"GT_BACKEND": "pytorch", "CUDA_VISIBLE_DEVICES": "", **settings}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


FIRST = """
import torch, gt.torch
from gt.torch.fast import start
x = torch.ones(3, device="mux") + 1
print(x.sum().item(), start.calls() > 0, start.description())
"""


def test_the_setting() -> None:
    assert run(FIRST, GT_FRONT="on").stdout == "6.0 True in C++\n"
    assert run(FIRST, GT_FRONT="off").stdout == "6.0 False in Python: GT_FRONT=off\n"


def test_the_fast_path_begins_in_a_running_program() -> None:
    code = """
import time, torch, gt.torch
from gt.torch.fast import start
x, y, deadline = torch.ones(3, device="mux"), None, time.monotonic() + 50
while (y is None or not start.calls()) and time.monotonic() < deadline:
    y = x.clone().add_(1)
    time.sleep(0.001)
print(y.tolist(), x.add(y).tolist(), start.description())
"""
    assert run(code, GT_FRONT="auto").stdout == "[2.0, 2.0, 2.0] [3.0, 3.0, 3.0] in C++\n"


def test_a_program_without_a_compiler_goes_on(tmp_path: pathlib.Path) -> None:
    for mode, text in (
        ("on", "gt.torch: operators are called in Python, not in C++: "),
        ("auto", ""),
    ):
        done = run(FIRST, GT_FRONT=mode, CXX="/nowhere/c++", GT_CACHE_DIR=str(tmp_path))
        assert done.stdout.startswith("6.0 False in Python: "), done.stderr
        assert text in done.stderr


def test_the_library_of_another_torch_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    key = compiling.key("compiler", build.front())
    monkeypatch.setattr(torch.version, "git_version", "another")
    assert compiling.key("compiler", build.front()) != key


def test_every_file_decides_on_the_library() -> None:
    folder = build.front().main.parent
    files = {path.name for path in folder.iterdir() if re.fullmatch(r".*\.(cpp|h)", path.name)}
    assert files == {build.front().main.name, *build.front().others}


def test_doctor_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    def finding() -> tuple[str, str]:
        ((state, text),) = [(x.state, x.text) for x in doctor.front()]
        return state, text

    assert finding() == ("ok", "operators are called in C++")
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    assert "until a library for this torch is compiled" in finding()[1]
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert finding() == (
        "note",
        "operators are called in Python: there is no compiler /nowhere/c++",
    )
    monkeypatch.setenv("GT_FRONT", "off")
    assert finding() == ("ok", "operators are called in Python: GT_FRONT=off")


def test_wrapped_tensors_are_those_of_python() -> None:
    x = ramp(2, 3)
    y = x + 1
    assert type(y) is MuxTensor
    assert gt.torch.unwrap(y).shape == (2, 3)
    z = gt.torch.wrap(gt.ones(3)) + 1
    assert gt.torch.unwrap(z).tolist() == [2.0, 2.0, 2.0]
