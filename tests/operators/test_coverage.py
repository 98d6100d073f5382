"""docs/coverage.md: GT has at least what the page says, of PyTorch's names and of op_db.

Names may come in at any time, and the page follows when tools/coverage_page.py runs; none may go.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
coverage = pytest.importorskip("coverage_page")
ROW = re.compile(r"^\| `([\w.]+)` \| (\d+) of (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
VALUES_MIN = 684  # entries of op_db
GRADIENTS_MIN = 546
ERRORS_SHARE_MIN = 0.95  # of the error inputs that can be passed to GT: raised at the call

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith(coverage.TORCH), reason="the page is of another torch"
)


def _rows(text):
    return {title: tuple(map(int, counts)) for title, *counts in ROW.findall(text)}


def test_gt_has_at_least_what_the_page_says():
    # In a process of its own: where gt.torch is imported, PyTorch has other names.
    code = "import coverage_page as c; print(c.page(c.sections()))"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tools")])
    text = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    now, told = _rows(text), _rows(coverage.PAGE.read_text(encoding="utf-8"))
    assert told.keys() <= now.keys()
    for title, (had, total, full, *_) in told.items():
        assert now[title][1] >= total, title
        assert now[title][0] >= had, f"{title}: names went that the page has"
        assert now[title][2] >= full - (now[title][0] - had), f"{title}: fewer in full"


def test_the_page_adds_up():
    rows = _rows(coverage.PAGE.read_text(encoding="utf-8"))
    assert rows["op_db"][1] == 703
    assert all(had == full + part for had, _, full, part, _ in rows.values())
    assert all(total == had + lacks for had, total, _, _, lacks in rows.values())


def test_what_of_op_db_is_as_in_pytorch_does_not_fall():
    counted = coverage.counted()
    page = coverage.PAGE.read_text(encoding="utf-8")
    ops = " ".join((ROOT / "docs/ops.md").read_text(encoding="utf-8").split())
    assert counted["values"] >= VALUES_MIN
    assert counted["gradients"] >= GRADIENTS_MIN
    assert counted["called"] >= ERRORS_SHARE_MIN * counted["passed"]
    assert "every value | {values} of {entries} |".format(**counted) in page
    assert "float64 | {gradients} of {smooth} |".format(**counted) in page
    assert "at the call | {called} of {passed} |".format(**counted) in page
    running = counted["named"] - counted["idle"]
    assert running == _rows(page)["op_db"][0], "both pages count the same entries"
    assert f"**{running} run**" in ops


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (lambda a: a, lambda a, out: a, []),
        (lambda a: a, lambda a, b: a, ["`b=`"]),
        (lambda **b: b, lambda a, b: a, []),
        (1, lambda a: a, []),
    ],
)
def test_parameters_that_are_lacking(ours, theirs, expected):
    assert coverage._lacking(ours, theirs) == expected
