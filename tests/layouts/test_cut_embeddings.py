"""A vocabulary cut over workers: look-ups, losses and their bytes are those that were promised.

PyTorch, or GT on one worker, is the oracle. Bytes are the dispatcher's count: an all-reduce of b
bytes over w workers moves 2 (w - 1) b of them.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest

torch = pytest.importorskip("torch")

from torch_session import torch_workers  # noqa: E402

import gt  # noqa: E402
from gt import _core  # noqa: E402
from gt.nn import functional  # noqa: E402

WORKERS = (2, 3, 4)
VOCABULARY, VOCABULARY_LARGE = 211, 50_257  # divisible by none of the numbers of workers
STEPS, STEPS_SLOW = 50, 2_000
SLOW_SECONDS_MAX = 3_600
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6}

Cut = int | str | None  # a dimension, on every worker, or on one


@pytest.fixture(scope="module", params=WORKERS, ids=lambda count: f"{count} workers")
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    """A session with that many torch workers on the CPU."""
    with torch_workers(request.param):
        yield request.param


@pytest.fixture
def draw() -> "torch.Generator":
    return torch.Generator().manual_seed(0)


def with_layout(x: "torch.Tensor", cut: Cut) -> gt.Tensor:
    """A leaf with x's values in that layout."""
    here = gt.from_numpy(x.detach().numpy().copy())
    if cut is not None:
        here = gt.distribute(here, None if cut == "all" else cut)
    return here.detach().requires_grad_(x.requires_grad)


def close(ours: gt.Tensor, theirs: "torch.Tensor", tolerance: float) -> None:
    actual = torch.from_numpy(ours.detach().numpy().copy())
    torch.testing.assert_close(
        actual, theirs.detach(), rtol=tolerance, atol=tolerance, equal_nan=True
    )


def moved(act: Callable[[], object]) -> int:
    """Bytes between workers while `act` is planned."""
    before = _core.stats()["moved_bytes"]
    act()
    return _core.stats()["moved_bytes"] - before


def check(
    ours: Callable[..., gt.Tensor],
    theirs: "Callable[..., torch.Tensor]",
    operands: "Sequence[torch.Tensor]",
    cuts: Sequence[Cut],
) -> None:
    """Values and gradients of `ours` with operands of these placements are those of `theirs`."""
    tolerance = TOLERANCE[operands[0].dtype]
    here = [with_layout(x, cut) for x, cut in zip(operands, cuts, strict=True)]
    there = [x.detach().clone().requires_grad_(x.requires_grad) for x in operands]
    out, expected = ours(*here), theirs(*there)
    close(out, expected, tolerance)
    if not expected.requires_grad:
        return
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(expected)
    out.backward(with_layout(weight, None))
    expected.backward(weight)
    for mine, other in zip(here, there, strict=True):
        if other.requires_grad:
            close(mine.grad, other.grad, tolerance)


def same(call: Callable[..., object]) -> dict[str, Callable[..., object]]:
    return {"ours": call, "theirs": call}


# ---- look-ups ----


def numbers(draw: "torch.Generator", *shape: int) -> "torch.Tensor":
    return torch.randn(shape, generator=draw, dtype=torch.float64).requires_grad_()


def classes(draw: "torch.Generator", below: int, *shape: int) -> "torch.Tensor":
    return torch.randint(0, below, shape, generator=draw)


@pytest.mark.parametrize("padding", [None, 3, -1])
@pytest.mark.parametrize("cuts", list(itertools.product([0, 1, None], [0, 1, "all"])), ids=str)
def test_embedding(workers, draw, cuts, padding):
    check(
        lambda w, i: functional.embedding(i, w, padding_idx=padding),
        lambda w, i: torch.nn.functional.embedding(i, w, padding_idx=padding),
        [numbers(draw, 11, 4), classes(draw, 11, 3, 5)],
        cuts,
    )


def test_a_table_smaller_than_the_workers(workers, draw):
    check(
        lambda w, i: functional.embedding(i, w),
        lambda w, i: torch.nn.functional.embedding(i, w),
        [numbers(draw, 1, 4), classes(draw, 1, 5)],
        [0, "all"],
    )


def test_embedding_moves_one_all_reduce_of_its_output(workers, draw):
    table = with_layout(numbers(draw, 501, 64), 0)
    indices = with_layout(classes(draw, 501, 8), "all")
    bytes_moved = moved(lambda: functional.embedding(indices, table).sum().item())
    assert bytes_moved <= 2 * (workers - 1) * 8 * 64 * 8


