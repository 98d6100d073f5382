"""Under autocast the results of every entry of op_db that GT has are of PyTorch's dtypes.

PyTorch's list for CUDA is followed on tensors that say they are there and hold nothing.
"""

import itertools
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the harness reads ops.toml by tomllib", allow_module_level=True)

import torch
from harness.convert import DTYPES, NotConvertible, convert, map_tensors, tensors, to_gt
from harness.entries import ROOT, call_of, entries, title
from torch._subclasses.fake_tensor import FakeTensorMode

import gt
from gt.amp.casting import POLICIES

LOWER = {"cpu": torch.bfloat16, "cuda": torch.float16}
# Several operators in PyTorch, which casts some of them; here one that runs on a worker as it is.
ONE_HERE = {"cov", "corrcoef", "linalg.matrix_power", "linalg.pinv", "linalg.pinv.hermitian"}
# Operators that differ: the dtype in which chunks are summed; a contraction over everything, for
# which PyTorch uses one of two operators and lists one; a half-precision norm in float32.
OTHERS = {
    "nn.functional.linear_cross_entropy.chunked",
    "nn.functional.linear_cross_entropy.chunked_none",
    "tensordot",
    "masked.norm",
    "__rdiv__",  # of two tensors: Python calls the other one's __truediv__
}
Given = tuple[object, tuple[object, ...], dict[str, object]]


def of_torch(op, given: Given, device: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if device == "cpu":
            with torch.autocast("cpu"):
                return op(given[0], *given[1], **given[2])
        with FakeTensorMode(allow_non_fake_inputs=True):
            there = map_tensors(given, lambda x: torch.empty_like(x, device="cuda"))
            torch.set_autocast_enabled("cuda", True)
            try:
                return op(there[0], *there[1], **there[2])
            finally:
                torch.set_autocast_enabled("cuda", False)
                torch.clear_autocast_cache()


def of_gt(op, given: Given) -> object:
    return call_of(op)(given[0], *given[1], **given[2])


def dtypes_of(kind: type, run: Callable[..., object], *given: object) -> list[object] | None:
    """Dtypes of the results; None where it is refused, as kernels for a dtype or on no data are."""
    try:
        made = run(*given)
    except Exception:  # noqa: BLE001 - whatever is refused: errors are the op_db test's business
        return None
    found = [x.dtype for x in tensors(made, kind)]
    return found if kind is gt.Tensor else [DTYPES.get(dtype) for dtype in found]


def samples(op, device: str, count: int) -> Iterator[Given]:
    for dtype in (torch.float32, LOWER[device]):
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for sample in itertools.islice(op.sample_inputs("cpu", dtype), count):
            yield sample.input, sample.args, sample.kwargs


def is_on_a_list(op) -> bool:
    name = op.name.rpartition(".")[2]
    return any(known in POLICIES for known in (name, f"{name}_loss", op.name.replace(".", "_")))


def differences(device: str, driven: list, each: int) -> tuple[dict[str, str], int]:
    found, count = {}, 0
    for op in driven:
        for given in samples(op, device, each):
            try:
                ours = convert(given, to_gt)
            except NotConvertible:
                continue
            expected = dtypes_of(torch.Tensor, of_torch, op, given, device)
            with gt.autocast(device):
                got = dtypes_of(gt.Tensor, of_gt, op, ours)
            if expected is None or got is None:
                continue
            count += 1
            if got != expected:
                found[title(op)] = f"{got}, PyTorch's are {expected}"
    return found, count


def test_the_lists_are_those_of_this_torch():
    tool = ROOT / "tools/autocast_facts.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
    assert not done.returncode, done.stderr


@pytest.mark.timeout(240)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("whole", [pytest.param(True, marks=pytest.mark.slow), False])
def test_results_are_of_pytorchs_dtypes(device, whole):
    driven = [op for place, op in enumerate(entries()) if whole or place % 100 == 0]
    driven += [] if whole else [op for op in entries() if is_on_a_list(op) and op not in driven]
    found, count = differences(device, driven, 4 if whole else 1)
    unknown = {name: text for name, text in found.items() if name not in ONE_HERE | OTHERS}
    assert not unknown
    assert count > len(driven)
