"""Row-major copies of the torch backend, by tiles in the helper and in Python: PyTorch's bits."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from test_aten_rows import bits  # noqa: E402

from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.own_calls import kernels_run  # noqa: E402
from gt.worker.pytorch import copies  # noqa: E402

Copy = Callable[[torch.Tensor], torch.Tensor]
DTYPES = [torch.bool, torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64]


def drawn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(size))
    return torch.randint(0, 100, size, generator=generator).to(dtype)


TURNED = {
    "transposed": lambda x: x.reshape(64, 192).t(),
    "heads as columns": lambda x: x.reshape(2, 48, 8, 16).permute(0, 2, 3, 1),
    "channels last": lambda x: x.reshape(6, 32, 64).permute(0, 2, 1),
    "a part, not aligned": lambda x: x.reshape(96, 128)[3:90, 5:110].t(),
    "all turned": lambda x: x.reshape(16, 24, 32).permute(2, 1, 0),
    "dims of one": lambda x: x.reshape(64, 1, 192, 1).permute(2, 1, 0, 3),
}
LEFT = {
    "contiguous": lambda x: x.reshape(64, 192),
    "heads": lambda x: x.reshape(2, 48, 8, 16).permute(0, 2, 1, 3),
    "few columns": lambda x: x.reshape(2, 6144).t(),
    "few rows": lambda x: x.reshape(6144, 2).t(),
    "every other": lambda x: x.reshape(64, 192)[:, ::2].t()[::2],
    "expanded": lambda x: x[:100].reshape(100, 1).expand(100, 64),
    "small": lambda x: x[:4000].reshape(40, 100).t(),
    "empty": lambda x: x[:0].reshape(64, 0, 64).permute(2, 1, 0),
}


def in_helper(helper: Trial) -> Copy:
    """The copy that the worker's loop asks for."""
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    gt_copy = prototype(("gt_copy", helper.helper))

    def copy(x: torch.Tensor) -> torch.Tensor:
        handle = helper.helper.gt_from_python(x)
        copied = gt_copy(handle)
        made = helper.helper.gt_to_python(copied)
        for one in (handle, copied):
            helper.helper.gt_release(one)
        assert isinstance(made, torch.Tensor)
        return made

    return copy


def test_elements_come_to_the_host_row_major(aten_helper: Trial) -> None:  # noqa: F811
    """Reads take this way past Python; a device's elements come by pinned memory."""
    helper = aten_helper.helper
    x = torch.arange(12288.0)
    for name, view in LEFT.items():
        handle = helper.gt_from_python(view(x))
        copied = helper.gt_to_host(handle)
        made = helper.gt_to_python(copied)
        for one in (handle, copied):
            helper.gt_release(one)
        assert made.is_contiguous(), name
        assert torch.equal(made, view(x)), name


def check(copy: Copy, x: torch.Tensor, own: int) -> None:
    """The copy equals PyTorch's and takes `own` calls of GT's kernels."""
    expected = x.clone(memory_format=torch.contiguous_format)
    before = kernels_run()
    copied = copy(x)
    assert kernels_run() - before == own
    assert bits([copied]) == bits([expected])
    assert (copied.stride(), copied.dtype) == (expected.stride(), expected.dtype)
    assert copied.data_ptr() != x.data_ptr() or not x.numel()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", TURNED)
def test_turned_dimensions(aten_helper: Trial, name: str, dtype: torch.dtype) -> None:  # noqa: F811
    with torch.inference_mode():
        x = TURNED[name](drawn(12_288, dtype=dtype))
        check(in_helper(aten_helper), x, 1)
        check(copies.copy, x, 1)
        check(copies.row_major, x, 1)


@pytest.mark.parametrize("name", LEFT)
def test_others_are_pytorchs(aten_helper: Trial, name: str) -> None:  # noqa: F811
    with torch.inference_mode():
        x = LEFT[name](drawn(12_288, dtype=torch.bfloat16))
        check(in_helper(aten_helper), x, 0)
        check(copies.copy, x, 0)
        assert (copies.row_major(x) is x) == x.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.uint8, torch.float64])
def test_other_dtypes(aten_helper: Trial, dtype: torch.dtype) -> None:  # noqa: F811
    with torch.inference_mode():
        x = drawn(64, 192, dtype=dtype)
        for turned in (x.t(), x.mH):
            expected = turned.clone(memory_format=torch.contiguous_format)
            for copy in (in_helper(aten_helper), copies.copy):
                assert torch.equal(copy(turned), expected)


def run_reshape(helper: Trial, x: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    results = helper.run("reshape", [x], [size])
    assert results is not None
    return results[0]


def test_reshapes_that_copy(aten_helper: Trial) -> None:  # noqa: F811
    """A result that strides can express shares memory, and no kernel runs."""
    with torch.inference_mode():
        x = drawn(2, 48, 8, 16)
        turned = x.permute(0, 2, 3, 1)
        for view, size, own in [
            (turned, (2, 128, 48), 0), (turned, (256, 48), 1), (turned, (12_288,), 1),
            (turned, (2, 8, 16, 3, 16), 0), (x, (96, 128), 0), (turned, (-1, 48), 0),
            (x.permute(0, 2, 1, 3), (16, 768), 0), (turned, (2, 4, 2, 16, 48), 0),
        ]:  # fmt: skip
            expected = view.reshape(size)
            before = kernels_run()
            made = run_reshape(aten_helper, view, size)
            assert kernels_run() - before == own, size
            assert torch.equal(made, expected)
            assert made.stride() == expected.stride()
            is_shared = expected.data_ptr() == view.data_ptr()
            assert (made.data_ptr() == view.data_ptr()) == is_shared
        assert aten_helper.run("reshape", [turned], [(5, 5)]) is None


def test_results_that_are_contiguous_on_the_way(aten_helper: Trial) -> None:  # noqa: F811
    """The table's `contiguous(x)`: a median of turned dimensions."""
    with torch.inference_mode():
        x = drawn(64, 192).t()
        before = kernels_run()
        values, places = aten_helper.run("median_dim", [x], [0, False]) or ()
        assert kernels_run() - before == 1
        expected = x.median(0)
        assert torch.equal(values, expected.values)
        assert torch.equal(x.gather(0, places[None])[0], expected.values)


def test_both_engines_turn_the_same(aten_helper: Trial) -> None:  # noqa: F811
    """From as many elements on, and from squares of a register's."""
    sizes = [(64, 64), (63, 65), (1, 4096), (2048, 3), (1400, 3), (1024, 4), (600, 7), (4, 1024)]
    with torch.inference_mode():
        for dtype in (torch.bool, torch.bfloat16, torch.float32, torch.float64):
            for size in [*sizes, (512, 8), (300, 15), (256, 16), (8, 512), (16, 256), (15, 300)]:
                turned, ran = drawn(*size, dtype=dtype).t(), []
                for copy in (in_helper(aten_helper), copies.copy):
                    before = kernels_run()
                    assert torch.equal(copy(turned), turned.clone())
                    ran.append(kernels_run() - before)
                assert ran[0] == ran[1], (size, dtype)
                least = max(4, 16 // dtype.itemsize)
                assert ran[0] == int(min(size) >= least and math.prod(size) >= 4096)
