"""Programs of `gt.compile` on a worker with PyTorch: compiled, refused, or no programs."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import gt
import gt.nn.functional as F
from gt import config
from gt.worker.compiled import artifacts, program
from gt.worker.compiled.artifacts import Compilations, Form, Order
from gt.worker.compiled.kernels import Programs, _own
from gt.worker.pytorch import kernels
from gt.worker.pytorch.dtypes import DTYPES
from gt.worker.reference import kernels as numpy_backend

CPU = torch.device("cpu")
MAGIC = b"\x31\x70\x74\x67"


@pytest.fixture
def one_thread(monkeypatch):
    monkeypatch.setenv("GT_THREADS", "1")
    gt.disconnect()
    yield
    gt.disconnect()


def build(order):
    """Compiles a program in a process of ordinary priority, as a worker has it done."""
    with subprocess.Popen(
        [*artifacts.COMMAND, str(artifacts.folder()), order.key(), "0"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=config.with_settings(GT_KERNELS="off"),
    ) as process:  # fmt: skip
        process.stdin.write(order.text() + "\n")
        process.stdin.flush()  # it ends with its input
        said = process.stdout.read()
    return process.returncode, said


@pytest.mark.timeout(600)
def test_inductor_computes_what_the_steps_do(one_thread, monkeypatch):
    def function(x, w, rows=None):
        hidden = F.gelu(x @ w) + w.index_select(0, ids if rows is None else rows)
        made = (hidden.sin() * 1.01 + x).reshape(-1)
        return made[2:], hidden.t(), made.sum(), (hidden > 0).to(gt.int64)

    monkeypatch.setenv("GT_COMPILE", "inductor")
    gt.manual_seed(0)
    x, w, ids = gt.randn(8, 8), gt.randn(8, 8), gt.tensor([7, 0, 1, 5, 3, 3, 2, 6])
    compiled = gt.compile(function)
    for _ in range(3):
        compiled(x, w)
    (data,) = compiled.region._bytes.values()
    form = Form("float32", (8, 8), (8, 1), "cpu")
    order = Order(data.numpy().tobytes(), (form, form, Form("int64", (8,), (1,), "cpu")), 1)
    if artifacts.kept(order.key()) is None:
        assert build(order) == (0, "")
    for _ in range(5):
        expected, found = function(x, w), compiled(x, w)
        for one, other in zip(expected, found, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=1e-5, atol=1e-6)
        time.sleep(0.11)  # between two questions to the worker
    assert compiled.region.stages()[0][1] == "compiled"
    assert compiled.region.stages()[0][3] >= 1
    # Operands of other strides are copied to those that it was compiled for.
    np.testing.assert_allclose(
        np.asarray(compiled(x.t().contiguous().t(), w)[2]), np.asarray(function(x, w)[2]), rtol=1e-5
    )
    calls = compiled.region.stages()[0][3]
    # Inductor's code counts a negative index from the end.
    for wrong in ([7, 0, 1, 5, 3, 3, 2, -1], [7, 0, 1, 5, 3, 3, 2, 8]):
        with pytest.raises(IndexError, match="index out of range in self"):
            compiled(x, w, gt.tensor(wrong))[2].item()
    assert compiled.region.stages()[0][3] == calls + 2


def test_what_cannot_be_compiled_is_refused_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    ends = "import sys; print('first'); print('no such operator'); sys.exit(1)"
    monkeypatch.setattr(artifacts, "COMMAND", (sys.executable, "-c", ends))
    compilations = Compilations()
    order = Order(b"", (), 1)
    assert compilations.state(order) == ("compiling", "")
    while compilations.state(order)[0] == "compiling":
        time.sleep(0.01)
    assert compilations.state(order) == ("refused", "no such operator")


def test_one_program_is_compiled_at_a_time(monkeypatch, tmp_path):
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    waits = "import sys; sys.stdin.readline(); sys.stdin.read(); sys.exit(1)"
    monkeypatch.setattr(artifacts, "COMMAND", (sys.executable, "-c", waits))
    compilations = Compilations()
    first, second = Order(b"1", (), 1), Order(b"2", (), 1)
    assert compilations.state(first)[0] == compilations.state(second)[0] == "compiling"
    key, process = compilations._running
    assert key == first.key()
    process.stdin.close()  # as at this process's end
    process.wait()
    while compilations._running is not None and compilations._running[0] == key:
        compilations.state(second)
        time.sleep(0.01)
    assert compilations.state(first)[0] == "refused"
    assert compilations._running[0] == second.key()
    compilations._running[1].stdin.close()
    compilations._running[1].wait()
    assert compilations.state(second)[0] == "refused"


def test_a_changed_file_is_not_loaded(monkeypatch, tmp_path):
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    path = artifacts.folder() / "key.pt2"
    path.write_bytes(b"program")
    assert artifacts.kept("key") is None
    path.with_suffix(".json").write_text(json.dumps(artifacts.facts(b"program")))
    assert artifacts.kept("key") == path
    path.write_bytes(b"another")
    assert artifacts.kept("key") is None


@pytest.mark.parametrize(
    "data",
    [b"", b"1234", bytes(12), MAGIC + b"\xff" * 8, MAGIC + bytes(7) + b"\x01" + bytes(9)],
    ids=["empty", "short", "zeros", "too many results", "cut off"],
)  # fmt: skip
def test_bytes_that_are_no_program(data):
    with pytest.raises(ValueError, match="no program"):
        program.parse(data, DTYPES)


def test_results_have_memory_of_their_own():
    x = torch.arange(4.0)
    made = _own([x, x[1:], x + 1], [x])
    assert len({one.untyped_storage().data_ptr() for one in (x, *made)}) == 4
    assert [one.tolist() for one in made] == [x.tolist(), x[1:].tolist(), (x + 1).tolist()]


def programs():
    return Programs(kernels.TORCH, kernels.NUMBER_FIRST, DTYPES, 1, kernels.backend(CPU).meta)


def sum_of_squares(monkeypatch):
    """The program's bytes, of operands of 3 x 2."""
    monkeypatch.setenv("GT_HOTPATH_MIN_SEQ", "1")
    compiled = gt.compile(lambda x: (x * x).sum() + 1)
    for _ in range(3):
        compiled(gt.ones(3, 2))
    (data,) = compiled.region._bytes.values()
    return torch.from_numpy(data.numpy())


