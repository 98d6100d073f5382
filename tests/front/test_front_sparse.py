"""Sparse tensors of the device `mux` beside PyTorch's of the host: values, gradients, refusals."""

import copy
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch_session import torch_workers

import gt.torch  # noqa: F401 - names the device

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support"),
]


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


def coo(d: str, coalesced: bool = False, requires_grad: bool = False) -> torch.Tensor:
    """A matrix [3, 4] with an element twice."""
    indices = torch.tensor([[2, 0, 1, 0], [1, 3, 0, 3]], device=d)
    values = torch.tensor([3.0, 4.0, 5.0, -1.5], device=d, requires_grad=requires_grad)
    s = torch.sparse_coo_tensor(indices, values, (3, 4))
    return s.coalesce() if coalesced else s


def hybrid(d: str, coalesced: bool = False) -> torch.Tensor:
    """A tensor [3, 2] of one sparse dimension, with a row twice."""
    values = torch.arange(6.0, device=d).reshape(3, 2)
    s = torch.sparse_coo_tensor(torch.tensor([[1, 0, 1]], device=d), values, (3, 2))
    return s.coalesce() if coalesced else s


def dense(d: str, *size: int) -> torch.Tensor:
    size = size or (4, 2)
    return torch.arange(float(torch.Size(size).numel()), device=d).reshape(size) / 3 - 1


def shown(x: Any) -> Any:
    """A sparse tensor as its parts, coalesced, all of them comparable."""
    if isinstance(x, torch.Tensor) and x.is_sparse:
        s = x.coalesce()
        return s.indices(), s.values(), tuple(x.shape), x.sparse_dim(), x.dense_dim()
    return [shown(y) for y in x] if isinstance(x, list | tuple) else x


