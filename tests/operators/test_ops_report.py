"""tools/ops_report.py with names: how some operators fare, without a word written."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
if sys.version_info < (3, 11):
    pytest.skip("the harness reads ops.toml by tomllib", allow_module_level=True)

from harness.entries import title
from harness.outcome import Outcome

ROOT = Path(__file__).resolve().parent.parent.parent
SPEC = importlib.util.spec_from_file_location("ops_report", ROOT / "tools/ops_report.py")
ops_report = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ops_report)


def test_the_named_alone_are_run_and_nothing_is_written():
    results = ROOT / "tests/operators/harness/results.json"
    before = results.stat().st_mtime_ns
    done = subprocess.run(
        [sys.executable, ROOT / "tools/ops_report.py", "atan2", "linalg.cross", "no_such"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "no_such: GT runs no entry" in done.stderr
    heads = [line.split(":")[0] for line in done.stdout.splitlines() if line[0] != " "]
    assert heads == ["atan2", "linalg.cross"]
    assert "    gradients  9 of 9 passed\n" in done.stdout
    assert results.stat().st_mtime_ns == before


def test_a_name_is_of_a_title_a_function_or_a_row():
    def found(name):
        return {title(op) for op in ops_report.entries_of(name)}

    assert found("max.binary") == {"max.binary"}
    assert found("max") >= {"max.binary", "max.reduction_with_dim"}
    assert found("maximum") == {"maximum", "max.binary"}
    assert "nn.functional.silu" in found("silu")
    assert not found("no_such")


def test_refusals_have_their_reasons_and_what_is_wrong_did_not_pass():
    (op,) = ops_report.entries_of("max.binary")
    outcome = Outcome(total=5, ran=3, wrong=["max.binary sample 1: 2 is not 3"])
    outcome.refused["argument: out="] = 2
    assert ops_report.lines(op, {"float32": outcome}) == [
        "max.binary: row maximum of ops.toml",
        "    float32    2 of 5 passed",
        "        2 refused: argument: out=",
        "        wrong: max.binary sample 1: 2 is not 3",
    ]
