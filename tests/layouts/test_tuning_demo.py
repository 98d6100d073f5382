"""examples/tuning_demo: each command of its README with small sizes; the layout changes no loss.

`--slow` trains the real one, of 204,673,024 parameters.
"""

import contextlib
import importlib.util
import json
import math
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster

from gt.tools import config_check, log

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "examples/tuning_demo"
LAYOUT = DEMO / "sharding_config.yaml"
SIZES = {
    "num-layers": 4, "hidden-size": 128, "num-heads": 4, "intermediate-size": 512,
    "vocab-size": 307,
    "batch-size": 8, "seq-len": 16, "steps": 3,
}  # fmt: skip
TINY = [f"--{name}={size}" for name, size in SIZES.items()]
# The real sizes are the scripts' own.
REAL = ["--batch-size=8", "--seq-len=16", "--steps=3"]
REAL_SECONDS_MAX = 1_200
STEP = re.compile(r"^step (\d+) loss (\d+\.\d+) \d+\.\d\d s$", re.MULTILINE)


def run(script, *words, seconds=55, **settings):
    """Output of a script of the demo, run from the repository's root."""
    done = subprocess.run(
        [sys.executable, f"examples/tuning_demo/{script}", *words],
        cwd=ROOT,
        env=os.environ | {"GT_BACKEND": "numpy"} | settings,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port at which nothing answers, and which nobody else takes meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # it does not listen
        yield bound.getsockname()[1]


def losses(printed):
    matches = STEP.findall(printed)
    assert [int(step) for step, _ in matches] == [0, 1, 2], printed
    return [float(loss) for _, loss in matches]


@pytest.fixture(scope="module")
def plain():
    """The losses of one worker without a layout."""
    printed = run("train_simple.py", "--workers", "1", *TINY, GT_CONFIG="")
    assert "layers of each stage: [4]" in printed
    return losses(printed)


def test_it_learns_without_a_layout(plain):
    assert plain[0] == pytest.approx(math.log(307), abs=0.2)  # nothing is known yet
    assert plain[2] < plain[0] - 0.05


def test_t6a_eight_workers_by_the_file_alone(plain):
    printed = run("train_simple.py", *TINY)
    assert "layers of each stage: [1, 1, 1, 1]" in printed
    assert losses(printed) == pytest.approx(plain, rel=1e-4)


def test_t3a_the_patterns_of_a_layer(tmp_path):
    """On stage 1: x comes, and each layer's two row-parallel products are summed; no more moves.

    Backwards the gradient comes, and each layer's two inputs have theirs summed.
    """
    trace = tmp_path / "trace.txt"
    run("train_simple.py", *TINY, "--num-layers=8", GT_INSTRUCTION_LOG=str(trace))
    lines = trace.read_text(encoding="utf-8").splitlines()
    first, second, *_ = (place for place, line in enumerate(lines) if "@stage0_to_stage1" in line)
    last = next(place for place, line in enumerate(lines) if "@stage1_to_stage2" in line)
    forward = [one for line in lines[first:last] if (one := log.entry(line))]
    products = [
        (one.signal, re.search(r"\] (\S+@\S+)", one.notes)[1])
        for one in forward
        if one.operator == "matmul" and one.signal != "pp_stage1"
    ]
    column = ("pp_stage1_colpar", "shard(2)@[2,3]")
    row = ("pp_stage1_rowpar", "partial(sum)@[2,3]")
    assert products == [column, row] * 4  # QKV, output, up, down; two layers
    moves = [one.operator for one in forward if "moved=" in one.notes]
    assert moves == ["layer_norm", "add", "add", "add", "add"]
    backward = [one for line in lines[last:second] if (one := log.entry(line))]
    moves = [
        one.operator
        for one in backward
        if "moved=" in one.notes and (one.signal or "").startswith("pp_stage1")
    ]
    assert moves == ["matmul"] + ["layer_norm_backward"] * 4


def two_stages(text):
    """TP 4 x PP 2, by editing the workers of two stages and taking two away."""
    text = text.replace("[2, 3]", "[4, 5, 6, 7]").replace("[0, 1]", "[0, 1, 2, 3]")
    return re.sub(r"^pp_stage[23]:\n(  .*\n)*", "", text, flags=re.MULTILINE)


def eight_stages(text):
    """TP 1 x PP 8."""
    del text
    return "".join(f"pp_stage{stage}:\n  workers: [{stage}]\n" for stage in range(8))


@pytest.mark.parametrize(
    ("edit", "stages"), [(two_stages, [2, 2]), (eight_stages, [1] * 8)], ids=["tp4_pp2", "tp1_pp8"]
)
def test_t2_other_layouts_by_editing_the_file(edit, stages, tmp_path, capsys):
    file = tmp_path / "layout.yaml"
    file.write_text(edit(LAYOUT.read_text(encoding="utf-8")), encoding="utf-8")
    assert config_check.run(str(file), workers=8) == 0
    assert capsys.readouterr().out.endswith("0 errors, 0 warnings\n")
    layers = f"--num-layers={sum(stages)}"
    printed = run("train_simple.py", *TINY, layers, GT_CONFIG=str(file))
    assert f"layers of each stage: {stages}" in printed
    without = run("train_simple.py", *TINY, layers, "--workers=1", GT_CONFIG="")
    assert losses(printed) == pytest.approx(losses(without), rel=1e-4)


def test_a_dispatcher_and_workers_by_hand(plain):
    with Cluster(8) as cluster:
        cluster.wait_for_workers()
        printed = run("train.py", *TINY, "--microbatches=4", f"--connect={cluster.address}")
    assert f"using the dispatcher at {cluster.address}" in printed
    assert losses(printed) == pytest.approx(plain, rel=1e-4)


def test_t6b_the_dispatcher_that_answers_is_used():
    """At a port of its own: that of the README, 12345, may be anybody's on this machine."""
    assert "PORT = 12345\n" in (DEMO / "train.py").read_text(encoding="utf-8")
    with Cluster(1) as cluster:
        cluster.wait_for_workers()
        printed = run("train.py", *TINY, f"--port={cluster.port}", GT_CONFIG="")
    assert f"using the dispatcher at localhost:{cluster.port}" in printed
    assert len(losses(printed)) == 3


def test_t4a_the_order_of_the_schedules(plain):
    """Both orders, the same losses; the phases of 1F1B as four stages and eight parts have them."""
    words = [*TINY, "--microbatches=8"]
    with silent_port() as port:
        printed = run("train.py", *words, "--workers=8", f"--port={port}")
    assert f"no dispatcher at localhost:{port}: starting 8 workers" in printed
    assert "1F1B on stage 0: warm-up 3, steady 5, cool-down 3" in printed
    assert "order: F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7\n" in printed
    assert losses(printed) == pytest.approx(plain, rel=1e-4)
    shares = [float(share) for share in re.findall(r"stage \d (\d+\.\d)%", printed)]
    assert len(shares) == 4, printed
    assert all(0.0 < share < 100.0 for share in shares)
    with silent_port() as port:
        gpipe = [*words, "--workers=1", "--schedule=gpipe", f"--port={port}"]
        whole = run("train.py", *gpipe, GT_CONFIG="")
    assert "order: F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7\n" in whole
    assert losses(whole) == pytest.approx(losses(printed), rel=1e-6)


# Two stages of a worker each; embedding and head on both.
SPREAD = """
schedule: zbv
pp_stage0: {workers: [0]}
pp_stage1: {workers: [1]}
pp_embedding: {shard: {axis: 0, workers: [0, 1]}}
pp_head: {shard: {axis: 1, workers: [0, 1]}}
"""


def test_t4_head_and_embedding_spread_by_the_file_alone(tmp_path):
    """By ZB-V, which the file names, and by 1F1B: the same losses to the last digit."""
    file = tmp_path / "layout.yaml"
    file.write_text(SPREAD, encoding="utf-8")
    assert config_check.run(str(file), workers=2) == 0
    words = [*TINY, "--hidden-size=32", "--intermediate-size=64", "--batch-size=4", "--seq-len=8"]
    words += ["--microbatches=2", "--workers=2"]
    printed = []
    draws = importlib.util.find_spec("matplotlib") is not None
    pictures = [f"--trace={tmp_path / 'line.json'}"]
    pictures += [f"--timeline={tmp_path / 'line.png'}"] if draws else []
    for more in (pictures, ["--schedule=1f1b"]):
        with silent_port() as port:
            printed.append(run("train.py", *words, f"--port={port}", *more, GT_CONFIG=str(file)))
    assert "ZB-V on stage 0: " in printed[0]
    assert "1F1B on stage 0: warm-up 1, steady 1, cool-down 1" in printed[1]
    assert "layers of each stage: [1, 1, 1, 1]" in printed[0]
    assert losses(printed[0]) == losses(printed[1])
    assert not draws or (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((tmp_path / "line.json").read_text(encoding="utf-8"))["traceEvents"]
    heads = {event["tid"] for event in events if event.get("args", {}).get("stage") == 4}
    assert heads == {0, 1}


def test_t6c_launch_starts_trains_and_ends(plain):
    words = ["--workers", "8", *TINY, "--microbatches", "4"]
    printed = run("launch.py", *words)
    assert re.search(r"^dispatcher at 127\.0\.0\.1:\d+, 8 workers$", printed, re.MULTILINE)
    assert "using the dispatcher at 127.0.0.1:" in printed
    assert "layers of each stage: [1, 1, 1, 1]" in printed
    assert losses(printed) == pytest.approx(plain, rel=1e-4)


@pytest.mark.parametrize(("layers", "parameters"), [(8, "204,673,024"), (32, "506,761,216")])
def test_t1a_the_model_has_its_size(layers, parameters):
    printed = run("model.py", "--num-layers", str(layers), GT_CONFIG="")
    assert f"{parameters} parameters" in printed


def test_the_shipped_layout_has_no_mistakes(capsys):
    assert config_check.run(str(LAYOUT), workers=8) == 0
    assert capsys.readouterr().out.endswith("13 signals, 0 rules, 0 errors, 0 warnings\n")


# ---- the real size ----


def real(script, *words, **settings):
    """The losses of the real model, by workers that compute with PyTorch."""
    settings = {"GT_BACKEND": "pytorch", "CUDA_VISIBLE_DEVICES": ""} | settings
    return losses(run(script, *REAL, *words, seconds=REAL_SECONDS_MAX / 2, **settings))


@pytest.fixture(scope="module")
def real_plain():
    return real("train_simple.py", "--workers=1", GT_CONFIG="")


def edited(edit, folder):
    file = folder / "layout.yaml"
    file.write_text(edit(LAYOUT.read_text(encoding="utf-8")), encoding="utf-8")
    return real("train_simple.py", GT_CONFIG=str(file))


def by_hand(folder):
    del folder
    with Cluster(8, backend="pytorch") as cluster:
        cluster.wait_for_workers()
        return real("train.py", f"--connect={cluster.address}")


WAYS = {
    "TP 2 x PP 4, `train_simple.py`": lambda _: real("train_simple.py"),
    "TP 2 x PP 4, `train.py`": lambda _: real("train.py"),
    "TP 2 x PP 4, `launch.py`": lambda _: real("launch.py"),
    "TP 2 x PP 4, server and workers by hand": by_hand,
    "without the YAML, `train_simple.py`": lambda _: real("train_simple.py", GT_CONFIG=""),
    "TP 4 x PP 2, YAML edited": lambda folder: edited(two_stages, folder),
    "TP 1 x PP 8, YAML edited": lambda folder: edited(eight_stages, folder),
}


@pytest.mark.slow
@pytest.mark.timeout(REAL_SECONDS_MAX)
@pytest.mark.parametrize("way", WAYS)
def test_the_real_size(way, real_plain, tmp_path, record_property):
    values = WAYS[way](tmp_path)
    record_property("way", way)
    record_property("losses", ", ".join(f"{loss:.6f}" for loss in values))
    record_property(
        "difference", max(abs(a / b - 1) for a, b in zip(values, real_plain, strict=True))
    )
    assert values == pytest.approx(real_plain, rel=1e-4)
