"""gt.utils.data beside torch.utils.data: what loaders give, and what wrong arguments raise."""

import collections
import itertools
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.utils import data as theirs

import gt
from gt.utils import data as ours

BOTH = [(gt, ours), (torch, theirs)]


class Point(NamedTuple):
    x: object
    y: object


def plain(value):
    """Kinds of containers, values and dtypes, without the library."""
    if isinstance(value, (gt.Tensor, torch.Tensor)):
        return str(value.dtype).split(".")[1], tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value


def same(run):
    """`run(library, data)` gives the same in both, or an error of the same text and class."""
    seen = []
    for library, data in BOTH:
        try:
            seen.append(plain(run(library, data)))
        except Exception as error:  # noqa: BLE001, PERF203 - compared below
            kind = next(one for one in type(error).__mro__ if one.__module__ == "builtins")
            seen.append((kind, str(error)))
    assert seen[0] == seen[1]
    return seen[0]


class Squares:
    def __len__(self):
        return 7

    def __getitem__(self, index):
        if not 0 <= index < 7:
            raise IndexError(index)
        return {"x": np.full((2,), index, dtype="float32"), "y": index**2, "name": f"n{index}"}


COLLATED = [
    [1, 2], [True, False], [1.5, 2], ["a", "b"], [b"a"], [(1, 2.0), (3, 4.0)], [[1, "a"], [2, "b"]],
    [Point(1, 2.0), Point(3, 4.0)], [{"a": [1, 2]}, {"a": [3, 4]}], [np.float32(1), np.float32(2)],
    [np.arange(3), np.arange(3)], [np.ones((2, 2), dtype="float16")], [np.array(2), np.array(3)],
    [np.ones(2, dtype="float32"), np.ones(2, dtype="int64")], [range(2), range(1, 3)],
    [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    [[1, 2], [3]], [object], [np.array(["a"])], [{1, 2}], [np.ones(2), np.ones(3)],
]  # fmt: skip


@pytest.mark.parametrize("batch", COLLATED, ids=str)
def test_default_collate(batch):
    same(lambda _, data: data.default_collate(batch))


@pytest.mark.parametrize(
    "value", [0, 1.5, "a", np.arange(2), [np.arange(2), 3], (1, np.ones(1)), Point(1, np.ones(2)),
              {"a": np.float32(2)}, np.array(["a"]), None], ids=str
)  # fmt: skip
def test_default_convert(value):
    same(lambda _, data: data.default_convert(value))


def test_collate_takes_tensors_of_both_libraries():
    assert plain(ours.default_collate([torch.ones(2), torch.zeros(2)])) == plain(
        torch.stack([torch.ones(2), torch.zeros(2)])
    )
    same(lambda m, data: data.default_collate([(m.ones(2), 1), (m.zeros(2), 2)]))


ARGUMENTS = [
    {}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None},
    {"sampler": [4, 1, 0]}, {"batch_sampler": [[1, 2], [0]]}, {"batch_size": 2, "collate_fn": len},
    {"batch_size": 7, "pin_memory": False, "timeout": 0},
    {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True},
    {"num_workers": 1, "prefetch_factor": -1}, {"sampler": [1], "shuffle": True},
    {"batch_sampler": [[1]], "batch_size": 2}, {"batch_size": None, "drop_last": True},
    {"batch_size": 0}, {"batch_size": 2.5}, {"drop_last": 1}, {"sampler": [9]},
    {"multiprocessing_context": "fork"}, {"timeout": 1},
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_loader_of_a_dataset(arguments):
    def run(_, data):
        loader = data.DataLoader(Squares(), **arguments)
        return [len(loader), *loader]

    same(run)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("subset", [False, True])
def test_loader_of_tensors(arguments, subset):
    def run(m, data):
        dataset = data.TensorDataset(m.arange(14).reshape(7, 2), m.arange(7) * 0.5)
        if subset:
            dataset = data.Subset(dataset, [6, 5, 0, 1, 2])
        return list(data.DataLoader(dataset, **arguments))

    arguments = {k: [4, 1, -1] if v == [4, 1, 0] else v for k, v in arguments.items()}
    if arguments.get("sampler") == [9]:  # the text is the tensor's, D-level of each library
        for _, data in BOTH:
            with pytest.raises(IndexError):
                run(gt if data is ours else torch, data)
        return
    same(run)


def test_a_batch_of_tensors_is_a_value_of_its_own():
    x = gt.arange(6.0)
    for (batch,) in ours.DataLoader(ours.TensorDataset(x), batch_size=3):
        batch.add_(10)
    assert x.tolist() == list(range(6))


def test_gradients_reach_the_tensors_of_a_dataset():
    def run(m, data):
        x = m.arange(4.0).requires_grad_()
        for sampler in (None, [3, 0, 0]):
            for (batch,) in data.DataLoader(data.TensorDataset(x), batch_size=3, sampler=sampler):
                (batch * batch).sum().backward()
        return x.grad

    same(run)


class Subclass(ours.TensorDataset):
    def __getitem__(self, index):
        return super().__getitem__(index)[0] * 10


def test_a_subclass_of_tensor_dataset_keeps_its_own_items():
    loader = ours.DataLoader(Subclass(gt.arange(4)), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 10], [20, 30]]


def streams(data, count=7):
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(count))

        def __len__(self):
            return count

    return Stream()


