"""gt.sparse: what PyTorch's sparse matrices do of products and sums, with gradients; refusals."""

import warnings

import pytest
import torch
from same_program import check

import gt


@pytest.fixture(autouse=True)
def without_torchs_notice():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parts(t, requires_grad=True):
    """A matrix [3, 4] with an element twice, its values, and a dense one."""
    indices = t.tensor([[2, 0, 1, 0], [1, 3, 0, 3]])
    values = t.tensor([3.0, 4.0, 5.0, -1.5]).requires_grad_(requires_grad)
    dense = (t.arange(8.0).reshape(4, 2) / 3 - 1).requires_grad_(requires_grad)
    return t.sparse_coo_tensor(indices, values, (3, 4)), values, dense


def hybrid(t):
    """A tensor [2, 2, 3] of two sparse dimensions, with an element twice."""
    values = t.arange(9.0).reshape(3, 3)
    return t.sparse_coo_tensor(t.tensor([[0, 1, 0], [1, 0, 1]]), values, (2, 2, 3))


def shown(s):
    """A sparse tensor of either, coalesced."""
    s = s.coalesce()
    return s.indices(), s.values(), tuple(s.shape), s.is_coalesced()


def through(make):
    """Result of `make` for a sparse and a dense matrix, and gradients of the values and of it."""

    def program(t):
        s, values, dense = parts(t)
        made = make(t, s, dense)
        seen = shown(made) if made.is_sparse else made
        flat = (made.coalesce().values() if made.is_sparse else made).reshape(-1)
        (flat * t.arange(1.0, flat.shape[0] + 1)).sum().backward()
        return seen, values.grad, dense.grad

    return program


@pytest.mark.parametrize(
    "make",
    [
        lambda t, s, d: s @ d,
        lambda t, s, d: s.mm(d),
        lambda t, s, d: s @ d[:, 0],
        lambda t, s, d: t.sparse.mm(s, d),
        lambda t, s, d: t.spmm(s, d),
        lambda t, s, d: t.mm(s, d),
        lambda t, s, d: d.t() @ s.t(),
        lambda t, s, d: s.t() @ t.ones(3, 2) * d,
        lambda t, s, d: t.sparse.addmm(t.ones(3, 2), s, d, beta=2.0, alpha=0.5),
        lambda t, s, d: s.to_dense() @ d,
        lambda t, s, d: s.coalesce() @ d,
        lambda t, s, d: (s * 2 + s / 4 - s).mm(d),
        lambda t, s, d: (-s).T.transpose(0, 1).mm(d),
        lambda t, s, d: s.sum() * d,
        lambda t, s, d: t.sparse.sum(s) * d,
        lambda t, s, d: t.sparse.sum(s, (0, 1)) * d,
        lambda t, s, d: t.sparse.sum(s, 0),
        lambda t, s, d: t.sparse.sum(s, -1),
        lambda t, s, d: s + s.detach(),
        lambda t, s, d: s * t.arange(12.0).reshape(3, 4),
        lambda t, s, d: s * t.tensor(3.0),
        lambda t, s, d: t.ones(3, 4) + s,
        lambda t, s, d: d.to_sparse(),
        lambda t, s, d: s.double().float(),
    ],
)
def test_values_and_gradients_are_pytorchs(make):
    check(through(make), tolerance=1e-5)


