"""Every row that a program of `gt.compile` may have is traced by PyTorch without its numbers.

A row that reads a number or an address while it is traced would have its programs refused.
operators/samples.py has the samples.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from samples import SAMPLES, Sample  # noqa: E402
from test_kernels import _OPS, _run, _torch_attr, _torch_value  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

from gt.worker.compiled import bounds  # noqa: E402
from gt.worker.compiled.program import Program, Step  # noqa: E402
from gt.worker.pytorch import generic, kernels  # noqa: E402

FAMILIES = {"create", "elementwise", "contract", "reduce", "normalize", "view", "index", "loss"}
ROWS = sorted(row for row in SAMPLES if _OPS[row]["family"] in FAMILIES)


@pytest.fixture
def tracing(monkeypatch):
    """Begins what a process that compiles has: no own kernels, and tensors without addresses."""
    monkeypatch.setenv("GT_KERNELS", "off")

    def address(_self):
        raise AssertionError("a row reads an address")

    def begin():
        monkeypatch.setattr(torch.compiler, "_is_exporting_flag", True)
        monkeypatch.setattr(torch.Tensor, "data_ptr", address)
        monkeypatch.setattr(torch.UntypedStorage, "data_ptr", address)

    with torch.no_grad():
        yield begin


def is_shard(row: str, sample: Sample) -> bool:
    """True for a sample of a part of a dimension: its attribute `start` is set."""
    names = [attr.partition(":")[0] for attr in _OPS[row].get("attrs", [])]
    at = names.index("start") if "start" in names else len(sample.attrs)
    return at < len(sample.attrs) and sample.attrs[at] is not None


def has_mask(indices: list[object]) -> bool:
    """True if an index is a mask: the result's size depends on its numbers."""
    return any(isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in indices)


def computed(row: str, sample: Sample) -> list[tuple[object, object]] | None:
    """Sizes and dtypes of the results; None for a sample that is an error."""
    attrs = [_torch_attr(attr) for attr in sample.attrs]
    try:
        results = _run(kernels.TORCH, row, [_torch_value(one) for one in sample.operands], attrs)
    except (IndexError, RuntimeError):
        return None
    return [(one.shape, one.dtype) for one in results]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_traced(row, tracing):
    samples = [sample for sample in SAMPLES[row] if not is_shard(row, sample)]
    expected = [computed(row, sample) for sample in samples]
    tracing()
    rows, traced = bounds.checked(kernels.TORCH), 0
    for sample, results in zip(samples, expected, strict=True):
        mode = FakeTensorMode()

        def fake(value, mode=mode):
            if isinstance(value, list):
                return [fake(one) for one in value]
            return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

        operands = [fake(_torch_value(one)) for one in sample.operands]
        if results is None or (row == "index" and has_mask(operands[1])):
            continue
        is_number = bool(operands) and isinstance(operands[0], (int, float))
        table = kernels.TORCH if is_number else rows
        with mode:
            found = _run(table, row, operands, [_torch_attr(attr) for attr in sample.attrs])
        assert [(one.shape, one.dtype) for one in found] == results
        traced += 1
    assert traced or not samples


def test_a_generic_row_is_traced(tracing):
    run = bounds.checked(generic.kernels(torch.device("cpu")) | kernels.TORCH)["aten"]
    x = torch.randn(3, 4)
    tracing()
    mode = FakeTensorMode()
    fake = mode.from_tensor(x)
    stated = generic._described(x)
    for overload in ("erfinv", "logit", "celu"):
        with mode:
            (result,) = run([fake], overload, "_0", (), stated, True, torch.float32)
        assert result.shape == x.shape
    with pytest.raises(ValueError, match="index_copy"):
        run([fake], "index_copy", "_0, 0, _1, _2", (), stated, True, torch.float32)


@pytest.mark.parametrize("row", ["index_select", "index_add", "embedding_backward"])
@pytest.mark.parametrize("wrong", [-1, -4, 4])
def test_a_program_checks_indices_that_inductor_takes(row, wrong, tracing):
    x, source = torch.zeros(4, 3), torch.ones(2, 3)
    arguments = {
        "index_select": lambda index: (x, index, 0),
        "index_add": lambda index: (x, index, source, 0),
        "embedding_backward": lambda index: (source, index, 4, None),
    }[row]
    tracing()
    kernel = bounds.checked(kernels.TORCH)[row]
    kernel(*arguments(torch.tensor([0, 3])))
    # The check is an operator of the program: here it runs at once.
    with pytest.raises(RuntimeError, match="index out of range in self"):
        kernel(*arguments(torch.tensor([0, wrong])))


def has_indices(row: str) -> bool:
    """True for a row that looks up: by an index, or by classes, of which one may be ignored."""
    attrs = [attr.partition(":")[0] for attr in _OPS[row].get("attrs", [])]
    names = {name.rstrip("*?") for name in _OPS[row].get("inputs", [])}
    return bool(names & {"index", "indices"}) or "ignore_index" in attrs


def test_every_row_with_indices_is_known():
    assert {row for row in ROWS if has_indices(row)} == bounds.INDEXED - {"aten", "aten_vjp"}


def test_indices_are_refused_on_a_gpu():
    add, select = (Step(row, [0], None, [], [1]) for row in ("add", "index_select"))
    bounds.check_device(Program(b"", 1, [1], [add]), ["cuda"])
    bounds.check_device(Program(b"", 1, [1], [add, select]), ["cpu"])
    with pytest.raises(ValueError, match=r"^index_select: on a GPU "):
        bounds.check_device(Program(b"", 1, [1], [add, select]), ["cuda"])