@pytest.mark.parametrize("dim", range(3))
@pytest.mark.parametrize("cuts", list(itertools.product(range(3), [0, 1, 2, "all"])), ids=str)
def test_gather(workers, draw, dim, cuts):
    x = numbers(draw, 7, 5, 3)
    check(**same(lambda a, i: a.gather(dim, i)), operands=[x, classes(draw, x.shape[dim], 7, 5, 3)],
          cuts=cuts)  # fmt: skip


@pytest.mark.parametrize("dim", range(3))
@pytest.mark.parametrize("cuts", list(itertools.product(range(3), [0, "all"])), ids=str)
def test_index_select(workers, draw, dim, cuts):
    x = numbers(draw, 7, 5, 3)
    check(**same(lambda a, i: a.index_select(dim, i)), operands=[x, classes(draw, x.shape[dim], 4)],
          cuts=cuts)  # fmt: skip


LOOKUPS = {
    "the first": lambda i, j: (i,),
    "between": lambda i, j: (slice(None), j),
    "two": lambda i, j: (i, j),
    "two, stretched": lambda i, j: (i[:, None], j[None]),
    "the last two": lambda i, j: (slice(None), j, j - 5),
    "apart": lambda i, j: (i, slice(None), j),
}


@pytest.mark.parametrize("pick", LOOKUPS)
@pytest.mark.parametrize("cut", range(3))
@pytest.mark.parametrize("indexes", [0, "all"])
def test_lookups_in_several_dimensions(workers, draw, pick, cut, indexes):
    x, i, j = numbers(draw, 7, 5, 5), classes(draw, 7, 4) - 7, classes(draw, 5, 4)
    check(**same(lambda x, i, j: x[LOOKUPS[pick](i, j)]), operands=[x, i, j],
          cuts=[cut, indexes, "all"])  # fmt: skip
    part = x.detach()[LOOKUPS[pick](i, j)]
    values = numbers(draw, *part.shape)

    def written(x, i, j, values, accumulate=True):
        indices = [None if isinstance(k, slice) else k for k in LOOKUPS[pick](i, j)]
        put = torch.ops.aten.index_put if isinstance(x, torch.Tensor) else gt.Tensor.index_put
        return put(x, indices, values, accumulate)

    for rest in ("all", 0, part.dim() - 1):
        check(**same(written), operands=[x, i, j, values], cuts=[cut, indexes, "all", rest])
        # Each place once: an order of writes would be needed.
        check(**same(functools.partial(written, accumulate=False)),
              operands=[x, torch.arange(4) - 7, torch.arange(4), values],
              cuts=[cut, indexes, "all", rest])  # fmt: skip


@pytest.mark.parametrize("dim", range(3))
@pytest.mark.parametrize("cut", [0, 1, 2, "all"])
def test_what_is_added_is_cut_as_its_indexes(workers, draw, dim, cut):
    x, larger = numbers(draw, 7, 5, 3), numbers(draw, 9, 9, 9).detach()
    shape = [8 if at == dim else n for at, n in enumerate(x.shape)]
    index, part = classes(draw, 3, *shape), numbers(draw, *shape)
    # PyTorch has no gradient of a source that is larger than its index.
    for one, source in ((x, part), (x.detach(), larger)):
        check(**same(lambda a, i, s: a.scatter_add(dim, i, s)), operands=[one, index, source],
              cuts=[cut, dim, dim])  # fmt: skip
    rows = classes(draw, x.shape[dim], 8)
    check(**same(lambda a, i, s: a.index_add(dim, i, s)), operands=[x, rows, part],
          cuts=[cut, 0, dim])  # fmt: skip