@pytest.mark.parametrize(
    "program",
    [
        lambda t: shown(parts(t)[0]),
        lambda t: t.sparse_coo_tensor([[0, 1], [1, 0]], [1, 2]).to_dense(),
        lambda t: t.sparse_coo_tensor([[0, 1], [4, 0]], [1, 2], dtype=t.float64).to_dense(),
        lambda t: t.sparse_coo_tensor(t.zeros(2, 0).long(), t.zeros(0), (2, 2)).to_dense(),
        lambda t: t.sparse_coo_tensor((2, 3)).to_dense(),
        lambda t: (
            t.sparse_coo_tensor([[0, 1], [1, 1], [0, 1]], [1.0, 2.0], (2, 2, 2)).sum(1).to_dense()
        ),
        lambda t: shown(t.eye(3).to_sparse()),
        lambda t: str(t.eye(3).to_sparse().layout).partition(".")[2],
        lambda t: t.eye(3).to_sparse().layout == t.sparse_coo,
        lambda t: shown(t.sparse.FloatTensor(t.tensor([[0, 1], [1, 0]]), t.ones(2), (2, 3))),
        lambda t: t.sparse.LongTensor(
            t.tensor([[0], [1]]), t.tensor([3]), t.Size([2, 2])
        ).to_dense(),
        lambda t: t.sparse.DoubleTensor(t.tensor([[0], [1]]), t.ones(1).double()).to_dense(),
        lambda t: t.sparse.FloatTensor(2, 3).to_dense(),
        lambda t: t.ones(2).to_dense(),
        lambda t: [
            (
                s.dim(),
                s.sparse_dim(),
                s.dense_dim(),
                s._nnz(),
                len(s),
                s.numel(),
                s.is_sparse,
                s.is_coalesced(),
                s.requires_grad,
                s.detach().requires_grad,
                list(s.size()),
            )
            for s in (parts(t)[0], t.eye(2).to_sparse())
        ],
        # of dense dimensions
        lambda t: shown(t.ones(2, 2).to_sparse(1)),
        lambda t: shown(t.ones(3, 2, 2).to_sparse(dense_dim=1)),
        lambda t: shown(hybrid(t)),
        lambda t: hybrid(t).to_dense(),
        lambda t: shown(hybrid(t) * t.arange(12.0).reshape(2, 2, 3)),
        lambda t: [shown(hybrid(t).sum(dim)) for dim in (0, 1, 2, (0, 2))],
        lambda t: [hybrid(t).sum((0, 1)), hybrid(t).sum()],
        lambda t: shown(hybrid(t).transpose(0, 1)),
        lambda t: [hybrid(t).sparse_dim(), hybrid(t).dense_dim(), hybrid(t)._nnz()],
        lambda t: [(parts(t)[0].coalesce() + t.eye(4)[:3].to_sparse()).values()],
        # refused by both
        lambda t: hybrid(t).transpose(0, 2),
        lambda t: hybrid(t).t(),
        lambda t: t.sparse_coo_tensor([[0, 1], [1, 0]], t.ones(2, 3), (2, 2, 4)),
        lambda t: t.sparse_coo_tensor([[0, 1], [1, 0]], t.ones(2, 3), (2, 2)),
        lambda t: t.ones(2, 2).to_sparse(3),
        lambda t: t.ones(2, 2).to_sparse(0),
        lambda t: parts(t)[0].indices(),
        lambda t: parts(t)[0].values(),
        lambda t: parts(t)[0] @ t.ones(3, 2),
        lambda t: parts(t)[0] @ t.ones(3),
        lambda t: parts(t)[0] @ t.ones(4, 2).double(),
        lambda t: parts(t)[0] + t.ones(3, 4),
        lambda t: parts(t)[0] + t.eye(3).to_sparse(),
        lambda t: t.sparse_coo_tensor([[0, 1], [1, 0]], [1.0]),
        lambda t: t.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2, 2)),
        lambda t: t.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (1, 2), check_invariants=True),
        lambda t: t.sparse_coo_tensor([[0, -1], [1, 0]], [1.0, 2.0], (2, 2), check_invariants=True),
    ],
)
def test_forms_answers_and_mistakes_are_pytorchs(program):
    check(program)


def test_a_leaf_has_a_sparse_gradient():
    def program(t):
        s = t.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), requires_grad=True)
        t.sparse.mm(s, t.ones(2, 3)).sum().backward()
        return s.grad._indices(), s.grad._values(), s.is_leaf

    check(program)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.exp(),
        lambda s: s[0],
        lambda s: s > 1,
        lambda s: s**2,
        lambda s: s @ s,
        lambda s: s * s,
        bool,
        lambda s: s.view(4, 3),
        lambda s: s.to_sparse_csr(),
        lambda s: gt.ones(2, 2).to_sparse(layout=torch.sparse_csr),
    ],
)
def test_everything_else_is_refused_with_a_word(call):
    with pytest.raises(NotImplementedError, match=r"to_dense|to_sparse\(\)"):
        call(parts(gt)[0])


