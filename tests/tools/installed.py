"""A program for an installed wheel, run outside the checkout: `python installed.py BACKEND`.

`just smoke` runs it under every Python that it finds. Expected values are worked out by hand, so it
needs neither pytest nor PyTorch.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import gt
from gt import nn

OPTIONAL = {"matplotlib", "sklearn", "torch", "tqdm"}  # what the extras bring
SCRIPTS = Path(sysconfig.get_path("scripts"))
STEPS = 200
WAIT_SECONDS = 30.0


def comes_from_the_wheel() -> None:
    """Every part is in site-packages; no compiler of Rust can be reached."""
    installed = Path(sysconfig.get_path("platlib")).resolve()
    for module in (gt, gt._core, importlib.import_module("gt._kernels")):
        path = Path(module.__file__).resolve()
        assert path.is_relative_to(installed), f"{path} is not in {installed}"
    for name in ("cargo", "rustc"):
        found = [p for p in os.get_exec_path() if (Path(p) / name).exists()]
        assert not found, f"{name} is in {found}"


def imports_every_module(backend: str) -> str:
    """Each module of the package; those that want a package which is not here are counted."""
    names = [one.name for one in pkgutil.walk_packages(gt.__path__, "gt.")]
    left = []
    for name in names:
        if name.rpartition(".")[2] == "__main__":
            continue
        try:
            importlib.import_module(name)
        except ImportError as error:
            wants = error.__cause__ or error  # some say it in words of their own
            if backend == "torch" or getattr(wants, "name", None) not in OPTIONAL:
                raise
            left.append(name)
    without = f", but {len(left)} that want an extra" if left else ""
    return f"{len(names)} modules{without}"


def computes() -> None:
    """Values, gradients, random bits, and the text of a tensor."""
    x = gt.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
    y = (x @ x.T).relu().sum()
    assert y.item() == 5.0 + 25.0  # the other two are -5
    y.backward()
    assert x.grad.tolist() == [[2.0, -4.0], [6.0, 8.0]]
    assert repr(gt.arange(3)) == "tensor([0, 1, 2])"
    gt.manual_seed(1)
    assert [round(v, 4) for v in gt.rand(4).tolist()] == [0.8903, 0.8947, 0.5857, 0.7113]


def trains_and_saves() -> float:
    """A line through points: least squares finds the same slope and offset."""
    gt.manual_seed(0)
    model = nn.Linear(1, 1)
    points = gt.linspace(-1, 1, 32).reshape(32, 1)
    optimizer = gt.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(model(points), 3 * points - 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert abs(model.weight.item() - 3) < 1e-3
    assert abs(model.bias.item() + 1) < 1e-3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "line.safetensors"
        gt.save(model.state_dict(), path)
        again = nn.Linear(1, 1)
        again.load_state_dict(gt.load(path))
    assert again.weight.item() == model.weight.item()
    return loss.item()


def says_what_is_wrong() -> None:
    """The class of an error, PyTorch's words, and the operation."""
    text = ""
    try:
        gt.zeros(2, 3) @ gt.zeros(4, 5)
    except gt.errors.ShapeError as error:
        text = str(error)
    assert "(2x3 and 4x5)" in text, text
    assert "matmul f32[2,3] f32[4,5]" in text, text


def speaks_of_its_backend(backend: str) -> None:
    """The program's own worker is chosen by itself: PyTorch, else native, said once."""
    code = "import gt; print(gt.ones(2).sum().item())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2.0\n", done
    said = done.stderr.count("PyTorch is not installed")
    assert said == (backend != "torch"), done.stderr


@contextlib.contextmanager
def cluster(backend: str) -> Iterator[str]:
    """The address of a dispatcher with two workers, started by the scripts that pip installed."""
    with contextlib.ExitStack() as stack:

        def start(script: str, *words: str) -> "subprocess.Popen[str]":
            one = subprocess.Popen(
                [SCRIPTS / script, *words], stdout=subprocess.PIPE, stderr=log, text=True
            )
            stack.callback(one.communicate, timeout=30)
            stack.callback(one.terminate)
            return one

        log = stack.enter_context(tempfile.TemporaryFile())
        line = start("gt-dispatcher", "-p", "0").stdout.readline()
        address = re.fullmatch(r"listening on (\S+:(\d+))\n", line)
        for _ in range(2):
            start("gt-worker", "-p", address[2], "--backend", backend, "--threads", "1")
        yield address[1]


def computes_on_a_cluster(backend: str) -> None:
    """The rows of a matrix on two workers; `gt top` says what each of them did."""
    with cluster(backend) as address:
        gt.disconnect()
        gt.connect(address)
        deadline = time.monotonic() + WAIT_SECONDS
        while gt.debug.stats()["workers"] < 2:
            assert time.monotonic() < deadline, "two workers did not join"
        x = gt.distribute(gt.arange(12.0).reshape(4, 3), dim=0)
        assert (x @ x.T).sum(0).tolist() == [74.0, 272.0, 470.0, 668.0]
        top = [SCRIPTS / "gt", "top", "--once", "--json", address]
        counters = json.loads(subprocess.run(top, stdout=subprocess.PIPE, check=True).stdout)
        assert [one["bytes"] > 0 for one in counters["workers"]] == [True, True], counters
        gt.disconnect()


def children() -> list[str]:
    """The command lines of the processes that this one has started and that still run."""
    parts = [task.read_text() for task in Path("/proc/self/task").glob("*/children")]
    pids = [word for part in parts for word in part.split()]
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids]


def main(backend: str) -> None:
    """All of it, with a line that says what was there."""
    comes_from_the_wheel()
    modules = imports_every_module(backend)
    computes()
    says_what_is_wrong()
    loss = trains_and_saves()
    speaks_of_its_backend(backend)
    computes_on_a_cluster(backend)
    deadline = time.monotonic() + WAIT_SECONDS
    while left := children():
        assert time.monotonic() < deadline, f"left behind: {left}"
    version = sys.version.partition(" ")[0]
    print(f"Python {version}, {backend}: {modules}, loss {loss:.0e}, gt {gt.version.gt}")


if __name__ == "__main__":
    main(sys.argv[1])
