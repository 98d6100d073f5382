"""Commands and code of two papers, as their reader types them: paper_blocks.py has the code.

Commands that train are in test_tuning_demo.py, with smaller sizes.
"""

import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import paper_blocks as blocks
import pytest
from cluster import Cluster, until
from spread_session import workers
from test_tuning_demo import DEMO, ROOT, TINY, run

import gt
from gt.tools import config_check

LAYOUTS_PAGE = ROOT / "docs/getting_started/layouts.md"


def test_a_log_of_a_dispatcher_by_hand(tmp_path, monkeypatch):
    """GT_INSTRUCTION_LOG where the dispatcher starts, then the two searches of the paper."""
    log = tmp_path / "tuning_trace.log"
    monkeypatch.setenv("GT_INSTRUCTION_LOG", str(log))
    with Cluster(4) as cluster:
        cluster.wait_for_workers()
        monkeypatch.delenv("GT_INSTRUCTION_LOG")
        file = tmp_path / "layout.yaml"
        file.write_text(
            "pp_stage0: {shard: {axis: 0, workers: [0, 1]}}\n"
            "pp_stage1: {shard: {axis: 0, workers: [2, 3]}}\n"
        )
        words = [*TINY, "--steps=1", "--microbatches=4", f"--connect={cluster.address}"]
        run("train.py", *words, GT_CONFIG=str(file))
        until(lambda: searched("stage0_to_stage1", log))
    assert "shard(0)@[0,1]" in "".join(searched("-i shard", log))
    boundary = searched(r'"ERROR\|stage0_to_stage1"', log)
    assert boundary
    probe = "needs a worker with torch"  # the client asks whether one has it, and does without
    assert not [line for line in boundary if "ERROR" in line and probe not in line]


def searched(words, log):
    done = subprocess.run(
        f"cat {log} | grep {words}", shell=True, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()


def test_a_log_that_no_dispatcher_has_begun_is_named(tmp_path, monkeypatch, caplog):
    with Cluster(1) as cluster:
        cluster.wait_for_workers()
        gt.disconnect()
        log = tmp_path / "trace.log"
        monkeypatch.setenv("GT_INSTRUCTION_LOG", str(log))
        gt.connect(cluster.address)
        gt.disconnect()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"GT_INSTRUCTION_LOG={log} writes nothing here")
    assert said.endswith(
        f"the one at {cluster.address} with GT_INSTRUCTION_LOG={log} or --instruction-log"
    )


@pytest.fixture
def layouts(tmp_path):
    """The paper's three entries and a second stage, forgotten after the test."""
    gt.disconnect()
    (tmp_path / "layout.yaml").write_text(blocks.GROUPS + "pp_stage1: {workers: [2, 3]}\n")
    gt.load_config(str(tmp_path / "layout.yaml"))
    yield
    (tmp_path / "none.yaml").write_text("", encoding="utf-8")
    gt.load_config(str(tmp_path / "none.yaml"))


@pytest.mark.usefixtures("layouts")
def test_scopes_of_a_model():
    """The layout of each product; a boundary moves at the next stage's first use."""
    with workers(4):
        with gt.signal.context("pp_stage0"):
            x = gt.ones(2, 4, 16)
        layer = gt.nn.GELU()
        weights = SimpleNamespace()
        with gt.signal.context("pp_stage0_colpar"):
            weights.qkv_weight = gt.ones(16, 16)
        with gt.signal.context("pp_stage0_rowpar"):
            weights.out_weight = gt.ones(16, 16)
        names = {"gt": gt, "x": x, "layer": layer, "self": weights}
        exec(blocks.STAGE + blocks.PATTERNS, names)
        assert str(names["qkv"].layout) == "shard(2)@[0,1]"
        assert "@[0,1]" in str(names["output"].layout)
        with gt.signal.context("pp_stage1"):
            after = names["output"] + 0
        assert str(after.layout).endswith("@[2,3]")
        value = 0.5 * (1 + 0.6826894921370859)
        np.testing.assert_allclose(after.numpy(), np.full((2, 4, 16), value * 256), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        (blocks.GROUPS, 1),
        (blocks.TWO_STAGES, 2),
        (
            blocks.EIGHT_STAGES.replace(
                "...\n", "".join(f"pp_stage{n}:\n  workers: [{n}]\n" for n in range(2, 7))
            ),
            8,
        ),
    ],
    ids=["groups", "tp4_pp2", "tp1_pp8"],
)
def test_files_of_layouts(text, stages, tmp_path, capsys):
    file = tmp_path / "layout.yaml"
    file.write_text(text, encoding="utf-8")
    assert config_check.run(str(file), workers=8) == 0
    assert capsys.readouterr().out.endswith("0 rules, 0 errors, 0 warnings\n")
    printed = run("model.py", *TINY[:5], "--num-layers=16", GT_CONFIG=str(file), GT_WORKERS="8")
    assert f"layers of each stage: {[16 // stages] * stages}" in printed