@pytest.mark.parametrize("index", [-1, 3])
@pytest.mark.parametrize(
    "call", [lambda s: s.to_dense(), lambda s: s.coalesce().to_dense(), lambda s: s @ gt.ones(3, 1)]
)
def test_an_index_outside_of_the_shape_is_never_another_element(index, call):
    s = gt.sparse_coo_tensor([[0, 1], [index, 0]], [1.0, 2.0], (2, 3))
    with pytest.raises((IndexError, RuntimeError)):
        call(s).tolist()


def test_what_pytorch_does_not_have_either_is_no_attribute():
    assert not hasattr(parts(gt)[0], "toaster")
    with pytest.raises(AttributeError, match=r"PyTorch has `sparse\.softmax`"):
        gt.sparse.softmax  # noqa: B018 - the miss is the point


SPARSE_ADAM = [{}, {"lr": 0.05}, {"betas": (0.5, 0.9), "eps": 1e-3}, {"maximize": True}]


@pytest.mark.parametrize("options", SPARSE_ADAM)
@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_sparse_adam_updates_the_rows_that_have_a_gradient(kind, options):
    def program(t):
        table = getattr(t.nn, kind)(6, 3, sparse=True)
        with t.no_grad():
            table.weight.copy_(t.arange(18.0).reshape(6, 3).sin())
        optimizer = t.optim.SparseAdam(table.parameters(), **options)
        losses = []
        for step in range(5):
            optimizer.zero_grad()
            loss = (table(t.tensor([[0, 1, step], [3, 1, 2]])) ** 2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        state = optimizer.state_dict()["state"][0]
        return losses, table.weight, state["exp_avg"], state["exp_avg_sq"], int(state["step"])

    check(program, tolerance=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda t, p: t.optim.SparseAdam([p], lr=-1e-2),
        lambda t, p: t.optim.SparseAdam([p], lr=0.0),
        lambda t, p: t.optim.SparseAdam([p], eps=0.0),
        lambda t, p: t.optim.SparseAdam([p], betas=(1.0, 0.9)),
        lambda t, p: t.optim.SparseAdam([p], betas=(0.9, -0.1)),
        lambda t, p: t.optim.SparseAdam([p], lr=t.ones(2)),
        lambda t, p: t.optim.SparseAdam([p.to(t.complex64).detach().requires_grad_()]),
        lambda t, p: t.optim.SparseAdam([]),
    ],
)
def test_mistakes_of_sparse_adam_are_pytorchs(make):
    check(lambda t: make(t, t.ones(2, requires_grad=True)) and None)


def gcn(t):
    """Losses of a graph network of two layers over a sparse adjacency, as programs write it."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (5, 1), (5, 3)]
    pairs = [*edges, *((b, a) for a, b in edges), *((n, n) for n in range(6))]
    degree = [sum(a == n for a, _ in pairs) for n in range(6)]
    weights = [(degree[a] * degree[b]) ** -0.5 for a, b in pairs]
    adjacency = t.sparse_coo_tensor(t.tensor(pairs).t(), t.tensor(weights), (6, 6)).coalesce()
    x = t.arange(24.0).reshape(6, 4).sin()
    first = (t.arange(20.0).reshape(4, 5) * 0.7).cos().requires_grad_()
    second = (t.arange(15.0).reshape(5, 3) * 0.3).sin().requires_grad_()
    target = t.tensor([0, 1, 2, 0, 1, 2])
    optimizer = t.optim.Adam([first, second], lr=0.05)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        hidden = t.spmm(adjacency, x @ first).relu()
        loss = t.nn.functional.cross_entropy(t.sparse.mm(adjacency, hidden @ second), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_graph_network_trains_as_with_pytorch():
    check(gcn, tolerance=1e-4)
