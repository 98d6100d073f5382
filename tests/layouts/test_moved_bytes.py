"""Each family's rule moves no more than it should: gathering everywhere does not pass here.

A case says which operands are cut, what is computed, and how many bytes that may move at the most:
`reduced(n)` for all-reduces of n numbers, `gathered(n)` for all-gathers. The tensors are so large
that a gather of an operand is dearer by far; values are those without layouts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from spread_session import workers as session

import gt
import gt.nn.functional as F
from gt import _core

WIDTH = 8  # bytes of a number: float64, and int64
R = None  # whole on every worker
Cut = int | None
Bytes = Callable[[int], int]


def none(workers: int) -> int:
    """Nothing moves."""
    del workers
    return 0


def reduced(*counts: int) -> Bytes:
    """All-reduces of so many numbers: each member sends and receives all of them but its share."""
    return lambda workers: 2 * (workers - 1) * WIDTH * sum(counts)


def gathered(count: int) -> Bytes:
    """All-gathers of so many numbers a member."""
    return lambda workers: workers * (workers - 1) * WIDTH * count


def replicated(count: int) -> Bytes:
    """So many numbers, cut over the members, come to be on each of them."""
    return lambda workers: (workers - 1) * WIDTH * count


def exchanged(count: int) -> Bytes:
    """So many numbers go from each member to its neighbour."""
    return lambda workers: (workers - 1) * WIDTH * count


def together(*all_: Bytes) -> Bytes:
    return lambda workers: sum(one(workers) for one in all_)


@dataclasses.dataclass(frozen=True)
class Case:
    """Tensors (or indexes) in these layouts; `call` moves at most `bytes_max(workers)`."""

    operands: Sequence[tuple[tuple[int, ...] | np.ndarray, Cut]]
    call: Callable[..., gt.Tensor]
    bytes_max: Bytes


@pytest.fixture(scope="module", params=(2, 3, 4), ids=lambda count: f"{count} workers")
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    with session(request.param):
        yield request.param


def values(of: tuple[int, ...] | np.ndarray, seed: int) -> gt.Tensor:
    if isinstance(of, np.ndarray):
        return gt.tensor(of)
    return gt.tensor(np.random.Generator(np.random.PCG64(seed)).uniform(-1, 1, of))


def indexes(*shape: int, first: int = 0) -> tuple[np.ndarray, Cut]:
    """Rows of T, from `first` on, on every worker."""
    return np.random.Generator(np.random.PCG64(1)).integers(0, T, shape) + first, R


def moved(act: Callable[[], gt.Tensor]) -> tuple[gt.Tensor, int]:
    """Result of `act`, reduced where it is partial, and the bytes that moved."""
    before = gt.debug.stats()["moved_bytes"]
    result = act()
    if result.layout.is_partial:
        result = gt.distribute(result)
    return result, gt.debug.stats()["moved_bytes"] - before


def check(case: Case, workers: int) -> None:
    plain = [values(of, seed) for seed, (of, _) in enumerate(case.operands)]
    placed = [gt.distribute(x, dim=cut) for x, (_, cut) in zip(plain, case.operands, strict=True)]
    gt.manual_seed(0)
    expected = case.call(*plain)
    gt.manual_seed(0)
    result, bytes_moved = moved(lambda: case.call(*placed))
    np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-9, atol=1e-9)
    assert bytes_moved <= case.bytes_max(workers)


T, D, H = 601, 96, 12  # rows, width, heads: a number of rows that none of the workers divides
ROWS, COLUMNS = ((T, D), 0), ((T, D), 1)
SQUARE = (D, D)


ELEMENTWISE = {
    "alike": Case([ROWS, ROWS], lambda x, y: (x * y + x).exp(), none),
    "a bias": Case([ROWS, ((D,), R)], lambda x, b: gt.relu(x + b), none),
    "a cut bias": Case([COLUMNS, ((D,), 0)], lambda x, b: x + b, none),
    "a column": Case([ROWS, ((T, 1), R)], lambda x, c: x * c, none),
    "where": Case([ROWS, ROWS], lambda x, y: gt.where(x > y, x, y), none),
    "contributions and contributions": Case(
        [COLUMNS, (SQUARE, 0)], lambda x, w: x @ w + (x * 2) @ w, reduced(T * D)
    ),
    "contributions and a whole": Case(
        [COLUMNS, (SQUARE, 0), ((D,), R)], lambda x, w, b: x @ w + b, reduced(T * D)
    ),
    "contributions and a number": Case(
        [COLUMNS, (SQUARE, 0)], lambda x, w: (x @ w) * 3 + 1, reduced(T * D)
    ),
    "contributions by a whole": Case(
        [COLUMNS, (SQUARE, 0), ((D,), R)],
        lambda x, w, b: ((x @ w) * b).sum(0),
        reduced(D),
    ),
    "a maximum passes": Case([ROWS], lambda x: gt.relu(x.amax(0)).exp(), reduced(D)),
}
PRODUCTS = {
    "rows": Case([ROWS, (SQUARE, R)], lambda x, w: x @ w, none),
    "columns": Case([((T, D), R), (SQUARE, 1)], lambda x, w: x @ w, none),
    "summed": Case([COLUMNS, (SQUARE, 0)], lambda x, w: x @ w, reduced(T * D)),
    "a bias once": Case([COLUMNS, (SQUARE, 1), ((D,), R)], F.linear, reduced(T * D)),
    "column, then row": Case(
        [((T, D), R), (SQUARE, 0), ((D,), 0), (SQUARE, 1), ((D,), R)],
        lambda x, v, b, w, c: F.linear(gt.relu(F.linear(x, v, b)), w, c),
        reduced(T * D),
    ),
    "batches": Case([((H, T, D), 0), ((H, D, 5), 0)], lambda x, w: x @ w, none),
    "a stretched batch": Case([((H, T, D), 0), ((1, D, 5), R)], lambda x, w: x @ w, none),
    "a batch of one operand": Case([((H, T, D), 0), ((D, 5), R)], lambda x, w: x @ w, none),
    "an equation": Case(
        [((4, T, D), 0), ((4, T, D), 0)], lambda x, y: gt.einsum("btd,bsd->bts", x, y), none
    ),
    "a vector": Case([ROWS, ((D,), R)], lambda x, v: x @ v, none),
    "vectors": Case([((T,), 0), ((T,), 0)], lambda x, y: x @ y, reduced(1)),
    "batches of vectors": Case([((H, T, D), 0), ((D,), R)], lambda x, v: x @ v, none),
}
REDUCTIONS = {
    "sum": Case([ROWS], lambda x: x.sum(0), reduced(D)),
    "sum of all": Case([ROWS], lambda x: x.sum(), reduced(1)),
    "mean": Case([ROWS], lambda x: x.mean(0), reduced(D)),
    "max": Case([ROWS], lambda x: x.amax(0), reduced(D)),
    "min": Case([ROWS], lambda x: x.amin(0), reduced(D)),
    "max and where": Case([ROWS], lambda x: x.max(0)[0], reduced(D, D)),
    "argmax": Case([ROWS], lambda x: x.argmax(0), reduced(D, D)),
    "var": Case([ROWS], lambda x: x.var(0), reduced(D, D)),
    "norm": Case([ROWS], lambda x: x.norm(), reduced(1)),
    "logsumexp": Case([ROWS], lambda x: x.logsumexp(0), reduced(D, D)),
    "cumsum": Case([ROWS], lambda x: x.cumsum(0), gathered(D)),
    "topk": Case([ROWS], lambda x: x.topk(3, dim=0)[0], gathered(2 * 3 * D)),
    "other dimensions": Case([ROWS], lambda x: x.sum(1) + x.var(1) + x.cumsum(1)[:, 0], none),
}
NORMALIZED = {
    "softmax": Case([((D, T), 1)], lambda x: x.softmax(1), reduced(D, D)),
    "log_softmax": Case([((D, T), 1)], lambda x: x.log_softmax(1), reduced(D, D)),
    "softmax of rows": Case([ROWS], lambda x: x.softmax(1), none),
    "layer_norm": Case(
        [((D, T), 1), ((T,), 0), ((T,), 0)],
        lambda x, w, b: F.layer_norm(x, (T,), w, b),
        reduced(D, D),
    ),
    "layer_norm of rows": Case(
        [ROWS, ((D,), R), ((D,), R)], lambda x, w, b: F.layer_norm(x, (D,), w, b), none
    ),
    "rms_norm of rows": Case([ROWS, ((D,), R)], lambda x, w: F.rms_norm(x, (D,), w), none),
    "rms_norm": Case([((D, T), 1), ((T,), 0)], lambda x, w: F.rms_norm(x, (T,), w), reduced(D)),
}
INDEXED = {
    "embedding": Case([ROWS, indexes(7)], lambda w, i: F.embedding(i, w), reduced(7 * D)),
    "embedding by width": Case([COLUMNS, indexes(7)], lambda w, i: F.embedding(i, w), none),
    "embedding of cut indexes": Case(
        [((T, D), R), (np.arange(T), 0)], lambda w, i: F.embedding(i, w), none
    ),
    "positions of a short sequence": Case(
        [((T, D), R), (np.arange(T), 0), ((T // 5, D), 0)],
        lambda w, i, x: F.embedding(i[: T // 5], w) + x,
        gathered(T // 5),
    ),
    "gather": Case([ROWS, indexes(5, D)], lambda x, i: x.gather(0, i), reduced(5 * D)),
    "index_select": Case([ROWS, indexes(5)], lambda x, i: x.index_select(0, i), reduced(5 * D)),
    "index": Case([ROWS, indexes(5, first=-T)], lambda x, i: x[i], reduced(5 * D)),
    "index between": Case(
        [((7, T, D), 1), indexes(2, 3)], lambda x, i: x[:, i], reduced(7 * 6 * D)
    ),
    "several indexes": Case(
        [ROWS, indexes(5, first=-T), (np.arange(5), R)], lambda x, i, j: x[i, j], reduced(5)
    ),
    "several indexes, columns": Case(
        [COLUMNS, indexes(5), (np.arange(5) - 3, R)], lambda x, i, j: x[i, j], reduced(5)
    ),
    "indexes apart": Case(
        [((T, 7, D), 0), indexes(5), (np.arange(5), R)], lambda x, i, j: x[i, :, j], reduced(7 * 5)
    ),
    "the score of each row's class": Case(
        [ROWS, (np.arange(T), R), (np.arange(T) % D, 0)],
        lambda x, rows, classes: x[rows, classes],
        together(exchanged(T), reduced(T)),
    ),
    "index of others": Case([COLUMNS, indexes(5)], lambda x, i: x[i], none),
    "scatter": Case([ROWS, indexes(1, D)], lambda x, i: x.scatter(0, i, 2.0), none),
    "scatter_add": Case(
        [ROWS, indexes(5, D), ((5, D), R)], lambda x, i, s: x.scatter_add(0, i, s), none
    ),
    "index_add": Case([ROWS, indexes(5), ((5, D), R)], lambda x, i, s: x.index_add(0, i, s), none),
    "index_add of cut rows": Case(
        [((H, D), R), (np.arange(T) % H, 0), ROWS],
        lambda x, i, s: x.index_add(0, i, s),
        reduced(H * D),
    ),
    "scatter_add of cut rows": Case(
        [((H, D), R), (np.arange(T * D).reshape(T, D) % H, 0), ROWS],
        lambda x, i, s: x.scatter_add(0, i, s),
        reduced(H * D),
    ),
    "index_add of contributions": Case(
        [((5, T), 1), ((T, D), 0), ((H, D), R), (np.arange(5), R)],
        lambda x, w, y, i: y.index_add(0, i, x @ w),
        reduced(5 * D),
    ),
    "index_put": Case([ROWS, indexes(5), ((5, D), R)], lambda x, i, v: x.index_put((i,), v), none),
    "index_put, added": Case(
        [ROWS, indexes(5), ((5, D), R)], lambda x, i, v: x.index_put((i,), v, True), none
    ),
    "index_put of cut rows": Case(
        [((H, D), R), (np.arange(T) % H, 0), ROWS],
        lambda x, i, v: x.index_put((i,), v, True),
        reduced(H * D),
    ),
    "index_put of cut columns": Case(
        [((T, D), R), indexes(5), ((5, D), 1)], lambda x, i, v: x.index_put((i,), v), none
    ),
    "one of several": Case(
        [ROWS, indexes(5), (np.arange(5), R), ((5,), R)],
        lambda x, i, j, v: x.index_put((i, j), v),
        none,
    ),
    "index_copy": Case(
        [ROWS, (np.arange(5) * 7, R), ((5, D), R)], lambda x, i, v: x.index_copy(0, i, v), none
    ),
    "bincount": Case(
        [(np.arange(T) % H, 0)], lambda i: gt.bincount(i, minlength=H), reduced(H, H, H)
    ),
    "tril": Case([(SQUARE, 0)], lambda x: x.tril(1), none),
}
VIEWS = {
    "merge": Case([((H, T, D), 0)], lambda x: x.reshape(H * T, D), none),
    "split": Case([((T, D), 1)], lambda x: x.reshape(T, H, D // H), none),
    "heads": Case([((4, T, D), 2)], lambda x: x.view(4, T, H, D // H).transpose(1, 2), none),
    "permute": Case([((4, T, D), 2)], lambda x: x.permute(2, 0, 1), none),
    "expand": Case([((T, 1), 0)], lambda x: x.expand(3, T, D), none),
    "cat": Case([ROWS, ROWS], lambda x, y: gt.cat([x, y], 0), none),
    "stack": Case([ROWS, ROWS], lambda x, y: gt.stack([x, y], 1), none),
    "slice": Case([ROWS], lambda x: x[100:], none),
    "every third": Case([ROWS], lambda x: x[1::3], none),
    "split in three": Case([COLUMNS], lambda x: x.split(D // 3, 1)[1], none),
    "pad": Case([ROWS], lambda x: F.pad(x, (0, 0, 5, 7)), none),
    "pad and crop": Case([ROWS], lambda x: F.pad(x, (0, 0, -5, 7), value=2.0), none),
    "roll": Case([ROWS], lambda x: x.roll(10, 0), none),
    "flip": Case([ROWS], lambda x: x.flip(0), none),
    "repeat": Case([ROWS], lambda x: x.repeat(2, 3), none),
    "diagonal": Case([((T, T + 3), 0)], lambda x: x.diagonal(2) * 2, none),
    "diagonal of columns": Case([((T, T + 3), 1)], lambda x: x.diagonal(-2) * 2, none),
    "trace": Case([(SQUARE, 0)], lambda x: x.trace(), reduced(1)),
    "diagonal written": Case([((T, T), 0), ((T,), R)], lambda x, y: x.diagonal_scatter(y, 0), none),
    "neighbours": Case([ROWS], lambda x: x[100:] + x[:-100], exchanged(100 * D)),
    "uneven to even": Case([ROWS], lambda x: gt.distribute(x[100:], dim=0), exchanged(100 * D)),
    "one row": Case([ROWS], lambda x: x[3] * 2, reduced(D)),
}
LOSSES = {
    "classes": Case([((D, T), 1), (np.arange(D) * 6, R)], F.cross_entropy, reduced(D, 2 * D)),
    "probabilities": Case(
        [((D, T), 1), ((D, T), 1)],
        lambda x, y: F.cross_entropy(x, y.softmax(1).detach()),
        reduced(D, D, D, D, 1),
    ),
    "probabilities, each": Case(
        [((D, T), 1), ((D, T), 1)],
        lambda x, y: F.cross_entropy(x, y.abs(), reduction="none"),
        reduced(D, D, D),
    ),
}
ATTENTION = {
    "heads": Case([((2, H, 64, 16), 1)] * 3, F.scaled_dot_product_attention, none),
    "batch": Case([((4, H, 64, 16), 0)] * 3, F.scaled_dot_product_attention, none),
    "queries": Case(
        [((2, H, 64, 16), 2), ((2, H, 64, 16), R), ((2, H, 64, 16), R)],
        F.scaled_dot_product_attention,
        none,
    ),
    "dropped weights": Case(
        [((4, H, 64, 16), 0)] * 3, lambda *x: F.scaled_dot_product_attention(*x, None, 0.1), none
    ),
    "dropped weights of queries": Case(
        [((2, H, 64, 16), 2), ((2, H, 64, 16), R), ((2, H, 64, 16), R)],
        lambda *x: F.scaled_dot_product_attention(*x, None, 0.1),
        none,
    ),
    # One instruction over all keys of a head; where values have another width, products and a
    # softmax, which reduce what the members have of each row.
    "keys": Case(
        [((2, H, 64, 16), R), ((2, H, 501, 16), 2), ((2, H, 501, 16), 2)],
        F.scaled_dot_product_attention,
        replicated(2 * 2 * H * 501 * 16),
    ),
    "keys of products": Case(
        [((2, H, 64, 16), R), ((2, H, 501, 16), 2), ((2, H, 501, 8), 2)],
        F.scaled_dot_product_attention,
        reduced(2 * H * 64, 2 * H * 64, 2 * H * 64 * 8),
    ),
}
RANDOM = {
    "dropout": Case([ROWS], lambda x: F.dropout(x, 0.3), none),
    "like": Case([ROWS], lambda x: gt.rand_like(x) + x, none),
    "normal_": Case([ROWS], lambda x: (x * 1).normal_() + x, none),
    "uniform_": Case([ROWS], lambda x: (x * 1).uniform_() + x, none),
    "random_": Case([ROWS], lambda x: (x * 1).random_(0, 9) + x, none),
    "bernoulli_": Case([ROWS], lambda x: (x * 1).bernoulli_(0.3) + x, none),
    "exponential_": Case([ROWS], lambda x: (x * 1).exponential_() + x, none),
}
FAMILIES = {
    "elementwise": ELEMENTWISE,
    "products": PRODUCTS,
    "reductions": REDUCTIONS,
    "normalized": NORMALIZED,
    "indexed": INDEXED,
    "views": VIEWS,
    "losses": LOSSES,
    "attention": ATTENTION,
    "random": RANDOM,
}
NAMES = [(family, name) for family, cases in FAMILIES.items() for name in cases]


@pytest.mark.parametrize(("family", "name"), NAMES)
def test_a_case_moves_what_it_may(workers, family, name):
    check(FAMILIES[family][name], workers)


# ---- from one layout to another ----

HEADS = ((5, 3 * H * D), 1)  # a fused projection: query, key, value


def with_layout(x: gt.Tensor, placements: str, mesh: object) -> gt.Tensor:
    """`x` over a mesh of workers, as the text says."""
    return _core.distribute(x, layout=f"{placements}@{mesh}".replace(" ", ""))


def test_contributions_are_cut_before_they_are_reduced(workers):
    if workers < 4:
        pytest.skip("two by two workers")
    mesh = [[0, 1], [2, 3]]
    x = with_layout(values((T, D), 0), "shard(0),replicate", mesh)
    total, bytes_moved = moved(lambda: with_layout(x.sum(0), "replicate,shard(0)", mesh))
    assert bytes_moved <= 2 * reduced(D // 2)(2)  # two lines, of each half the columns
    np.testing.assert_allclose(total.numpy(), x.numpy().sum(0))


@pytest.mark.parametrize("to", ["shard(1)", "shard(0)"])
@pytest.mark.parametrize("back", [False, True])
def test_blocks_are_exchanged(workers, to, back):
    (shape, _), mesh = HEADS, list(range(workers))
    ways = ["shard(1,blocks=3)", to]
    start, end = reversed(ways) if back else ways
    x = values(shape, 0)
    placed = with_layout(x, start, mesh)
    result, bytes_moved = moved(lambda: with_layout(placed, end, mesh))
    assert bytes_moved <= WIDTH * x.numel()  # to gather moves this to each of the others
    np.testing.assert_array_equal(result.numpy(), x.numpy())


def test_contributions_are_reduced_into_blocks(workers):
    (_, width), mesh = HEADS[0], list(range(workers))
    x = with_layout(values((T, width), 0), "shard(0)", mesh)
    result, bytes_moved = moved(lambda: with_layout(x.sum(0), "shard(0,blocks=3)", mesh))
    assert bytes_moved <= (workers - 1) * WIDTH * width
    np.testing.assert_allclose(result.numpy(), x.numpy().sum(0))


QKV = {
    "split": lambda x: x.split(H * D, 1),
    "chunk": lambda x: x.chunk(3, dim=1),
    "slices": lambda x: (x[:, : H * D], x[:, H * D : 2 * H * D], x[:, 2 * H * D :]),
}


@pytest.mark.parametrize("taken", QKV)
def test_the_gradients_of_blocks_lie_as_the_blocks(workers, taken):
    """Query, key and value of one product: the gradient of its weight is cut like the weight."""
    (_, width), mesh, rows = HEADS[0], list(range(workers)), 7
    operand, start = values((rows, D), 0), values((width, D), 1)

    def gradient(weight: gt.Tensor) -> gt.Tensor:
        query, key, value = QKV[taken](F.linear(with_layout(operand, "replicate", mesh), weight))
        (query * key.tanh() + value.square()).sum().backward()
        assert weight.grad is not None
        return weight.grad

    weight = with_layout(start, "shard(0,blocks=3)", mesh).requires_grad_()
    result, bytes_moved = moved(lambda: gradient(weight))
    assert result.layout == weight.layout
    assert bytes_moved <= (workers - 1) * WIDTH * rows * D  # the input comes to all
    np.testing.assert_allclose(result.numpy(), gradient(start.requires_grad_()).numpy(), rtol=1e-9)


@pytest.mark.parametrize(
    "draw", [gt.randn_like, gt.rand_like, gt.zeros_like], ids=lambda f: f.__name__
)
def test_blocks_are_drawn_where_they_lie(workers, draw):
    (shape, _), mesh = HEADS, list(range(workers))
    like = with_layout(values(shape, 0), "shard(1,blocks=3)", mesh)
    gt.manual_seed(5)
    drawn, bytes_moved = moved(lambda: draw(like))
    assert bytes_moved == 0
    assert drawn.layout == like.layout
    gt.manual_seed(5)
    np.testing.assert_array_equal(drawn.numpy(), draw(gt.zeros(shape, dtype=like.dtype)).numpy())


LARGE = {  # of a megabyte and more: what waits for its first use
    "randn": (lambda: gt.randn(768, 384), "shard(1,blocks=2)"),
    "randint": (lambda: gt.randint(0, 9, (768, 384)), "shard(1,blocks=2)"),
    "arange": (lambda: gt.arange(768 * 384), "replicate"),
}


@pytest.mark.parametrize(("make", "along"), LARGE.values(), ids=LARGE)
def test_large_blocks_are_made_where_they_lie(workers, make, along):
    mesh, placements = list(range(workers)), "shard(0,blocks=3)"
    if workers == 4:
        mesh, placements = [[0, 1], [2, 3]], f"{placements},{along}"
    gt.manual_seed(5)
    result, bytes_moved = moved(lambda: with_layout(make(), placements, mesh))
    assert bytes_moved == 0
    gt.manual_seed(5)
    np.testing.assert_array_equal(result.numpy(), make().numpy())
