"""PyTorch's samples of every operator through the device `mux`, values and gradients, in float32.

A sample of every fourth operator in CI; two of every operator with `--slow`.
"""

import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from front_paths import front_path  # noqa: F401 - runs each test in both ways
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map
from torch_session import torch_workers

import gt.torch  # noqa: F401 - names the device

EVERY = 4
TOLERANCE: dict[str, Any] = {"rtol": 1e-4, "atol": 2e-5, "equal_nan": True, "check_stride": False}
LIST = pathlib.Path(__file__).with_name("front_not_implemented.txt")
NOT_IMPLEMENTED = {x for x in LIST.read_text(encoding="ascii").splitlines() if x[0] != "#"}
# Values are drawn, or those of memory that nobody wrote: sizes and dtypes are compared.
DRAWN = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "empty",
    "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward", "pca_lowrank", "svd_lowrank",
    "nn.functional.scaled_dot_product_attention", "nn.functional.gumbel_softmax",
}  # fmt: skip
# Samples that say nothing of this device: views of a memory that is not copied with them, a list of
# sections that PyTorch takes from the host alone, elements that GT has not.
ELSEWHERE = {"as_strided", "as_strided_copy", "as_strided_scatter", "tensor_split", "chalf"}
ELSEWHERE |= {"hash_tensor"}


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def title(op: OpInfo) -> str:
    return f"{op.name}/{op.variant_test_name}" if op.variant_test_name else op.name


def on_mux(value: Any) -> Any:
    def moved(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.detach().to("mux").requires_grad_(x.requires_grad)
        return "mux" if isinstance(x, torch.device) else x

    return tree_map(moved, value)


def on_host(value: Any) -> Any:
    return tree_map(lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x, value)


def samples(op: OpInfo) -> list[SampleInput]:
    """The first of an operator, and one from the middle."""
    torch.manual_seed(0)
    found = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
    return found[:1] + found[len(found) // 2 : len(found) // 2 + 1] if found[1:] else found


def outcome(op: OpInfo, sample: Any, backward: bool) -> tuple[Any, Any, type[Exception] | None]:
    """Results, gradients of the leaves, and the class of the error in their place."""
    operand, args, kwargs = sample
    torch.manual_seed(1)
    try:
        results = op(operand, *args, **kwargs)
    except NotImplementedError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever an operator raises is compared
        return None, None, type(error)
    leaves = [x for x in tree_leaves(sample) if isinstance(x, torch.Tensor) and x.requires_grad]
    outputs = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not backward or not outputs:
        return results, None, None
    total = sum((x.abs() if x.is_complex() else x).double().sum() for x in outputs)
    return results, torch.autograd.grad(total, leaves, allow_unused=True), None


def check(op: OpInfo, sample: SampleInput) -> None:
    given = (sample.input, sample.args, sample.kwargs)
    remote = on_mux(given)
    backward = op.supports_autograd and op.name not in DRAWN
    try:
        expected = outcome(op, given, backward)
    except (RuntimeError, NotImplementedError):
        return  # PyTorch has no gradient of it here
    results, gradients, error = outcome(op, remote, backward)
    assert error == expected[2] or issubclass(error or int, expected[2] or str), (error, expected)
    if op.name in DRAWN:
        describe = lambda x: (x.shape, x.dtype) if isinstance(x, torch.Tensor) else x  # noqa: E731
        assert tree_map(describe, results) == tree_map(describe, expected[0])
        return
    torch.testing.assert_close(on_host(results), on_host(expected[0]), **TOLERANCE)
    torch.testing.assert_close(on_host(gradients), on_host(expected[1]), **TOLERANCE)


def runs(op: OpInfo, place: int, is_slow: bool) -> bool:
    return torch.float32 in op.dtypes and (is_slow or place % EVERY == 0)


def seen(op: OpInfo, sample: SampleInput) -> str | None:
    """None of a sample that is as on the host; else how it differs."""
    try:
        check(op, sample)
    except NotImplementedError as error:
        return "not implemented" if "::" in str(error) else str(error)
    except AssertionError as error:
        return str(error)
    return None


@pytest.mark.timeout(900)  # with --slow: 1,300 samples
def test_operators(request: pytest.FixtureRequest) -> None:
    is_slow = bool(request.config.getoption("--slow"))
    chosen = [op for place, op in enumerate(op_db) if runs(op, place, is_slow)]
    chosen = [op for op in chosen if op.name not in ELSEWHERE]
    count = 2 if is_slow else 1
    found = [(title(op), seen(op, sample)) for op in chosen for sample in samples(op)[:count]]
    refused = {name for name, difference in found if difference == "not implemented"}
    wrong = {name: text for name, text in found if text not in {None, "not implemented"}}
    assert not wrong
    expected = NOT_IMPLEMENTED & {title(op) for op in chosen}
    assert refused == expected if is_slow else refused <= expected
