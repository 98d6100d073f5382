"""`layout=` of factories, in gt and on the device `mux`: strided, or an error that says so."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_session import torch_workers

import gt
import gt.torch

# A module (gt, or torch on a device), a tensor of it [2, 2], and keywords.
Factory = Callable[..., Any]

FACTORIES: dict[str, Factory] = {
    "zeros": lambda t, x, **named: t.zeros(2, **named),
    "ones": lambda t, x, **named: t.ones(2, **named),
    "empty": lambda t, x, **named: t.empty(2, **named),
    "full": lambda t, x, **named: t.full((2,), 3.0, **named),
    "arange": lambda t, x, **named: t.arange(3, **named),
    "linspace": lambda t, x, **named: t.linspace(0, 1, 3, **named),
    "logspace": lambda t, x, **named: t.logspace(0, 1, 3, **named),
    "range": lambda t, x, **named: t.range(0, 2, **named),
    "eye": lambda t, x, **named: t.eye(2, **named),
    "rand": lambda t, x, **named: t.rand(2, **named),
    "randn": lambda t, x, **named: t.randn(2, **named),
    "randint": lambda t, x, **named: t.randint(3, (2,), **named),
    "randperm": lambda t, x, **named: t.randperm(3, **named),
    "normal": lambda t, x, **named: t.normal(0.0, 1.0, (2,), **named),
    "scalar_tensor": lambda t, x, **named: t.scalar_tensor(2.0, **named),
    "tril_indices": lambda t, x, **named: t.tril_indices(2, 2, **named),
    "triu_indices": lambda t, x, **named: t.triu_indices(2, 2, **named),
    "hann_window": lambda t, x, **named: t.hann_window(3, **named),
    "kaiser_window": lambda t, x, **named: t.kaiser_window(3, **named),
    "empty_strided": lambda t, x, **named: t.empty_strided((2,), (1,), **named),
    "empty_permuted": lambda t, x, **named: t.empty_permuted((2, 3), (1, 0), **named),
}
LIKE: dict[str, Factory] = {
    "zeros_like": lambda t, x, **named: t.zeros_like(x, **named),
    "ones_like": lambda t, x, **named: t.ones_like(x, **named),
    "empty_like": lambda t, x, **named: t.empty_like(x, **named),
    "full_like": lambda t, x, **named: t.full_like(x, 2.0, **named),
    "rand_like": lambda t, x, **named: t.rand_like(x, **named),
    "randn_like": lambda t, x, **named: t.randn_like(x, **named),
    "randint_like": lambda t, x, **named: t.randint_like(x, 3, **named),
    "new_zeros": lambda t, x, **named: x.new_zeros((2,), **named),
    "new_ones": lambda t, x, **named: x.new_ones((2,), **named),
    "new_empty": lambda t, x, **named: x.new_empty((2,), **named),
    "new_full": lambda t, x, **named: x.new_full((2,), 3.0, **named),
    "new_empty_strided": lambda t, x, **named: x.new_empty_strided((2,), (1,), **named),
}
SPARSE = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr"]


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*FACTORIES, *LIKE])
def test_gt_makes_strided_tensors_or_refuses(name: str) -> None:
    factory, x = (FACTORIES | LIKE)[name], gt.ones(2, 2)
    plain = factory(gt, x)
    for layout in (gt.strided, torch.strided, None):
        if layout is torch.strided and name.endswith("_window"):
            continue  # compares with gt.strided alone
        assert factory(gt, x, layout=layout).shape == plain.shape
    for layout in (gt.sparse_coo, torch.sparse_csr):
        with pytest.raises(RuntimeError, match=r"layout=sparse|for sparse types"):
            factory(gt, x, layout=layout)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [x for x in (*FACTORIES, *LIKE) if not x.endswith("_window")])
@pytest.mark.parametrize("layout", ["strided", 1, gt.float32, gt.channels_last])
def test_gt_refuses_what_is_no_layout(name: str, layout: object) -> None:
    with pytest.raises(TypeError, match=r"argument 'layout' must be torch\.layout, not "):
        (FACTORIES | LIKE)[name](gt, gt.ones(2, 2), layout=layout)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*FACTORIES, *LIKE])
def test_mux_makes_strided_tensors_or_refuses(name: str) -> None:
    x = torch.ones(2, 2, device="mux")
    place = {"device": "mux"} if name in FACTORIES else {}
    factory = (FACTORIES | LIKE)[name]
    assert factory(torch, x, layout=torch.strided, **place).layout is torch.strided
    for layout in SPARSE:
        with pytest.raises(RuntimeError) as raised:
            factory(torch, x, layout=getattr(torch, layout), **place)
        if name in LIKE:
            assert isinstance(raised.value, NotImplementedError)
            assert str(raised.value).startswith(f"aten::{name}(")
            assert f"layout=torch.{layout} is not implemented" in str(raised.value)
            assert "device='cpu'" in str(raised.value)


def test_zeros_of_mux_in_coordinates_name_the_way_out() -> None:
    for make in (torch.zeros, torch.empty):
        with pytest.raises(NotImplementedError, match=r"aten::empty.*device='cpu'"):
            make(2, 2, device="mux", layout=torch.sparse_coo)


def test_zeros_of_the_host_like_those_of_mux_have_the_layout() -> None:
    x = torch.ones(2, 2, device="mux")
    assert torch.zeros_like(x, device="cpu", layout=torch.sparse_coo).layout is torch.sparse_coo


@pytest.mark.parametrize("device", ["cpu", "mux"])
def test_a_copy_keeps_its_layout(device: str) -> None:
    x = torch.ones(2, 2, device="mux")
    for layout, word in ((torch.sparse_coo, "Sparse"), (torch.sparse_csr, "SparseCsr")):
        with pytest.raises(RuntimeError, match=f"being Strided and options.layout set as {word}$"):
            torch.ops.aten._to_copy(x, device=device, layout=layout)
    assert gt.ones(2).to(gt.float64, layout=gt.strided).dtype == gt.float64
    with pytest.raises(NotImplementedError, match="layout=sparse_coo"):
        gt.ones(2).to(gt.float64, layout=gt.sparse_coo)


@pytest.mark.parametrize(
    "make",
    [
        lambda t, **named: t.randint(3, (2,), **named),
        lambda t, **named: t.randperm(3, **named),
        lambda t, **named: t.arange(3, **named),
        lambda t, **named: t.zeros(2, dtype=t.int32, **named),
    ],
)
def test_whole_numbers_require_no_gradient(make: Callable[..., Any]) -> None:
    for t in (torch, gt):
        with pytest.raises(RuntimeError, match=r"^Only Tensors of floating point and complex"):
            make(t, requires_grad=True)
    assert gt.randperm(3, dtype=gt.float32, requires_grad=True).requires_grad