@pytest.mark.parametrize("dim", range(3))
@pytest.mark.parametrize("cut", range(3))
@pytest.mark.parametrize("sources", ["whole", "alike"])
def test_writes(workers, draw, dim, cut, sources):
    x, source = numbers(draw, 7, 5, 3), numbers(draw, 7, 5, 3)
    index = torch.rand(7, 5, 3, generator=draw).argsort(dim)  # none twice: an order of writes
    rest = cut if sources == "alike" else "all"
    for call in (lambda a, i, s: a.scatter(dim, i, s), lambda a, i, s: a.scatter_add(dim, i, s)):
        check(**same(call), operands=[x, index, source], cuts=[cut, rest, rest])
    check(**same(lambda a, i: a.scatter(dim, i, 2.5)), operands=[x, index], cuts=[cut, rest])
    rows = classes(draw, x.shape[dim], 4)
    part = source.detach().narrow(dim, 0, 1).repeat_interleave(4, dim).requires_grad_()
    check(**same(lambda a, i, s: a.index_add(dim, i, s)), operands=[x, rows, part],
          cuts=[cut, "all", rest])  # fmt: skip


def test_writes_into_a_cut_table_move_nothing(workers, draw):
    table, index, source = numbers(draw, 11, 4), classes(draw, 11, 6, 4), numbers(draw, 6, 4)
    here = [with_layout(table, 0), with_layout(index, "all"), with_layout(source, "all")]
    assert moved(lambda: here[0].scatter_add(0, here[1], here[2])) == 0
    assert moved(lambda: here[0].index_add(0, here[1][:, 0], here[2])) == 0


OUTSIDE = "index out of range in self|is out of bounds"
MISTAKES = {
    "embedding": lambda x, i: functional.embedding(i, x),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i.reshape(-1, 1)),
    "scatter": lambda x, i: x.scatter(0, i.reshape(-1, 1), 0.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i.reshape(-1, 1), x[:2, :1]),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index": lambda x, i: x[i - 20 * (i < 0), 1],
    "index_put": lambda x, i: x.index_put((i - 20 * (i < 0),), x[:2]),
    "nll_loss": lambda x, i: functional.nll_loss(x.t()[:2], i),
    "cross_entropy": lambda x, i: functional.cross_entropy(x.t()[:2], i),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("index", [[2, 99], [-1, 3], [3, 11]], ids=str)
def test_an_index_outside_of_the_whole_raises_what_it_does_there(workers, draw, name, index):
    x = numbers(draw, 11, 4).detach()
    errors = []
    for cut in (None, 0):
        with pytest.raises((IndexError, RuntimeError), match=OUTSIDE) as error:
            MISTAKES[name](with_layout(x, cut), gt.tensor(index)).numpy()
        # Text after the semicolon names the operands with their layouts, which differ.
        errors.append((type(error.value), str(error.value).partition(";")[0]))
    assert errors[0] == errors[1]


# ---- losses ----

REDUCTIONS = ("none", "mean", "sum")


def scores(draw: "torch.Generator", *shape: int, dtype: "torch.dtype") -> "torch.Tensor":
    return (3 * torch.randn(shape, generator=draw, dtype=dtype)).requires_grad_()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [None, "all", 0], ids=lambda cut: f"weight {cut}")
@pytest.mark.parametrize("cuts", list(itertools.product([0, 1, None], [0, "all"])), ids=str)
def test_nll_loss(workers, draw, cuts, reduction, weighted):
    x, target = scores(draw, 6, 11, dtype=torch.float64), classes(draw, 11, 6)
    target[2] = -100
    weight = torch.rand(11, generator=draw, dtype=torch.float64) + 0.5
    ours = None if weighted is None else with_layout(weight, weighted)
    theirs = None if weighted is None else weight
    check(
        lambda x, t: functional.nll_loss(x, t, ours, reduction=reduction),
        lambda x, t: torch.nn.functional.nll_loss(x, t, theirs, reduction=reduction),
        [x, target],
        cuts,
    )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [None, "all", 0], ids=lambda cut: f"weight {cut}")
@pytest.mark.parametrize(
    "shape_and_cut",
    [((6, 11), 0), ((6, 11), 1), ((11,), 0)] + [((2, 11, 3), cut) for cut in range(3)],
    ids=str,
)
def test_cross_entropy(workers, draw, shape_and_cut, weighted, smoothing, dtype):
    shape, cut = shape_and_cut
    class_dim = 0 if len(shape) == 1 else 1
    x = scores(draw, *shape, dtype=dtype)
    target = classes(draw, 11, *(n for dim, n in enumerate(shape) if dim != class_dim))
    if target.ndim:
        target.view(-1)[1] = 4  # ignored
    weight = torch.rand(11, generator=draw, dtype=dtype) + 0.5
    ours = None if weighted is None else with_layout(weight, weighted)
    theirs = None if weighted is None else weight
    options = {"ignore_index": 4, "label_smoothing": smoothing}
    for reduction in REDUCTIONS:
        check(
            functools.partial(
                functional.cross_entropy, weight=ours, reduction=reduction, **options
            ),
            functools.partial(
                torch.nn.functional.cross_entropy, weight=theirs, reduction=reduction, **options
            ),
            [x, target],
            [cut, None],
        )


