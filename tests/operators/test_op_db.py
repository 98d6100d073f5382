"""Every entry of PyTorch's op_db that GT has: values, dtypes, in-place forms, gradients, errors.

The folder harness/ drives them; here stands what must hold. After a change that moves a count,
write results.json again: `just ops`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
if sys.version_info < (3, 11):
    pytest.skip("the harness reads ops.toml by tomllib", allow_module_level=True)

from harness.drive import drive  # noqa: E402
from harness.entries import ROOT, ROWS, entries, row_of, title  # noqa: E402
from harness.report import RESULTS, TORCH, facts, missing, record  # noqa: E402
from torch_session import torch_workers  # noqa: E402

ENTRIES = entries()
KNOWN = json.loads(RESULTS.read_text(encoding="utf-8"))
RUN_SHARE_MIN = 0.95  # of the float32 samples of the table's operators
# Not one kernel of ours for one of PyTorch's: a sum of a product (alpha), a quotient that PyTorch
# takes as a product, rows that are shortened first, one kernel of GT's for several of PyTorch's
# or in place of one that is less exact.
COMPOSED = {
    "add", "sub", "__rdiv__", "nn.functional.embedding", "nn.functional.batch_norm",
    "nn.functional.rms_norm", "var", "std",
}  # fmt: skip
NUMPY_SECONDS_MAX = 300


@pytest.fixture(scope="module", autouse=True)
def torch_worker_on_the_cpu() -> Iterator[None]:
    """One worker for all entries."""
    with torch_workers(1):
        yield


@pytest.mark.parametrize("op", ENTRIES, ids=title)
def test_entry_is_as_in_pytorch(op):
    result = drive(op)
    wrong = [line for outcome in result.values() for line in outcome.wrong]
    assert not wrong, "\n".join(wrong)
    if row_of(op) and op.name not in COMPOSED and "float32" in result:
        values = result["float32"]
        assert values.exact == values.compared, "the same kernel must give the same bits"
    if KNOWN["torch"] == TORCH:  # another version has other samples
        written = json.loads(json.dumps(record(op, result)))
        assert KNOWN["entries"].get(title(op)) == written, "stale: run `just ops`"


def test_report_is_of_these_entries():
    assert set(KNOWN["entries"]) == {title(op) for op in ENTRIES}
    if KNOWN["torch"] == TORCH:
        assert KNOWN["missing"] == missing(), "stale: run `just ops`"
    assert KNOWN["rows"] == {name: facts(name) for name in ROWS}, "stale: run `just ops`"
    assert all(missing().values()), "an entry that is not driven has its reason"


def test_enough_samples_of_the_table_run():
    listed = [entry["samples"] for entry in KNOWN["entries"].values() if entry["row"]]
    ran, total = (
        sum(column)
        for column in zip(*(row["float32"] for row in listed if "float32" in row), strict=True)
    )
    assert ran >= RUN_SHARE_MIN * total, f"{ran} of {total}"


@pytest.mark.timeout(NUMPY_SECONDS_MAX)
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_backends_without_torch_are_as_pytorch(backend):
    """In a process of its own: a backend is chosen where a session starts."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "tests/operators/harness/on_backend.py", backend],
        cwd=ROOT, capture_output=True, text=True, timeout=NUMPY_SECONDS_MAX,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    outcome = json.loads(done.stdout)
    assert not outcome["wrong"], "\n".join(outcome["wrong"])
    assert outcome["ran"] >= RUN_SHARE_MIN * outcome["total"]
