"""Every row of ops.toml has all that an operator needs, and its rule says what its kernel does.

That is: a shape and dtype rule in Rust, a torch kernel, a numpy reference, a gradient or an
explicit none for each operand, samples, and a line in docs/ops.md (from results.json).
"""

import json
import sys

import pytest

torch = pytest.importorskip("torch")
if sys.version_info < (3, 11):
    pytest.skip("the harness reads ops.toml by tomllib", allow_module_level=True)

from harness.convert import DTYPES, to_gt  # noqa: E402
from harness.entries import ROOT, ROWS  # noqa: E402
from harness.report import RESULTS, facts  # noqa: E402
from samples import SAMPLES, Given, Sample  # noqa: E402

import gt  # noqa: E402
from gt import _core  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402
from gt.worker.reference import kernels as reference  # noqa: E402

# Carried out by the worker's loop itself, or known to torch alone (tests/operators/test_aten.py);
# `upload` is made of the client's bytes.
NOT_COMPUTED = {"generic", "control", "collective"}
COMPUTED = [
    name for name, row in ROWS.items() if row["family"] not in NOT_COMPUTED and name != "upload"
]
# Rows whose number of masked elements is unknown at the call: the client reads it and passes
# indices.
MASKABLE = {"index", "index_put"}
# Their operands are never differentiated: an optimizer's step ends a graph.
WITHOUT_GRADIENT = {"update"}


@pytest.mark.parametrize("name", COMPUTED)
def test_row_has_kernel_reference_samples_and_gradients(name):
    row = ROWS[name]
    assert name in kernels.TORCH, "no torch kernel"
    assert name in reference.NUMPY, "no numpy reference"
    assert SAMPLES.get(name), "no sample"
    if row["inputs"] and row["family"] not in WITHOUT_GRADIENT:
        assert "gradient" in row, "neither a gradient nor an explicit none"


@pytest.mark.parametrize("name", COMPUTED)
def test_rule_says_what_the_kernel_does(name):
    for sample in SAMPLES[name]:
        expected = _kernel(name, sample)
        operands = [part for x in sample.operands for part in (x if isinstance(x, list) else [x])]
        tensors = [to_gt(_torch(x)) if isinstance(x, Given) else x for x in operands]
        names = [text.split(":")[0] for text in ROWS[name].get("attrs", [])]
        attrs = zip(names, sample.attrs, strict=False)  # appended ones may be left out
        named = {key: _attr(value, _core) for key, value in attrs if value is not None}
        if name in MASKABLE and any(isinstance(x, Given) and x.dtype == "bool" for x in operands):
            with pytest.raises(gt.ShapeError, match="data-dependent"):
                _core.call(name, *tensors, **named)
            continue
        result = _core.call(name, *tensors, **named)
        metas = [
            (x.dtype, tuple(x.shape)) for x in (result if isinstance(result, tuple) else [result])
        ]
        assert metas == [(DTYPES[x.dtype], tuple(x.shape)) for x in expected], sample
        _core.read_bytes(result[0] if isinstance(result, tuple) else result)


def test_docs_are_of_these_rows():
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    assert known == {name: facts(name) for name in ROWS}, "stale: run `just ops`"
    page = (ROOT / "docs/ops.md").read_text(encoding="utf-8")
    assert not [name for name in ROWS if f"| `{name}` |" not in page]


def _torch(x: Given) -> torch.Tensor:
    return torch.from_numpy(x.values.copy()).to(getattr(torch, x.dtype))


def _attr(value: object, library: object) -> object:
    names = {str(dtype).removeprefix("torch.") for dtype in DTYPES}
    return getattr(library, value) if isinstance(value, str) and value in names else value


def _kernel(name: str, sample: Sample) -> tuple[torch.Tensor, ...]:
    def operand(x: object) -> object:
        if isinstance(x, list):
            return [operand(one) for one in x]
        return _torch(x) if isinstance(x, Given) else x

    operands = [operand(x) for x in sample.operands]
    first_is_number = bool(operands) and isinstance(operands[0], int | float)
    table = (
        kernels.NUMBER_FIRST if first_is_number and name in kernels.NUMBER_FIRST else kernels.TORCH
    )
    with torch.inference_mode():
        result = table[name](*operands, *(_attr(value, torch) for value in sample.attrs))
    return tuple(result) if ROWS[name].get("outputs", 1) > 1 else (result,)
