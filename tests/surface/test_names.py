"""The exact forms that the first papers of GT use, typed as they stand there: NAMES G1a to G7a.

A test's name begins with its row; docs/features.md points here.
"""

import itertools
import os
import re
import subprocess
import sys
from importlib.metadata import files, metadata
from pathlib import Path

import numpy as np
import pytest
from cluster import Cluster
from without_torch import path_without_torch

import gt
from gt import _core, nn

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*command, **settings):
    """A program in a process of its own, which must succeed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    return done


# ---- G1: two commands ----


def test_g1a_one_line_prints_a_tensor():
    done = run("-c", "import gt; print(gt.randn(2,2))")
    assert re.fullmatch(r"tensor\(\[\[.+,.+\],\n +\[.+,.+\]\]\)\n", done.stdout)
    assert done.stderr == ""


def test_g1a_without_torch_the_worker_is_native_and_says_so_once(tmp_path):
    code = "import gt; print(gt.ones(2)); print(gt.ones(2).sum())"
    done = run("-c", code, PYTHONPATH=path_without_torch(tmp_path))
    assert done.stdout == "tensor([1., 1.])\ntensor(2.)\n"
    assert done.stderr.count("\n") == 1
    assert "native" in done.stderr


def test_g1b_numbers_come_back():
    a = gt.tensor([1, 2, 3, 4])
    b = gt.tensor([5, 6, 7, 8])
    c = a + b
    assert str(c.data.numpy()) == "[ 6  8 10 12]"
    assert c.dtype == gt.int64


def test_g1b_whole_numbers_become_floats_where_a_gradient_is_asked_for():
    a = gt.tensor([1, 2, 3], requires_grad=True)
    b = gt.tensor([4, 5, 6], requires_grad=True)
    loss = (a * 2 + b).sum()
    loss.backward()
    assert a.dtype == gt.float32
    assert str(a.grad.data.numpy()) == "[2. 2. 2.]"


def test_g1c_demo_py_in_the_root_is_gt_demo():
    shown = run(ROOT / "demo.py", "--help").stdout
    assert shown.startswith("usage: gt demo")


def test_g1c_requirements_name_extras_that_the_package_has():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    (requirement,) = [line for line in lines if line and not line.startswith("#")]
    extras = re.fullmatch(r"(?:-e )?\.\[([\w,]+)\]", requirement)[1].split(",")
    assert {"worker", "test"} <= set(extras)
    assert set(extras) <= set(metadata("gt-tensor").get_all("Provides-Extra"))


def test_g16d_the_licence_is_in_the_wheel():
    (licence,) = [path for path in files("gt-tensor") if path.name == "LICENSE"]
    assert ".dist-info" in str(licence)
    assert licence.read_text(encoding="utf-8") == (ROOT / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "code",
    ["import gt; print(gt.ones(2))", "import gt; gt.connect('{}'); print(gt.ones(2))"],
    ids=["embedded", "connected"],
)
def test_g13a_gt_verbose_says_what_starts(code):
    with Cluster(workers=1) as cluster:
        cluster.wait_for_workers()
        code = code.format(cluster.address)
        assert run("-c", code, GT_VERBOSE="0").stderr == ""
        text = run("-c", code, GT_VERBOSE="1").stderr
    # A start that takes longer than a second is told, too.
    start = r"(gt: starting 1 worker \(\w+\): 0 ready, after \d+ s\n)?"
    told = r"(embedded dispatcher, 1 worker[^\n]*|dispatcher at [^\n]+, by shared memory)"
    assert re.fullmatch(rf"gt: {told}\n{start}", text), text


# ---- G2: by hand ----


def test_g2a_server_says_what_to_type():
    with Cluster(workers=0) as cluster:
        worker, connect = (cluster.server.stdout.readline() for _ in range(2))
        assert f"python -m gt.worker --host 127.0.0.1 -p {cluster.port}" in worker
        assert f"gt.connect('{cluster.address}')" in connect


@pytest.mark.parametrize("word", ["--port", "-p"])
def test_g2a_words_of_the_server(word):
    command = [sys.executable, "-m", "gt.server", word, "0", "--host", "127.0.0.1"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+\n", server.stdout.readline())
    finally:
        server.terminate()
        server.communicate(timeout=20)


def test_g2a_other_hosts_need_a_token(tmp_path):
    command = [sys.executable, "-m", "gt.server", "-p", "0", "--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert refused.returncode != 0
    assert "--token-file" in refused.stderr
    tokens = tmp_path / "tokens"
    tokens.write_text("alice open-sesame-0123456789\n")
    tokens.chmod(0o600)
    server = subprocess.Popen([*command, "--token-file", tokens], stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().rsplit(":", 1)[1].strip()
        code = f"import gt; gt.connect('127.0.0.1:{port}')"
        run("-c", code, GT_TOKEN="open-sesame-0123456789")
        with pytest.raises(AssertionError, match="token"):
            run("-c", code, GT_TOKEN="wrong")
    finally:
        server.terminate()
        server.communicate(timeout=20)


def test_g2b_eight_workers_are_eight(tmp_path):
    with Cluster(workers=8) as cluster:
        code = """