@pytest.mark.parametrize(
    "arguments",
    [{}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None},
     {"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}], ids=str,
)  # fmt: skip
def test_loader_of_a_stream(arguments):
    def run(_, data):
        loader = data.DataLoader(streams(data), **arguments)
        return [len(loader), *loader]

    same(run)


def test_datasets_in_one():
    def run(_, data):
        chain = streams(data) + streams(data, 2)
        joined = data.ConcatDataset([range(3), [10, 11]])
        items = [joined[at] for at in (-5, 0, 2, 3, 4, -1)]
        return [len(chain), *chain, len(joined), *items, data.Subset(range(9), [3, 4])[1]]

    same(run)


def test_datasets_side_by_side():
    class Several:
        def __init__(self, short=0):
            self.short = short

        def __getitem__(self, at):
            return at * 10

        def __getitems__(self, indices):
            return [at * 10 for at in indices[self.short :]]

        def __len__(self):
            return 4

    def run(_, data):
        rows = data.StackDataset(range(4), Several())
        named = data.StackDataset(x=Several(), y=range(4))
        broken = data.StackDataset(x=Several(short=1))
        with pytest.raises(ValueError, match="Nested dataset's output size mismatch"):
            broken.__getitems__([0, 1])
        batches = list(data.DataLoader(named, batch_size=2))
        several = rows.__getitems__([3, 0]), named.__getitems__([1])
        return len(rows), rows[2], named[1], several, [b["x"].tolist() for b in batches]

    same(run)


MISTAKES = [
    lambda m, d: d.StackDataset(),
    lambda m, d: d.StackDataset([1], x=[1]),
    lambda m, d: d.StackDataset([1], [1, 2]),
    lambda m, d: d.Dataset()[0],
    lambda m, d: len(d.DataLoader(d.Dataset())),
    lambda m, d: d.TensorDataset(m.ones(2), m.ones(3)),
    lambda m, d: d.ConcatDataset([]),
    lambda m, d: d.ConcatDataset([streams(d)]),
    lambda m, d: list(d.ChainDataset([[1]])),
    lambda m, d: d.ConcatDataset([[1]])[-2],
    lambda m, d: d.random_split(range(4), [1, 2]),
    lambda m, d: d.random_split(range(4), [1.5, -0.5]),
    lambda m, d: d.RandomSampler([]),
    lambda m, d: d.RandomSampler([1], replacement=1),
    lambda m, d: d.RandomSampler([1], num_samples=0),
    lambda m, d: d.WeightedRandomSampler([1.0], True),
    lambda m, d: d.WeightedRandomSampler([1.0], 1, replacement=0),
    lambda m, d: d.WeightedRandomSampler([[1.0]], 1),
    lambda m, d: d.BatchSampler([1], 0, False),
    lambda m, d: d.BatchSampler([1], 1, 0),
    lambda m, d: setattr(d.DataLoader([1]), "batch_size", 2),
    lambda m, d: list(d.DataLoader([])),
    lambda m, d: d.DataLoader([], shuffle=True),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_speak_as_in_pytorch(mistake):
    same(mistake)


def test_samplers_draw_what_they_say():
    assert sorted(ours.RandomSampler(range(50))) == list(range(50))
    assert list(ours.RandomSampler(range(50))) != list(range(50))
    endless = ours.RandomSampler(range(5), replacement=True, num_samples=10**10)
    assert set(itertools.islice(endless, 70_000)) == set(range(5))
    some = list(ours.RandomSampler(range(5), num_samples=12))
    assert [sorted(some[:5]), sorted(some[5:10]), len(some)] == [list(range(5))] * 2 + [12]
    drawn = list(ours.RandomSampler(range(3), replacement=True, num_samples=100))
    assert (len(drawn), set(drawn)) == (100, {0, 1, 2})
    assert sorted(ours.SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    weighted = ours.WeightedRandomSampler([0.0, 1.0, 0.0, 3.0], 400)
    counts = collections.Counter(weighted)
    assert set(counts) == {1, 3}
    assert counts[3] > counts[1]
    assert sorted(ours.WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False)) == [0, 1, 2]


def test_the_seed_decides_the_order():
    def orders():
        loader = ours.DataLoader(range(40), batch_size=40, shuffle=True)
        return [batch.tolist() for _ in range(2) for batch in loader]

    gt.manual_seed(3)
    first = orders()
    gt.manual_seed(3)
    assert orders() == first
    assert first[0] != first[1]
    pairs = [
        list(ours.RandomSampler(range(9), generator=gt.Generator().manual_seed(1))) for _ in "ab"
    ]
    assert pairs[0] == pairs[1]


def test_random_split():
    for lengths, sizes in (
        ([3, 7], [3, 7]),
        ([0.3, 0.3, 0.4], [3, 3, 4]),
        ([0.5, 0.25, 0.25], [6, 2, 2]),
    ):
        for _, data in BOTH:
            parts = data.random_split(range(10), lengths)
            assert [len(part) for part in parts] == sizes
            assert sorted(item for part in parts for item in part) == list(range(10))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _, data in BOTH:
            data.random_split(range(1), [0.5, 0.5])
    assert len(seen) == 2
    assert str(seen[0].message) == str(seen[1].message)
    assert seen[0].filename == __file__


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 3}, {"prefetch_factor": 1}], ids=str)
def test_workers_keep_the_order(arguments):
    alone = [plain(x) for x in ours.DataLoader(Squares(), **arguments | {"prefetch_factor": None})]
    loader = ours.DataLoader(Squares(), num_workers=2, persistent_workers=True, **arguments)
    assert [[plain(x) for x in loader] for _ in range(2)] == [alone] * 2


def test_workers_share_a_stream_by_their_numbers():
    class Shared(ours.IterableDataset):
        def __iter__(self):
            info = ours.get_worker_info()
            assert info.dataset is self
            return iter(range(info.id, 9 - 4 * info.id, info.num_workers))

    loader = ours.DataLoader(Shared(), num_workers=2, batch_size=2)
    assert [x.tolist() for x in loader] == [[0, 2], [1, 3], [4, 6], [8]]
    assert ours.get_worker_info() is None