FORMS: dict[str, Callable[[str], Any]] = {
    "uncoalesced": coo,
    "coalesced": lambda d: coo(d, True),
    "hybrid": hybrid,
    "hybrid coalesced": lambda d: hybrid(d, True),
    "of lists": lambda d: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], device=d),
    "of dtype": lambda d: torch.sparse_coo_tensor(
        [[0, 1], [1, 0]], [1, 2], (2, 3), dtype=torch.float64, device=d
    ),
    "of sizes": lambda d: torch.sparse_coo_tensor((2, 3), device=d),
    "of no elements": lambda d: torch.sparse_coo_tensor(
        torch.zeros(2, 0, dtype=torch.int64, device=d), torch.zeros(0, device=d), (2, 3)
    ),
    "answers": lambda d: [
        [x.is_sparse, x.layout, x._nnz(), x.sparse_dim(), x.dense_dim(), x.is_coalesced()]
        for x in (coo(d), coo(d, True), hybrid(d))
    ],
    "more answers": lambda d: [
        [x.numel(), len(x), x.dim(), x.shape, x.requires_grad, x.is_leaf, x.dtype]
        for x in (coo(d), coo(d, True), hybrid(d), coo(d, requires_grad=True))
    ],
    "indices": lambda d: coo(d, True).indices(),
    "values": lambda d: coo(d, True).values(),
    "_indices": lambda d: coo(d)._indices(),
    "_values": lambda d: coo(d)._values(),
    "to_dense": lambda d: [coo(d).to_dense(), hybrid(d).to_dense()],
    "to_dense(dtype)": lambda d: coo(d).to_dense(torch.float64),
    "to_sparse": lambda d: dense(d).to_sparse(),
    "to_sparse of sparse": lambda d: coo(d).to_sparse(),
    "to_sparse(1)": lambda d: dense(d, 3, 2, 2).to_sparse(1),
    "to_sparse(dense_dim)": lambda d: dense(d, 3, 2, 2).to_sparse(dense_dim=1),
    "to_sparse_coo": lambda d: dense(d).to_sparse_coo(),
    "to_sparse of integers": lambda d: torch.tensor([[0, 2], [3, 0]], device=d).to_sparse(),
    "sparse_mask": lambda d: dense(d, 3, 4).sparse_mask(coo(d, True)),
    "to device": lambda d: coo("cpu").to(d),
    "cpu": lambda d: coo(d).cpu(),
    "copy_": lambda d: torch.zeros_like(coo(d)).copy_(coo(d)),
    "copy_ from host": lambda d: torch.zeros_like(coo(d)).copy_(coo("cpu")),
    "dtypes": lambda d: [coo(d).double(), coo(d).to(torch.float16), coo(d).long()],
    "clone": lambda d: [coo(d).clone(), coo(d).detach(), torch.zeros_like(coo(d))],
    "deepcopy": lambda d: copy.deepcopy(coo(d)),
    "pickle": lambda d: pickle.loads(pickle.dumps(coo(d))),
    "mm": lambda d: [coo(d) @ dense(d), torch.mm(coo(d), dense(d)), torch.spmm(coo(d), dense(d))],
    "sparse.mm": lambda d: [torch.sparse.mm(coo(d), dense(d)), torch.sparse.mm(coo(d), coo(d).t())],
    "mv": lambda d: [coo(d) @ dense(d)[:, 0], coo(d).mv(dense(d)[:, 1])],
    "dense @ sparse": lambda d: dense(d).t() @ coo(d).t(),
    "addmm": lambda d: [
        torch.sparse.addmm(dense(d, 3, 2), coo(d), dense(d), beta=2.0, alpha=0.5),
        torch.addmm(dense(d, 3, 2), coo(d), dense(d)),
    ],
    "sparse.sum": lambda d: [torch.sparse.sum(coo(d), x) for x in (None, 0, -1, (0, 1))],
    "sparse.sum of hybrid": lambda d: [torch.sparse.sum(hybrid(d), x) for x in (None, 0, 1)],
    "sparse.sum(dtype)": lambda d: torch.sparse.sum(coo(d), dtype=torch.float64),
    "sum": lambda d: [coo(d).sum(), coo(d).sum(0), coo(d).sum(1, keepdim=True)],
    "sum of integers": lambda d: coo(d).to(torch.int32).sum(),
    "+": lambda d: [coo(d) + coo(d), coo(d, True) + coo(d, True), dense(d, 3, 4) + coo(d)],
    "-": lambda d: [coo(d) - coo(d) * 2, -coo(d)],
    "*": lambda d: [coo(d) * dense(d, 3, 4), dense(d, 3, 4) * coo(d), coo(d) * coo(d), 2 * coo(d)],
    "* of different": lambda d: (coo(d) * torch.eye(4, device=d)[:3].to_sparse()).to_dense(),
    "/": lambda d: coo(d) / 2,
    "**": lambda d: [coo(d) ** 2, coo(d).square()],
    "of zero zero": lambda d: [
        getattr(coo(d), name)() for name in ("abs", "sqrt", "relu", "sin", "expm1", "sign", "isnan")
    ],
    "dense.add_": lambda d: dense(d, 3, 4).add_(coo(d), alpha=-0.5),
    "add_": lambda d: coo(d).add_(coo(d)),
    "mul_": lambda d: coo(d).mul_(2),
    "zero_": lambda d: coo(d).zero_(),
    "t": lambda d: [coo(d).t(), coo(d).transpose(0, 1), coo(d).T, coo(d).permute(1, 0)],
    "unsqueeze": lambda d: coo(d).unsqueeze(0),
    "cat": lambda d: [torch.cat([coo(d), coo(d)], dim) for dim in (0, 1, -1)],
    "stack": lambda d: torch.stack([coo(d), coo(d)]),
    "[]": lambda d: [coo(d)[0], coo(d)[2, 1], hybrid(d)[1]],
    "index_select": lambda d: coo(d).index_select(0, torch.tensor([2, 1], device=d)),
    "norm": lambda d: [coo(d).norm(), coo(d).norm(1), torch.linalg.vector_norm(coo(d))],
    # refused by both
    "indices of uncoalesced": lambda d: coo(d).indices(),
    "values of uncoalesced": lambda d: coo(d).values(),
    "sizes of mm": lambda d: coo(d) @ dense(d, 3, 2),
    "sparse + dense": lambda d: coo(d) + dense(d, 3, 4),
    "sizes of +": lambda d: coo(d) + torch.eye(3, device=d).to_sparse(),
    "numbers of parts": lambda d: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0], device=d),
    "dimensions": lambda d: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2, 2), device=d),
    "an index outside": lambda d: torch.sparse_coo_tensor(
        [[0, 1], [1, 0]], [1.0, 2.0], (1, 2), device=d, check_invariants=True
    ),
    "a negative index": lambda d: torch.sparse_coo_tensor(
        [[0, -1], [1, 0]], [1.0, 2.0], (2, 2), device=d, check_invariants=True
    ),
    "t of hybrid": lambda d: hybrid(d).t(),
    "transpose of hybrid": lambda d: hybrid(d).transpose(0, 1),
    "to_sparse(3)": lambda d: dense(d).to_sparse(3),
}