def test_sixteen_layers_by_editing_the_model(tmp_path):
    copy = tmp_path / "tuning_demo"
    shutil.copytree(DEMO, copy)
    text = (copy / "model.py").read_text(encoding="utf-8")
    edited = re.sub(r'"num_layers": 8,.*', '"num_layers": 16,', text)
    edited = edited.replace('"hidden_size": 1024', '"hidden_size": 64')
    assert edited != text
    (copy / "model.py").write_text(edited, encoding="utf-8")
    code = blocks.CONFIGURATION + (
        f"import sys; sys.path.insert(0, {str(copy)!r})\nimport model\n"
        "print(model.MiniGPT(model.config).describe())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("layers of each stage: [4, 4, 4, 4]\n")


def test_an_optimizer_of_ones_own():
    """The paper's optimizer, which does nothing; then with the lines that its comment asks for."""
    step = "with gt.no_grad(): param -= self.lr * param.grad"
    for text, moves in ((blocks.OPTIMIZER, False), (blocks.OPTIMIZER.replace("pass", step), True)):
        gt.manual_seed(0)
        model = gt.nn.Linear(3, 2)
        before = model.weight.detach().numpy().copy()
        model(gt.ones(4, 3)).sum().backward()
        exec(text, {"gt": gt, "model": model})
        change = 0.0001 * 4.0 if moves else 0.0
        np.testing.assert_allclose(before - model.weight.detach().numpy(), change, atol=1e-7)


def table():
    """`there`, `here` for each row of the table of C++ lines."""
    text = LAYOUTS_PAGE.read_text(encoding="utf-8").split("## From C++ to Python")[1]
    return re.findall(r"^\| `(.*?)` \| `(.*?)`", text, re.MULTILINE)


def test_each_line_of_cpp_in_python():
    """The table's right column, run in its order as one program."""
    rows = table()
    assert len(rows) == 13
    with workers(2):
        gt.manual_seed(0)
        names = {
            "gt": gt, "world_size": 2, "ranks": [0, 1], "B": 2, "T": 3, "C": 4, "F": 8,
            "grad_scale": gt.tensor(0.5), "input": gt.randn(2, 3, 4),
            "targets": gt.tensor([[0, 1, 2], [3, 0, 1]]),
        }  # fmt: skip
        for there, here in rows:
            if there.startswith("optimizer.zero_grad"):
                model = gt.nn.Sequential(names["fc1"], gt.nn.GELU(), names["fc4"])
                optimizer = gt.optim.SGD(model.parameters(), lr=0.1)
                names |= {"model": model, "optimizer": optimizer}
                before = names["fc1"].weight.detach().numpy().copy()
            if there.startswith("y."):
                names["y"] = names["logits"]
            if there.startswith("pg->"):
                names["g"] = names["fc1"].weight.grad
                gradient = names["g"].numpy().copy()
            exec(here, names)
        np.testing.assert_allclose(names["g"].numpy(), gradient)
        weight = names["fc1"].weight.detach().numpy()
        np.testing.assert_allclose(weight, before - 0.1 * gradient, rtol=1e-5)
        assert str(names["fc1"].weight.layout).startswith("shard(")


def test_the_files_that_the_papers_name_are_there():
    files = ["README.md", "sharding_config.yaml", "model.py", "train.py"]
    files += ["launch.py", "train_simple.py"]
    assert not [name for name in files if not (DEMO / name).exists()]
    examples = ["signal_demo.py", "gpt2_tp_test.py"]
    assert not [name for name in examples if not (ROOT / "examples" / name).exists()]
    assert (ROOT / "CITATION.cff").exists()
