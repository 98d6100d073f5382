"""Rows in C++ have every bit of the Python kernels, which they replace.

test_aten_start.py is about how the helper comes to be; operators/samples.py has the samples.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from samples import SAMPLES, Sample  # noqa: E402
from test_kernels import _run, _torch_attr, _torch_value  # noqa: E402

from gt.worker.aten import table  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402

# Samples of what a line is for and Python runs all the same: a number in place of a tensor, classes
# along an image, shards of an index, an optimizer's rarer forms.
RUN_SHARE_MIN = 0.6


def bits(tensors: tuple[torch.Tensor, ...]) -> list[tuple[object, ...]]:
    """Bytes, dtype, sizes and strides, which say how a product of them rounds."""
    parts = []
    for one in tensors:
        elements = one.clone(memory_format=torch.contiguous_format).reshape(one.numel())
        data = elements.view(torch.uint8).numpy().tobytes()
        parts.append((data, one.dtype, one.shape, one.stride()))
    return parts


def operands(sample: Sample) -> list[object]:
    return [_torch_value(one) for one in sample.operands]


@pytest.mark.parametrize("row", sorted(table.lines()))
def test_results_are_the_python_kernels(row: str, aten_helper: Trial) -> None:  # noqa: F811
    ran = 0
    for sample in SAMPLES[row]:
        attrs = [_torch_attr(attr) for attr in sample.attrs]
        with torch.inference_mode():
            actual = aten_helper.run(row, operands(sample), attrs)
            if actual is not None:
                ran += 1
                assert bits(actual) == bits(_run(kernels.TORCH, row, operands(sample), attrs))
    assert ran, "no sample runs in C++"


@pytest.mark.parametrize("row", sorted(kernels.IN_PLACE))
def test_so_are_those_over_operands(row: str, aten_helper: Trial) -> None:  # noqa: F811
    for sample in SAMPLES[row]:
        attrs = [_torch_attr(attr) for attr in sample.attrs]
        for overwrites, kernel, swapped in kernels.IN_PLACE[row]:
            with torch.inference_mode():
                ours, theirs = operands(sample), operands(sample)
                if not fits(theirs, overwrites, row, attrs):
                    continue
                actual = aten_helper.run(row, ours, attrs, overwrites)
                if actual is None:
                    continue
                args = [theirs[1], theirs[0]] if swapped else theirs
                expected = kernel(*args, *attrs)
                expected = expected if isinstance(expected, tuple) else (expected,)
                assert bits(actual) == bits(expected)
                for place, operand in enumerate(ours):
                    if overwrites >> place & 1:
                        assert any(one.data_ptr() == operand.data_ptr() for one in actual)


def fits(given: list[object], overwrites: int, row: str, attrs: list[object]) -> bool:
    """True where overwriting is valid: a result has the operand's shape and dtype."""
    written = [one for place, one in enumerate(given) if overwrites >> place & 1]
    if not all(isinstance(one, torch.Tensor) for one in written):
        return False
    results = _run(kernels.TORCH, row, given, attrs)
    metas = [(one.shape, one.dtype) for one in results]
    return all((one.shape, one.dtype) in metas for one in written)


def test_most_samples_run_in_cpp(aten_helper: Trial) -> None:  # noqa: F811
    with torch.inference_mode():
        ran = [
            aten_helper.run(row, operands(sample), [_torch_attr(one) for one in sample.attrs])
            is not None
            for row in table.lines()
            for sample in SAMPLES[row]
        ]
    assert sum(ran) >= RUN_SHARE_MIN * len(ran), f"{sum(ran)} of {len(ran)}"