x = gt.distribute(gt.arange(16), dim=0)
print(len(gt.debug.get_worker_stats()), (x + 1).sum().item())
"""
        # Workers join while the client begins: wait until all are there.
        waiting = "while len(gt.debug.get_worker_stats()) < 8: pass\n"
        assert cluster.run(waiting + code) == "8 136\n"


def test_g2b_a_worker_may_choose_its_index():
    with Cluster(workers=0) as cluster:
        worker = subprocess.Popen([*cluster.command, "--backend", "numpy", "--id", "3"])
        cluster.workers.append(worker)
        printed = cluster.run("print((gt.ones(2) + 1).tolist(), gt.ones(2).layout)")
        assert printed == "[2.0, 2.0] replicate@[3]\n"


def test_g2c_processes_are_found_by_name():
    listed = "subprocess.run(['ps', 'auxww'], capture_output=True, text=True).stdout"
    code = f"import gt, subprocess\ngt.ones(1).item()\nprint({listed})"
    assert "gt.worker" in run("-c", code, GT_BACKEND="numpy").stdout  # an auto-started one
    with Cluster(workers=1):
        shown = subprocess.run(["ps", "auxww"], capture_output=True, text=True).stdout
        assert "gt.server" in shown
        assert "gt.worker" in shown


def test_g2_three_clients_do_not_mix():
    with Cluster(workers=2) as cluster:
        codes = [f"print((gt.full((3,), {n}.0) * 2).tolist())" for n in range(3)]
        assert [cluster.run(code) for code in codes] == [f"{[n * 2.0] * 3}\n" for n in range(3)]


# ---- G5: autograd ----


def test_g5_autograd_in_the_client():
    x = gt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = (x @ x).relu().sum()
    y.backward()
    np.testing.assert_allclose(x.grad.data.numpy(), [[7.0, 11.0], [9.0, 13.0]])
    with gt.no_grad():
        assert not (x * 2).requires_grad


# ---- G6: nn and optimizers ----


def test_g6a_functions_on_the_namespace():
    pred, target = gt.tensor([1.0, 2.0]), gt.tensor([0.0, 0.0])
    assert nn.mse_loss(pred, target).item() == 2.5
    assert nn.MSELoss()(pred, target).item() == nn.functional.mse_loss(pred, target).item()


def test_g6a_one_module_by_two_names():
    from gt.client import nn as older

    assert older is nn is gt.nn


class Mlp(nn.Module):
    """The model in the form of the first paper."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.fc2 = nn.Linear(8, 1)

    def forward(self, x):
        return self.fc2(nn.functional.relu(self.fc1(x)))


class SGD:
    """A user's own: it keeps what it is given and loops in each step."""

    def __init__(self, parameters, lr=0.001):
        self.parameters = parameters
        self.lr = lr

    def step(self):
        with gt.no_grad():
            for param in self.parameters:
                param -= self.lr * param.grad  # noqa: PLW2901 - as users write it

    def zero_grad(self):
        for param in self.parameters:
            param.grad = None


def test_g6b_parameters_may_be_looped_over_again():
    model = Mlp()
    parameters = model.parameters()
    assert len(parameters) == 4
    assert next(model.parameters()).shape == (8, 4)
    optimizer = SGD(parameters, lr=0.1)
    x, y = gt.ones(2, 4), gt.zeros(2, 1)
    seen = []
    for _ in range(3):
        loss = nn.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append([p.detach().numpy().copy() for p in model.parameters()])
    for before, after in itertools.pairwise(seen):
        assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_g6c_the_loop_of_the_first_paper():
    model, lr = Mlp(), 0.1
    nn.mse_loss(model(gt.ones(2, 4)), gt.ones(2, 1)).backward()
    before = [p.detach().numpy().copy() for p in model.parameters()]
    with gt.no_grad():
        for p in model.parameters():
            p -= lr * p.grad  # noqa: PLW2901 - as the paper writes it
    for old, p in zip(before, model.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), old - lr * p.grad.numpy(), rtol=1e-6)
    p = next(model.parameters())
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        p -= lr * p.grad


# ---- G7: the stream ----


def test_g7a_two_forms_of_one_instruction():
    first = _core.parse_trace_line("TENSOR[3] := ADD TENSOR[0] TENSOR[2]")
    assert first == _core.parse_trace_line("%3 = add %0 %2") == ("add", "%3 = add %0 %2")


def test_g7a_every_instruction_names_a_new_id(tmp_path):
    file = tmp_path / "trace.txt"
    code = "import gt\nfor _ in range(3):\n    x = gt.ones(2); x += 1\nprint(x.tolist())"
    run("-c", code, GT_INSTRUCTION_LOG=str(file), GT_BACKEND="numpy")
    lines = file.read_text(encoding="utf-8").splitlines()
    defined = [int(line[1:].split(" ")[0]) for line in lines if line.startswith("%")]
    assert defined == list(range(len(defined)))
    assert len(defined) == 6


# ---- the page that lists them all ----


@pytest.mark.fast
def test_the_features_page_names_tests_that_exist():
    page = (ROOT / "docs/features.md").read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+)::(test_\w+)(\*?)", page)
    assert len(named) > 30
    for file, name, star in named:
        (path,) = (ROOT / "tests").rglob(f"{file}.py")
        defined = path.read_text(encoding="utf-8")
        assert re.search(rf"def {name}{'' if star else r'[(]'}", defined), f"{file}::{name}"
