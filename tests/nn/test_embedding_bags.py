"""torch.embedding_bag by its four results: every form, dtype and layout gives PyTorch's."""

import itertools
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from harness.convert import from_gt, to_gt  # noqa: E402
from torch_session import torch_workers  # noqa: E402

import gt  # noqa: E402

MODES = {0: "sum", 1: "mean", 2: "max"}
INDICES, OFFSETS = [0, 2, 1, 1, 0], [0, 2, 2]
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.fixture(scope="module", autouse=True)
def torch_worker_on_the_cpu() -> Iterator[None]:
    """One worker for all cases."""
    with torch_workers(1):
        yield


def equal(ours: gt.Tensor, theirs: torch.Tensor) -> None:
    mine = from_gt(ours.detach())
    assert mine.dtype == theirs.dtype
    assert mine.shape == theirs.shape
    bound = 0.02 if theirs.dtype in {torch.float16, torch.bfloat16} else 1e-6
    torch.testing.assert_close(mine, theirs.detach(), rtol=bound, atol=bound, equal_nan=True)


def check(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    weights: torch.Tensor | None,
    *rest: object,
    by_frequency: bool = False,
) -> None:
    """The four results, and the gradients by table and weights.

    Of a table that requires a gradient, PyTorch's sums have zeros of another size in the last two.
    """
    mode, *last = rest
    theirs = [x.clone() for x in (weight, weights) if x is not None]
    ours = [to_gt(x) for x in theirs]
    for x in (*theirs, *ours):
        x.requires_grad_()
    arguments = (indices, offsets, by_frequency, mode, False)
    expected = torch.embedding_bag(theirs[0], *arguments, *(theirs[1:] or [None]), *last)
    plain = torch.embedding_bag(weight, *arguments, weights, *last)
    made = gt.embedding_bag(
        ours[0], to_gt(indices), to_gt(offsets), by_frequency, mode, False,
        *(ours[1:] or [None]), *last,
    )  # fmt: skip
    for mine, other in zip(made, plain, strict=True):
        equal(mine, other)
    if expected[0].numel():
        grads = torch.arange(float(expected[0].numel())).to(weight.dtype).view(expected[0].shape)
        expected[0].backward(grads)
        made[0].backward(to_gt(grads))
        for mine, other in zip(ours, theirs, strict=True):
            equal(mine.grad, other.grad)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_forms(mode, dtype):
    generator = torch.Generator().manual_seed(1)
    forms = itertools.product((1, 3, 8), (None, 1, -1), (False, True), (False, True))
    for width, padding, is_weighted, ends in forms:
        if is_weighted and mode:
            continue
        table = torch.randn(4, width, generator=generator).to(dtype)
        weights = torch.rand(5, generator=generator).to(dtype) if is_weighted else None
        offsets = torch.tensor([*OFFSETS, 5] if ends else OFFSETS)
        rest = (ends,) if padding is None else (ends, padding)
        check(table, torch.tensor(INDICES), offsets, weights, mode, *rest)


@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
@pytest.mark.parametrize(
    "kinds", [*itertools.product((torch.int32, torch.int64), repeat=2)], ids=str
)
def test_integers_of_two_dtypes(kinds, mode):
    indices, offsets = torch.tensor(INDICES, dtype=kinds[0]), torch.tensor(OFFSETS, dtype=kinds[1])
    check(torch.randn(4, 3), indices, offsets, None, mode)


@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
@pytest.mark.parametrize(
    ("indices", "offsets"), [([], []), ([], [0]), ([], [0, 0]), ([1], [0]), ([1, 2], [0, 2])]
)
def test_bags_of_nothing(indices, offsets, mode):
    whole = torch.tensor(indices, dtype=torch.int64), torch.tensor(offsets, dtype=torch.int64)
    check(torch.randn(4, 3), *whole, None, mode)


@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_a_table_that_is_too_large_to_be_tried(mode):
    check(torch.randn(40_000, 3), torch.tensor([39_999, 0, 7]), torch.tensor([0, 2]), None, mode)