def outcome(program: Callable[[str], Any], device: str) -> Any:
    try:
        return shown(program(device))
    except Exception as error:  # noqa: BLE001 - whatever PyTorch raises
        kind = next(
            x for x in (IndexError, TypeError, ValueError, RuntimeError) if isinstance(error, x)
        )
        return kind.__name__, str(error).split("\n")[0]


def assert_same(program: Callable[[str], Any]) -> None:
    """One outcome on the host and on `mux`."""
    compare(outcome(program, "mux"), outcome(program, "cpu"))


def compare(got: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple) and not isinstance(expected, torch.Size):
        assert len(got) == len(expected), (got, expected)
        for x, y in zip(got, expected, strict=True):
            compare(x, y)
    elif isinstance(expected, torch.Tensor):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.requires_grad == expected.requires_grad
        torch.testing.assert_close(got.detach().cpu(), expected.detach())
    else:
        assert got == expected


@pytest.mark.parametrize("name", FORMS)
def test_sparse_tensors_are_pytorchs(name: str) -> None:
    assert_same(FORMS[name])


PRODUCTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "@": lambda s, x: s @ x,
    "sparse.mm": torch.sparse.mm,
    "spmm": torch.spmm,
    "mv": lambda s, x: s @ x[:, 0],
    "dense @ sparse": lambda s, x: x.t() @ s.t(),
    "addmm": lambda s, x: torch.sparse.addmm(x[:3], s, x, beta=2.0, alpha=0.5),
    "to_dense": lambda s, x: s.to_dense() @ x,
    "coalesce": lambda s, x: s.coalesce() @ x,
    "sums": lambda s, x: (s * 2 + s / 4 - s).mm(x),
    "transposes": lambda s, x: (-s).T.transpose(0, 1).mm(x),
    "sum": lambda s, x: s.sum() * x,
    "sparse.sum": lambda s, x: torch.sparse.sum(s) * x,
    "sparse.sum(0, 1)": lambda s, x: torch.sparse.sum(s, (0, 1)) * x,
    "sparse.sum(0)": lambda s, x: torch.sparse.sum(s, 0),
    "sparse.sum(-1)": lambda s, x: torch.sparse.sum(s, -1),
    "+": lambda s, x: s + s.detach(),
    "* dense": lambda s, x: s * dense(str(x.device), 3, 4),
    "* number": lambda s, x: s * torch.tensor(3.0, device=x.device),
    "dense +": lambda s, x: dense(str(x.device), 3, 4) + s,
    "to_sparse": lambda s, x: x.to_sparse(),
    "dtypes": lambda s, x: s.double().float(),
    "* sparse": lambda s, x: s * s,
    "values": lambda s, x: s.coalesce().values(),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_gradients_of_sparse_tensors_are_pytorchs(name: str) -> None:
    def program(d: str) -> Any:
        indices = torch.tensor([[2, 0, 1, 0], [1, 3, 0, 3]], device=d)
        values = torch.tensor([3.0, 4.0, 5.0, -1.5], device=d, requires_grad=True)
        x = dense(d).requires_grad_()
        made = PRODUCTS[name](torch.sparse_coo_tensor(indices, values, (3, 4)), x)
        flat = (made.coalesce().values() if made.is_sparse else made).reshape(-1)
        (flat * torch.arange(1.0, flat.shape[0] + 1, device=d)).sum().backward()
        return made, values.grad, x.grad

    assert_same(program)


OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD with momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "SGD one by one": lambda p: optim.SGD(p, 0.1, foreach=False),
    "SparseAdam": lambda p: optim.SparseAdam(list(p), 0.05),
    "SparseAdam maximizing": lambda p: optim.SparseAdam(list(p), 0.05, maximize=True),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1),
    "Adam refuses": lambda p: optim.Adam(p, 0.1),
    "weight decay is refused": lambda p: optim.SGD(p, 0.1, weight_decay=0.1),
}
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "Embedding": lambda: nn.Embedding(6, 3, sparse=True),
    "with padding": lambda: nn.Embedding(6, 3, sparse=True, padding_idx=1),
    "by frequency": lambda: nn.Embedding(6, 3, sparse=True, scale_grad_by_freq=True),
    "EmbeddingBag": lambda: nn.EmbeddingBag(6, 3, sparse=True),
    "sum": lambda: nn.EmbeddingBag(6, 3, sparse=True, mode="sum"),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("layer", LAYERS)
