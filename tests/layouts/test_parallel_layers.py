"""Layers that are cut over workers compute what PyTorch's whole ones do, values and gradients."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from spread_session import workers

import gt
from gt import dnn, nn

torch = pytest.importorskip("torch")

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
BATCH, SEQUENCE, WIDTH, HIDDEN, VOCABULARY = 3, 5, 7, 13, 11


@pytest.fixture(autouse=True, scope="module", params=[2, 3, 4])
def mesh(request) -> Iterator[gt.DeviceMesh]:
    with workers(request.param):
        yield gt.DeviceMesh(request.param)


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def same(layer: nn.Module, theirs: "torch.nn.Module") -> None:
    """Their parameters get the values of ours."""
    for (name, ours), its in zip(layer.named_parameters(), theirs.parameters(), strict=True):
        assert tuple(ours.shape) == tuple(its.shape), name
        its.data = torch.tensor(ours.detach().numpy())


def check(layer: nn.Module, theirs: "torch.nn.Module", given: np.ndarray) -> gt.Tensor:
    """Values and gradients of both; returns our result."""
    same(layer, theirs)
    inputs = []
    for library in (gt, torch):
        x = library.tensor(given)
        inputs.append(x.requires_grad_() if x.is_floating_point() else x)
    ours, its = layer(inputs[0]), theirs(inputs[1])
    np.testing.assert_allclose(ours.detach().numpy(), its.detach().numpy(), **TIGHT)
    weights = numbers(9, *its.shape)
    (ours * gt.tensor(weights)).sum().backward()
    (its * torch.tensor(weights)).sum().backward()
    pairs = list(zip(layer.parameters(), theirs.parameters(), strict=True))
    pairs += [tuple(inputs)] if inputs[1].requires_grad else []
    for mine, other in pairs:
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), **TIGHT)
    return ours


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("gather", [True, False])
def test_column_linear(mesh, bias, gather):
    ours = nn.ColumnLinear(WIDTH, HIDDEN, bias, mesh=mesh, gather_output=gather, dtype=gt.float64)
    theirs = torch.nn.Linear(WIDTH, HIDDEN, bias)
    result = check(ours, theirs, numbers(1, BATCH, SEQUENCE, WIDTH))
    assert result.layout.dim == (None if gather else 2)
    assert ours.weight.layout == gt.Layout(mesh, (HIDDEN, WIDTH), 0)
    assert isinstance(ours.weight, nn.Parameter)


@pytest.mark.parametrize("bias", [True, False])
def test_row_linear_needs_one_all_reduce(mesh, bias):
    ours = nn.RowLinear(HIDDEN, WIDTH, bias, mesh=mesh, dtype=gt.float64)
    result = check(ours, torch.nn.Linear(HIDDEN, WIDTH, bias), numbers(2, BATCH, SEQUENCE, HIDDEN))
    assert result.layout == gt.Layout(mesh, result.shape)
    assert ours.weight.layout == gt.Layout(mesh, (WIDTH, HIDDEN), 1)
    x = gt.distribute(gt.tensor(numbers(3, 64, HIDDEN)), gt.Layout(mesh, (64, HIDDEN), 1))
    before = gt.debug.stats()
    ours(x)
    after = gt.debug.stats()
    counters = ("all_reduces", "all_gathers", "all_to_alls", "reduce_scatters", "transfers")
    assert [after[name] - before[name] for name in counters] == [1, 0, 0, 0, 0]


def test_a_block_of_both_moves_one_sum(mesh):
    up = nn.ColumnLinear(WIDTH, 4 * HIDDEN, mesh=mesh, dtype=gt.float64)
    down = nn.RowLinear(4 * HIDDEN, WIDTH, mesh=mesh, dtype=gt.float64)
    ours = nn.Sequential(up, nn.GELU(), down)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 4 * HIDDEN), torch.nn.GELU(), torch.nn.Linear(4 * HIDDEN, WIDTH)
    )
    check(ours, theirs, numbers(4, BATCH, SEQUENCE, WIDTH))
    x = gt.distribute(gt.tensor(numbers(3, 8, WIDTH)), mesh)
    before = gt.debug.stats()
    ours(x)
    after = gt.debug.stats()
    assert after["all_reduces"] - before["all_reduces"] == 1
    assert after["moved_bytes"] - before["moved_bytes"] == 2 * 8 * WIDTH * 8 * (mesh.size() - 1)


def test_vocabulary_parallel_embedding(mesh):
    ours = nn.VocabParallelEmbedding(VOCABULARY, WIDTH, mesh=mesh, dtype=gt.float64)
    theirs = torch.nn.Embedding(VOCABULARY, WIDTH)
    indexes = np.random.default_rng(5).integers(0, VOCABULARY, (BATCH, SEQUENCE))
    result = check(ours, theirs, indexes)
    assert result.layout == gt.Layout(mesh, result.shape)
    assert ours.weight.layout == gt.Layout(mesh, (VOCABULARY, WIDTH), 0)


def test_a_padding_row_starts_as_zeros_and_stays(mesh):
    ours = nn.VocabParallelEmbedding(VOCABULARY, WIDTH, padding_idx=-2, mesh=mesh, dtype=gt.float64)
    theirs = torch.nn.Embedding(VOCABULARY, WIDTH, padding_idx=-2)
    indexes = np.random.default_rng(5).integers(0, VOCABULARY, (BATCH, SEQUENCE))
    indexes[0, 0] = ours.padding_idx
    assert ours.padding_idx == theirs.padding_idx
    assert ours.weight.layout == gt.Layout(mesh, (VOCABULARY, WIDTH), 0)
    assert not ours.weight[ours.padding_idx].any().item()
    check(ours, theirs, indexes)


def test_a_fused_projection_is_cut_in_blocks(mesh):
    heads = 2 * mesh.size()
    ours = nn.ColumnLinear(WIDTH, 3 * heads, mesh=mesh, blocks=3, dtype=gt.float64)
    result = check(ours, torch.nn.Linear(WIDTH, 3 * heads), numbers(6, BATCH, WIDTH))
    cut = gt.Shard(1, blocks=3)
    assert result.layout == gt.Layout(mesh, result.shape, placements=[cut])


def test_layers_keep_another_dimension_of_the_mesh(mesh):
    if mesh.size() != 4:
        return
    grid = gt.DeviceMesh((2, 2), names=("dp", "tp"))
    ours = nn.Sequential(
        nn.ColumnLinear(WIDTH, HIDDEN, mesh=grid["tp"], dtype=gt.float64),
        nn.RowLinear(HIDDEN, WIDTH, mesh=grid["tp"], dtype=gt.float64),
    )
    theirs = torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, WIDTH))
    check(ours, theirs, numbers(7, BATCH, WIDTH))
    x = gt.distribute(gt.ones(4, WIDTH, dtype=gt.float64), gt.Layout(grid["dp"], (4, WIDTH), 0))
    assert repr(ours[0](x).layout) == "shard(0),shard(1)@[[0,1],[2,3]]"
    assert repr(ours(x).layout) == "shard(0),replicate@[[0,1],[2,3]]"


# ---- cross-entropy ----

LOSSES = [
    dict(zip(("reduction", "ignore_index", "label_smoothing"), row, strict=True))
    for row in itertools.product(("mean", "sum", "none"), (-100, 2), (0.0, 0.1))
]


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "gathered"])
@pytest.mark.parametrize("options", LOSSES, ids=str)
def test_cross_entropy_over_classes_that_are_cut(mesh, cut, options):
    values = numbers(8, BATCH, SEQUENCE, VOCABULARY)
    targets = np.random.default_rng(9).integers(0, VOCABULARY, (BATCH, SEQUENCE))
    targets[0, :3] = 2
    ours, theirs = gt.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    logits = gt.distribute(ours, gt.Layout(mesh, values.shape, 2 if cut else None))
    loss = nn.parallel_cross_entropy(logits, gt.tensor(targets), **options)
    expected = torch.nn.functional.cross_entropy(
        theirs.reshape(-1, VOCABULARY), torch.tensor(targets).reshape(-1), **options
    ).reshape(loss.shape)
    np.testing.assert_allclose(loss.detach().numpy(), expected.detach().numpy(), **TIGHT)
    loss.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), **TIGHT)


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "gathered"])
def test_cross_entropy_of_soft_targets(mesh, cut):
    values, soft = numbers(10, 4, VOCABULARY), np.abs(numbers(11, 4, VOCABULARY))
    soft /= soft.sum(axis=1, keepdims=True)
    logits = gt.distribute(gt.tensor(values), gt.Layout(mesh, values.shape, 1 if cut else None))
    loss = nn.parallel_cross_entropy(logits, gt.tensor(soft))
    expected = torch.nn.functional.cross_entropy(torch.tensor(values), torch.tensor(soft))
    np.testing.assert_allclose(loss.item(), expected.item(), **TIGHT)


def test_targets_of_another_shape_are_refused(mesh):
    del mesh
    with pytest.raises(RuntimeError, match=r"targets of shape \(3,\) for logits of shape \(2, 3\)"):
        nn.parallel_cross_entropy(gt.ones(2, 3), gt.zeros(3, dtype=gt.int64))


# ---- as TensorParallelismBeta writes it ----


class Block(nn.Module):
    """Its example: a column-parallel and a row-parallel layer."""

    def __init__(self, mesh: gt.DeviceMesh) -> None:
        super().__init__()
        pg = mesh.get_process_group(0)
        self.embedding = nn.VocabParallelEmbedding(VOCABULARY, WIDTH, mesh=mesh)
        self.fc1 = dnn.DColumnLinear(mesh, pg, BATCH, SEQUENCE, WIDTH, HIDDEN)
        self.fc4 = dnn.DRowLinear(mesh, pg, BATCH, SEQUENCE, HIDDEN, WIDTH)
        self.head = dnn.DColumnLinear(mesh, pg, BATCH, SEQUENCE, WIDTH, VOCABULARY)

    def forward(self, input: gt.Tensor) -> gt.Tensor:
        x = self.embedding(input)
        return self.head(x + self.fc4(nn.functional.gelu(self.fc1(x))).sync_w_autograd())


class Whole(nn.Module):
    """The model without any distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.fc1 = nn.Linear(WIDTH, HIDDEN)
        self.fc4 = nn.Linear(HIDDEN, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, input: gt.Tensor) -> gt.Tensor:
        x = self.embedding(input)
        return self.head(x + self.fc4(nn.functional.gelu(self.fc1(x))))