def test_code_for_other_shapes_is_not_run(monkeypatch):
    """Compiled code takes sizes for granted: 4 x 2 has the strides of 3 x 2."""
    data, x = sum_of_squares(monkeypatch), torch.ones(3, 2)
    ours = programs()
    data._gt_runner = (lambda operands: [torch.tensor(-1.0)], (Form.of(x),))
    stated = [DTYPES.index(torch.float32), 0]
    assert ours._call(data, [x], stated)[0].item() == -1
    assert ours._call(data, [torch.ones(4, 2)], stated)[0].item() == 9
    assert ours._call(data, [torch.ones(2, 3).t()], stated)[0].item() == -1
    x = torch.ones(3, 2, dtype=torch.float64)
    assert ours._call(data, [x], [DTYPES.index(torch.float64), 0])[0].item() == 7


@pytest.mark.parametrize("stated", [[], [8, 1, 2], [9, 0], [8, 0, 8, 0], [8, 1, 10**9]], ids=str)
def test_results_are_those_that_are_stated(monkeypatch, stated):
    """The machine counts and reads memory by what is stated."""
    monkeypatch.setenv("GT_COMPILE", "eager")
    data = sum_of_squares(monkeypatch)
    with pytest.raises(RuntimeError, match="was stated"):
        programs()._call(data, [torch.ones(3, 2)], stated)
    reference = numpy_backend.backend()
    with pytest.raises(RuntimeError, match="was stated"):
        reference.kernels["call"](data.numpy(), [np.ones((3, 2), np.float32)], stated)


def test_nobody_waits_for_a_compiler(monkeypatch, tmp_path):
    """A worker that has not compiled a program runs its steps, and compiles it beside them."""
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    waits = "import sys; sys.stdin.readline(); sys.stdin.read()"
    monkeypatch.setattr(artifacts, "COMMAND", (sys.executable, "-c", waits))
    data, ours = sum_of_squares(monkeypatch), programs()
    stated = [DTYPES.index(torch.float32), 0]
    assert ours._call(data, [torch.ones(3, 2)], stated)[0].item() == 7
    _, process = ours._compilations._running
    process.stdin.close()
    process.wait()
    ours._compilations._look()
    assert ours._compilations._running is None


def test_programs_that_wait_are_bounded(monkeypatch, tmp_path):
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(artifacts.Compilations, "_start", lambda self: None)
    compilations = Compilations()
    for number in range(2 * artifacts.WAITING_MAX):
        assert compilations.state(Order(str(number).encode(), (), 1)) == ("compiling", "")
    assert len(compilations._waiting) == artifacts.WAITING_MAX