def test_embeddings_with_sparse_gradients_train_as_on_the_host(layer: str, optimizer: str) -> None:
    def program(d: str) -> Any:
        table = LAYERS[layer]()
        with torch.no_grad():
            table.weight.copy_(torch.arange(18.0).reshape(6, 3).sin())
        table.to(d)
        update = OPTIMIZERS[optimizer](table.parameters())
        losses = []
        for step in range(4):
            update.zero_grad(set_to_none=step % 2 == 0)
            for last in (2, 5)[: 1 + step % 2]:  # once more into the same gradient
                rows = torch.tensor([[0, 1, step], [3, 1, last]], device=d)
                loss = (table(rows) ** 2).sum()
                loss.backward()
            update.step()
            losses.append(loss)
        return losses, table.weight.grad.is_sparse, table.weight.grad.to_dense(), table.weight

    assert_same(program)


def test_norms_of_sparse_gradients_are_clipped() -> None:
    def program(d: str) -> Any:
        table = nn.Embedding(4, 2, sparse=True)
        with torch.no_grad():
            table.weight.copy_(torch.arange(8.0).reshape(4, 2))
        table.to(d)(torch.tensor([0, 1, 1], device=d)).square().sum().backward()
        return nn.utils.clip_grad_norm_(table.parameters(), 0.5), table.weight.grad.to_dense()

    assert_same(program)


def test_sparse_tensors_are_saved() -> None:
    file = io.BytesIO()
    torch.save({"x": coo("mux")}, file)
    for place in (None, "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=place)["x"]
        assert loaded.device.type == (place or "mux")
        torch.testing.assert_close(loaded.to_dense().cpu(), coo("cpu").to_dense())


def test_sparse_tensors_are_printed() -> None:
    printed = repr(coo("mux", True))
    assert printed == repr(coo("cpu", True)).replace("size=", "device='mux:0', size=")


BAG = """
import torch, gt.torch
table = torch.nn.EmbeddingBag(6, 3, device="mux")
table(torch.tensor([[0, 1, 2], [3, 1, 2]], device="mux")).sum().backward()
print(round(table.weight.grad.sum().item(), 3))
"""


def test_a_bag_of_embeddings_warns_of_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BAG],
        env=os.environ | {"GT_BACKEND": "pytorch", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("6.0\n", "")


REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "aten::exp(": lambda s, x: s.exp(),
    "aten::cos(": lambda s, x: s.cos(),
    "aten::view(": lambda s, x: s.view(4, 3),
    "aten::gt.Scalar(": lambda s, x: s > 1,
    "aten::eq.Tensor(": lambda s, x: s == s,  # noqa: PLR0124
    "aten::max(": lambda s, x: s.max(),
    "aten::_to_sparse_csr(": lambda s, x: s.to_sparse_csr(),
    "aten::_to_sparse_csc(": lambda s, x: x.to_sparse_csc(),
    "aten::_to_sparse_bsr(": lambda s, x: x.to_sparse_bsr((2, 2)),
    "aten::zeros_like(": lambda s, x: torch.zeros_like(x, layout=torch.sparse_csr),
    "aten::_sparse_softmax": lambda s, x: torch.sparse.softmax(s, 1),
    "aten::bmm(": lambda s, x: torch.bmm(torch.stack([s] * 2), dense("mux", 2, 4, 1)),
}


@pytest.mark.parametrize("schema", REFUSED)
def test_other_operators_are_refused_with_their_schema_and_the_way_out(schema: str) -> None:
    with pytest.raises(NotImplementedError) as raised:
        REFUSED[schema](coo("mux"), dense("mux"))
    text = str(raised.value)
    assert text.startswith(schema)
    assert "cpu" in text


def test_a_matrix_in_rows_stays_on_the_host() -> None:
    rows = coo("cpu").to_sparse_csr()
    with pytest.raises(NotImplementedError, match=r"aten::_nnz\(.*not implemented for sparse"):
        rows.to("mux")._nnz()
    with pytest.raises(NotImplementedError, match=r"aten::.*device='cpu'"):
        torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 2), device="mux")