def losses(model: nn.Module, synchronise) -> list[float]:
    optimizer = gt.optim.AdamW(model.parameters(), lr=0.01)
    input = gt.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    targets = gt.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    values = []
    for _ in range(5):
        optimizer.zero_grad()
        logits = model.forward(input)
        loss = nn.parallel_cross_entropy(logits, targets)
        loss.backward(0.5)  # a scale of the gradient
        synchronise(model)
        optimizer.step()
        values.append(loss.item())
    return values


def test_the_training_loop_of_the_first_papers(mesh):
    pg = mesh.get_process_group(0)

    def by_hand(model: nn.Module) -> None:
        for parameter in model.parameters():
            pg.all_reduce_async(parameter.grad, op="sum").wait()

    gt.manual_seed(3)
    cut = losses(Block(mesh), by_hand)
    gt.manual_seed(3)
    whole = losses(Whole(), lambda _: None)
    np.testing.assert_allclose(cut, whole, rtol=1e-5)
    assert cut[-1] < cut[0]


def test_a_number_scales_the_gradient(mesh):
    del mesh
    x = gt.ones(3, requires_grad=True)
    x.sum().backward(2.5)
    assert x.grad.tolist() == [2.5] * 3
    with pytest.raises(RuntimeError, match="of one element only"):
        (x * 2).backward(1.0)
    with pytest.raises(TypeError, match="got str"):
        x.sum().backward("1")