def test_probabilities_as_targets(workers, draw):
    x, target = (scores(draw, 6, 11, dtype=torch.float64) for _ in range(2))
    target = target.detach().softmax(1).requires_grad_()
    for cuts in ([1, None], [1, 1], [0, 0]):
        check(functional.cross_entropy, torch.nn.functional.cross_entropy, [x, target], cuts)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_moves_three_numbers_a_token(workers, draw, smoothing):
    """The maximum, the sum of exponentials, the target's score; the sum of scores to smooth."""
    tokens, per_token = 32, 3 if smoothing == 0.0 else 4
    x = with_layout(scores(draw, tokens, VOCABULARY, dtype=torch.float32), 1)
    target = with_layout(classes(draw, VOCABULARY, tokens), "all")
    loss = []
    bytes_moved = moved(
        lambda: loss.append(functional.cross_entropy(x, target, label_smoothing=smoothing))
    )
    assert bytes_moved == 2 * (workers - 1) * tokens * per_token * 4
    one = with_layout(torch.ones(()), "all")
    assert moved(lambda: loss[0].backward(one)) == 0
    assert _core.layout(x.grad).startswith("shard(1)")


def test_every_target_ignored(workers, draw):
    x, target = scores(draw, 6, 11, dtype=torch.float64), torch.full((6,), -100)
    out = functional.cross_entropy(with_layout(x, 1), with_layout(target, None))
    assert torch.isnan(torch.tensor(out.item()))


@pytest.mark.parametrize("dtype", [gt.bfloat16, gt.float16], ids=str)
def test_half_precision_is_rounded_once(workers, draw, dtype):
    x = with_layout(scores(draw, 6, 11, dtype=torch.float32), None).detach().to(dtype)
    target = with_layout(classes(draw, 11, 6), None)
    whole = functional.cross_entropy(x, target)
    cut = functional.cross_entropy(gt.distribute(x, 1), target)
    assert cut.dtype == whole.dtype == dtype
    close(cut.float(), torch.from_numpy(whole.float().numpy().copy()), 1e-2)


def train(
    workers: int, vocabulary: int, steps: int, draw: "torch.Generator"
) -> Iterator[tuple[float, float]]:
    """The loss with the vocabulary cut and on one worker, from the same parameters, each step."""
    width, tokens = 16, 24
    table = with_layout(torch.randn(vocabulary, width, generator=draw).requires_grad_(), 0)
    head = with_layout((0.1 * torch.randn(vocabulary, width, generator=draw)).requires_grad_(), 0)
    optimizer = gt.optim.AdamW([table, head], lr=1e-2)

    def loss(table: gt.Tensor, head: gt.Tensor, words: gt.Tensor, following: gt.Tensor) -> object:
        hidden = functional.embedding(words, table).tanh()
        return functional.cross_entropy(functional.linear(hidden, head), following)

    for _ in range(steps):
        words, following = (classes(draw, vocabulary, tokens) for _ in range(2))
        following[0] = -100
        cut = loss(table, head, with_layout(words, "all"), with_layout(following, "all"))
        plain = [gt.tensor(x.detach().numpy()) for x in (table, head)]
        whole = loss(*plain, with_layout(words, None), with_layout(following, None))
        yield cut.item(), whole.item()
        optimizer.zero_grad()
        cut.backward()
        optimizer.step()
    for parameter in (table, head):
        assert _core.layout(parameter.detach()).startswith("shard(0)")


def worst_difference(workers: int, steps: int, draw: "torch.Generator") -> float:
    """Largest relative difference of the losses of a step; each must be small enough."""
    losses = list(train(workers, VOCABULARY_LARGE, steps, draw))
    for cut, whole in losses:
        assert cut == pytest.approx(whole, rel=1e-6)
    return max(abs(cut - whole) / whole for cut, whole in losses)


def test_training_over_a_cut_vocabulary(workers, draw):
    worst_difference(workers, STEPS, draw)


