"""A worker's rows by GT's own CUDA kernels on a GPU: what test_cuda_operators.py checks under the
emulator, of larger operands too.
"""

from collections.abc import Iterator

import cuda_operator_cases as cases
import pytest
import torch
from cuda_training import train

import gt
from gt.worker.cuda import operators

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def tables() -> Iterator[cases.Tables]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GT_KERNELS", "on")
        own = operators.open_for(torch.device("cuda", 0))
        assert own is not None, "the worker says why on stderr"
        yield cases.Tables(own)


@pytest.mark.parametrize("dtype", cases.HALVES, ids=str)
@pytest.mark.parametrize("name", cases.PRODUCTS)
def test_products(tables, name, dtype):
    cases.check_product(tables, name, dtype)


@pytest.mark.parametrize("dtype", cases.HALVES, ids=str)
@pytest.mark.parametrize("name", cases.LINEARS)
def test_linear_layers(tables, name, dtype):
    cases.check_linear(tables, name, dtype)


LONG = [(2, 4, 1000, 1003, 64, True, 0.0), (1, 2, 515, 2048, 128, False, 0.1)]


@pytest.mark.parametrize("dtype", cases.HALVES, ids=str)
@pytest.mark.parametrize("case", [*cases.ATTENTIONS, *LONG], ids=str)
def test_attention_and_its_gradients(tables, case, dtype):
    cases.check_attention(tables, case, dtype)


def test_attention_of_operands_between_two_copies(tables):
    cases.check_unaligned_attention(tables, torch.bfloat16)


@pytest.mark.parametrize("dtype", cases.ROW_DTYPES, ids=str)
@pytest.mark.parametrize("case", [*cases.NORMS, ((1024, 4096), 1, True, True)], ids=str)
def test_layer_norm_and_its_gradients(tables, case, dtype):
    cases.check_layer_norm(tables, case, dtype)


def test_layer_norm_of_what_is_not_contiguous(tables):
    cases.check_transposed_layer_norm(tables)


@pytest.mark.parametrize("dtype", cases.ROW_DTYPES, ids=str)
@pytest.mark.parametrize("case", [*cases.NORMS, ((1024, 4096), 1, True, True)], ids=str)
def test_rms_norm_and_its_gradients(tables, case, dtype):
    cases.check_rms_norm(tables, case, dtype)


def test_rms_norm_of_what_is_not_contiguous(tables):
    cases.check_transposed_rms_norm(tables)


@pytest.mark.parametrize("dtype", cases.ROW_DTYPES, ids=str)
@pytest.mark.parametrize("ignore_index", [-100, 4])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_and_its_gradient(tables, reduction, ignore_index, dtype):
    cases.check_cross_entropy(tables, reduction, ignore_index, dtype)


@pytest.mark.parametrize("dtype", cases.ROW_DTYPES, ids=str)
def test_losses_of_nothing(tables, dtype):
    cases.check_losses_of_nothing(tables, dtype)


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_group_of_adamw(tables, decoupled):
    cases.check_adamw(tables, decoupled=decoupled)


@pytest.mark.parametrize("aten", ["off", "on"])
def test_a_worker_trains_as_without_them(monkeypatch, aten):
    """In each engine: the helper in C++ leaves these rows to them."""
    monkeypatch.setenv("GT_BACKEND", "pytorch")
    monkeypatch.setenv("GT_ATEN", aten)
    losses, calls = {}, {}
    for mode in ("on", "off"):
        monkeypatch.setenv("GT_KERNELS", mode)
        gt.disconnect()
        losses[mode] = train(5, "cuda")
        calls[mode] = gt.debug.get_worker_stats()[0]["own_calls"]
    gt.disconnect()
    assert losses["on"] == pytest.approx(losses["off"], rel=1e-2)
    assert losses["off"][-1] < losses["off"][0]
    assert calls["on"] >= calls["off"] + 5 * 21