@pytest.mark.parametrize("mode", [0, 1])
def test_gradients_by_frequency(mode):
    whole = torch.tensor(INDICES), torch.tensor(OFFSETS)
    check(torch.randn(4, 3), *whole, None, mode, by_frequency=True)


@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[1:, 1:],
        lambda x: x[::2],
        lambda x: x[:, ::2],
        lambda x: x[0].expand(4, 4),
    ],
)
def test_tables_that_are_views(view, mode):
    """PyTorch's second result tells the strides of the table; GT's is that of a contiguous one."""
    table = torch.randn(4, 4)
    indices, offsets = torch.tensor([1, 0, 1]), torch.tensor([0, 1])
    expected = torch.embedding_bag(view(table).contiguous(), indices, offsets, mode=mode)
    made = gt.embedding_bag(view(to_gt(table)), to_gt(indices), to_gt(offsets), mode=mode)
    for mine, other in zip(made, expected, strict=True):
        equal(mine, other)


@pytest.mark.parametrize(
    ("indices", "offsets", "ends"),
    [
        ([0, 9, 1], [0, 2], False),
        ([0, -1, 1], [0, 2], False),
        ([0, 1, 1], [1, 2], False),
        ([0, 1, 1], [0, 5], False),
    ],
)
def test_refusals(indices, offsets, ends):
    texts = []
    for library in (torch, gt):
        operands = library.zeros(3, 2), library.tensor(indices), library.tensor(offsets)
        with pytest.raises(RuntimeError) as error:
            library.embedding_bag(*operands, include_last_offset=ends)[0].tolist()
        texts.append(str(error.value))
    assert texts[0].splitlines()[0] in texts[1]


@pytest.mark.parametrize(
    ("offsets", "ends", "text"),
    [
        ([], False, "3 indices, but no offset"),
        ([0, 2, 1], False, "must not decrease"),
        ([0, -1], True, "must not decrease"),
    ],
)
def test_what_pytorch_reads_memory_for_is_refused(offsets, ends, text):
    """PyTorch reads beside the indices here, or ends the process."""
    whole = gt.tensor([0, 1, 1]), gt.tensor(offsets, dtype=gt.int64)
    with pytest.raises(RuntimeError, match=text):
        gt.embedding_bag(gt.zeros(3, 2), *whole, include_last_offset=ends)[0].tolist()


@pytest.mark.parametrize("mode", MODES, ids=MODES.get)
def test_indices_of_two_dimensions_are_taken_as_one(mode):
    """PyTorch's loop writes beside the memory of its results here, or ends the process."""
    rows, offsets = torch.tensor([[1, 0, 2], [0, 1, 1]]), torch.tensor([0, 1, 2])
    table = torch.randn(3, 2)
    expected = torch.embedding_bag(table, rows.flatten(), offsets, mode=mode)
    made = gt.embedding_bag(to_gt(table), to_gt(rows), to_gt(offsets), mode=mode)
    for mine, other in zip(made, expected, strict=True):
        equal(mine, other)


@pytest.mark.parametrize(("indices", "offsets"), [(1, [0]), ([1], 0), ([1, 0], [[0, 1]])])
def test_sizes_that_pytorch_refuses(indices, offsets):
    for library in (torch, gt):
        text = "has to be a 1D( or 2D)? Tensor, but got Tensor of dimension"
        with pytest.raises(RuntimeError, match=text):
            library.embedding_bag(
                library.zeros(3, 2), library.tensor(indices), library.tensor(offsets)
            )[0].tolist()


def test_offsets_of_two_dimensions_are_refused():
    """PyTorch's function ends the process in some runs."""
    whole = gt.tensor([[1, 0], [0, 1]])
    with pytest.raises(RuntimeError, match="offsets has to be a 1D Tensor, but got"):
        gt.embedding_bag(gt.zeros(3, 2), whole, whole)