@pytest.mark.slow
@pytest.mark.timeout(SLOW_SECONDS_MAX)
def test_training_over_a_cut_vocabulary_for_long(workers, draw, record_property):
    record_property("workers", workers)
    record_property("difference", worst_difference(workers, STEPS_SLOW, draw))


# ---- along a cut dimension ----

ALONG = {
    "cumsum": lambda x, dim: x.cumsum(dim),
    "topk": lambda x, dim: x.topk(1, dim=dim)[0],
    "least": lambda x, dim: x.topk(2, dim=dim, largest=False)[0],
    "sort": lambda x, dim: x.sort(dim)[0],
    "flip": lambda x, dim: x.flip(dim),
    "flip twice": lambda x, dim: (x.flip(dim).cumsum(dim) * x).flip(dim),
    "diagonal": lambda x, dim: x.diagonal(1, dim, (dim + 1) % 3),
    "softmax": lambda x, dim: x.softmax(dim),
}


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("cut", range(3))
@pytest.mark.parametrize("dim", range(3))
def test_along(workers, draw, name, cut, dim):
    x = numbers(draw, 13, 9, 5)
    check(**same(lambda x: ALONG[name](x, dim)), operands=[x], cuts=[cut])


@pytest.mark.parametrize("cut", range(3))
def test_places(workers, draw, cut):
    x = numbers(draw, 13, 9, 5).detach()
    check(**same(lambda x: x.topk(3, dim=cut)[1]), operands=[x], cuts=[cut])
    check(**same(lambda x: x.argmax()), operands=[x], cuts=[cut])
    check(**same(lambda x: x.argmin()), operands=[x], cuts=[cut])


def test_scans_move_totals_only(workers, draw):
    x = with_layout(numbers(draw, 400, 3), 0)
    assert moved(lambda: x.cumsum(0)) <= (workers - 1) * workers * 3 * 8
    assert moved(lambda: x.flip(0)) == 0


def test_infinities_pass_through_a_scan(workers):
    x = torch.tensor([1.0, float("inf"), 2.0, 3.0, float("-inf"), 4.0], dtype=torch.float64)
    check(**same(lambda x: x.cumsum(0)), operands=[x], cuts=[0])


PICKS = {
    "middle": lambda x, a, b: x[:, a],
    "apart": lambda x, a, b: x[a, :, b],
    "together": lambda x, a, b: x[:, a, b],
    "first": lambda x, a, b: x[a],
    "put": lambda x, a, b: x.index_put((a,), x[:1].expand(4, 5, 3), accumulate=True),
}


@pytest.mark.parametrize("name", PICKS)
@pytest.mark.parametrize(
    "cuts", list(itertools.product([0, 1, 2], [0, "all"], [0, "all"])), ids=str
)
def test_advanced_indexing(workers, draw, name, cuts):
    x = numbers(draw, 7, 5, 3)
    places = [classes(draw, 5, 4) - 2, classes(draw, 3, 2, 1)]
    check(**same(PICKS[name]), operands=[x, *places], cuts=cuts)


# ---- attention ----


def attention(**options: object) -> dict[str, Callable[..., object]]:
    return {
        "ours": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **options),
        "theirs": lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, **options
        ),
    }


def heads(draw: "torch.Generator", count: int, keys: int) -> "list[torch.Tensor]":
    shapes = [(2, count, 6, 4), (2, keys, 6, 4), (2, keys, 6, 4)]  # [b, h, t, k]
    return [numbers(draw, *shape) for shape in shapes]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [12, 4], ids=["heads", "grouped"])
def test_attention_over_cut_heads_moves_nothing(workers, draw, causal, keys):
    if keys % workers:
        pytest.skip("a group of heads would be cut")
    operands = heads(draw, 12, keys)
    form = attention(is_causal=causal, enable_gqa=keys != 12)
    check(**form, operands=operands, cuts=[1, 1, 1])
    here = [with_layout(x, 1) for x in operands]
    assert moved(lambda: form["ours"](*here)) <= 2 * 6 * 6 * 8 * (workers - 1)  # a mask at most


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cuts", [(0, 0, 0), (2, "all", "all"), ("all", 2, 2), (2, 2, 2)], ids=str)
def test_attention_over_cut_batches_and_sequences(workers, draw, causal, cuts):
    check(**attention(is_causal=causal), operands=heads(draw, 3, 3), cuts=cuts)
