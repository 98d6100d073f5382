"""GT_DEBUG_CLIENT, GT_DEBUG_DISPATCHER and GT_DEBUG_WORKER: lines on standard error about the same
instructions, at the program, the dispatcher and the workers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster

PROGRAM = """
import gt
with gt.signal.context("rows"):
    x = gt.ones(4, 2)
y = x @ gt.ones(2, 3)
print((y.sum(0) + 1).tolist())
"""
RESULT = "[9.0, 9.0, 9.0]\n"
NAMES = ["GT_DEBUG_CLIENT", "GT_DEBUG_DISPATCHER", "GT_DEBUG_WORKER"]


def run(folder: Path, code: str = PROGRAM, **settings: str) -> list[str]:
    """Runs the program over two workers; returns the lines on its standard error."""
    layout = folder / "layout.yaml"
    layout.write_text("rows:\n  shard: {axis: 0, workers: [0, 1]}\n")
    own = {"GT_CONFIG": str(layout), "GT_WORKERS": "2", "GT_BACKEND": "native"}
    program = folder / "program.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, program],
        env=os.environ | own | settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, RESULT), done.stderr
    return done.stderr.splitlines()


def test_all_is_silent_without_them(tmp_path: Path) -> None:
    assert run(tmp_path) == []
    assert run(tmp_path, **dict.fromkeys(NAMES, "0")) == []


def test_the_client_shows_what_it_emits(tmp_path: Path) -> None:
    lines = run(tmp_path, GT_DEBUG_CLIENT="1")
    place = rf"  {re.escape(str(tmp_path / 'program.py'))}:"
    expected = [
        r"%0 = full .* -> f32\[4,2\]" + place + "4",
        r"%1 = full .* -> f32\[2,3\]" + place + "5",
        r"%2 = matmul %0 %1 -> f32\[4,3\]" + place + "5",
        r"%3 = sum %2 .* -> f32\[3\]" + place + "6",
        r"%4 = add %3 1 -> f32\[3\]" + place + "6",
        r"read %4 .*" + place + "6",
    ]
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch("gt: client: " + pattern, line), (line, pattern)


def test_results_of_one_operator_share_its_number(tmp_path: Path) -> None:
    code = "import gt\na, b = gt.tensor([[9.0, 9.0, 9.0]]).max(1)\nprint([a.item()] * 3)\n"
    lines = run(tmp_path, code, GT_DEBUG_CLIENT="1")
    assert re.match(r"gt: client: %0 = upload ", lines[0])
    assert re.search(r"client: %1\.0 %1\.1 = .* -> f32\[1\], i64\[1\]  ", lines[1]), lines
    assert re.match(r"gt: client: read %1 ", lines[2])


def test_a_decision_has_its_reason(tmp_path: Path) -> None:
    lines = run(tmp_path, GT_DEBUG_DISPATCHER="1")
    assert all(line.startswith("gt: dispatcher: %") for line in lines), lines
    full, _, matmul, _, add = lines
    assert "f32[4,2] shard(0)@[0,1]; signal rows" in full
    assert "gives the layout of new tensors" in full
    assert "f32[4,3] shard(0)@[0,1]; matmul follows its operands: %0 shard(0)@[0,1]" in matmul
    assert re.search(r"%3 goes from partial\(sum\)@\[0,1\] to .*; \d+ bytes move  .*:6$", add)


def test_a_worker_shows_what_it_executed(tmp_path: Path) -> None:
    lines = run(tmp_path, GT_DEBUG_WORKER="1")
    pattern = re.compile(r"gt: worker (\d): s1 %(\d+) (\w+) took \d+\.\d us")
    found = [pattern.fullmatch(line) for line in lines]
    assert all(found), lines
    for worker in "01":
        operators = [one[3] for one in found if one and one[1] == worker]
        computed = [name for name in operators if name in {"full", "matmul", "sum", "add"}]
        assert computed[-3:] == ["matmul", "sum", "add"], lines
        assert "all_reduce" in operators, lines


@pytest.mark.parametrize("way", ["variable", "option"])
def test_a_dispatcher_by_hand_logs_decisions(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    arguments = ("--log-decisions",) if way == "option" else ()
    if way == "variable":
        monkeypatch.setenv("GT_DEBUG_DISPATCHER", "1")
    with Cluster(workers=1, arguments=arguments) as cluster:
        monkeypatch.delenv("GT_DEBUG_DISPATCHER", raising=False)
        cluster.wait_for_workers()
        client = cluster.client("print((gt.ones(2) + 1).tolist())")
        assert client.communicate(timeout=120) == ("[2.0, 2.0]\n", "")
        log = cluster.log
    assert re.search(r"s\d+ dispatcher: %1 = add %0 1 .* f32\[2\] replicate@\[0\]; ", log), log
