"""Code around the tensors of programs: prefetching, wrappers, writers, samplers, assertions."""

import math
import threading

import numpy as np
import pytest
import torch
from spread_session import workers
from torch.utils.data.distributed import DistributedSampler as TorchSampler

import gt

nan, inf = math.nan, math.inf


def test_prefetch_gives_the_loaders_batches_in_order_again_and_again():
    data = gt.utils.data.TensorDataset(gt.arange(10), gt.arange(10) * 2)
    loader = gt.utils.data.DataLoader(data, batch_size=4)
    ahead = gt.data.prefetch(loader, 3)
    assert len(ahead) == len(loader) == 3
    for _ in range(2):
        batches = list(ahead)
        assert [x.tolist() for x, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert [y.tolist() for _, y in batches] == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]


def test_prefetch_converts_what_other_libraries_made():
    kinds = {"a": np.arange(3), "b": [torch.ones(2), "text"]}
    (batch,) = gt.data.prefetch([kinds])
    assert isinstance(batch["a"], gt.Tensor)
    assert batch["a"].dtype == gt.int64
    assert isinstance(batch["b"][0], gt.Tensor)
    assert batch["b"][1] == "text"


def test_prefetch_is_ahead_by_n_and_no_further():
    made, free = [], threading.Semaphore(0)

    def batches():
        for at in range(10):
            made.append(at)
            free.release()
            yield at

    reader = iter(gt.data.prefetch(batches(), 2))
    assert next(reader) == 0
    for _ in range(3):  # the first, and two ahead
        assert free.acquire(timeout=30)
    assert not free.acquire(timeout=0.2)
    assert made == [0, 1, 2]
    reader.close()


def test_prefetch_raises_the_loaders_exception_where_its_batch_is_asked_for():
    def batches():
        yield 1
        raise KeyError("no such file")

    reader = iter(gt.data.prefetch(batches()))
    assert next(reader) == 1
    with pytest.raises(KeyError, match="no such file"):
        next(reader)
    for mistake, error in (((3,), TypeError), (([], 0), ValueError), (([], "2"), TypeError)):
        with pytest.raises(error, match=r"prefetch\(\)"):
            gt.data.prefetch(*mistake)


WRAPPERS = [gt.nn.DataParallel, gt.nn.parallel.DistributedDataParallel]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_wrapper_gives_the_modules_numbers_and_pytorchs_names(wrap):
    theirs = torch.nn.Linear(3, 2)
    ours = gt.nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    wrapped = wrap(ours, device_ids=[0])
    x = torch.randn(5, 3)
    wrapped(gt.from_torch(x)).sum().backward()
    theirs(x).sum().backward()
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-5)
    assert list(wrapped.state_dict()) == list(torch.nn.DataParallel(theirs).state_dict())
    with pytest.raises(TypeError, match="expected a Module"):
        wrap(lambda x: x)


def test_a_wrapper_cuts_the_batch_over_two_workers():
    with workers(2):
        model = gt.nn.DataParallel(gt.nn.Linear(3, 2))
        x = gt.arange(12, dtype=gt.float32).reshape(4, 3)
        seen = []
        model.module.register_forward_pre_hook(lambda _, args: seen.append(args[0].layout.dim))
        out = model(x).tolist()
        model(gt.ones(1, 3))  # fewer than workers: whole
        assert seen == [0, None]
        np.testing.assert_allclose(out, model.module(x).tolist(), rtol=1e-6)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("count", "replicas"), [(10, 3), (9, 3), (2, 4), (0, 2)])
def test_replicas_share_a_dataset_as_in_pytorch(count, replicas, drop_last):
    for rank in range(replicas):
        options = {"num_replicas": replicas, "rank": rank, "drop_last": drop_last}
        ours = gt.utils.data.DistributedSampler(range(count), shuffle=False, **options)
        theirs = TorchSampler(range(count), shuffle=False, **options)
        if count or drop_last:
            assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)


def test_one_program_samples_all_of_the_data_in_an_order_of_the_epoch():
    sampler = gt.utils.data.distributed.DistributedSampler(range(20))
    first = list(sampler)
    assert sorted(first) == list(range(20))
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    parts = [
        list(gt.utils.data.DistributedSampler(range(20), num_replicas=2, rank=rank))
        for rank in range(2)
    ]
    assert sorted(parts[0] + parts[1]) == list(range(20))
    with pytest.raises(ValueError, match="Invalid rank 3"):
        gt.utils.data.DistributedSampler(range(3), num_replicas=3, rank=3)


def test_tensorboard_writes_tensors(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with gt.utils.tensorboard.SummaryWriter(str(tmp_path)) as writer:
        for step in range(3):
            writer.add_scalar("loss", gt.tensor(1.5, requires_grad=True) * step, step)
        writer.add_histogram("weights", gt.arange(10, dtype=gt.float32), 0)
        writer.add_scalars("several", {"a": gt.tensor(2.0)}, 0)
        with pytest.raises(NotImplementedError, match="add_graph"):
            writer.add_graph(gt.nn.Linear(1, 1), gt.ones(1))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in events.Scalars("loss")] == [0, 1.5, 3]
    assert events.Histograms("weights")[0].histogram_value.num == 10


def test_dlpack_capsules():
    assert torch.utils.dlpack.from_dlpack(gt.utils.dlpack.to_dlpack(gt.ones(2))).tolist() == [1, 1]
    assert gt.utils.dlpack.from_dlpack(torch.arange(3)).tolist() == [0, 1, 2]


def test_draws_inside_a_fork_leave_no_trace():
    gt.manual_seed(1)
    expected = gt.rand(3).tolist()
    gt.manual_seed(1)
    with gt.random.fork_rng():
        gt.manual_seed(5)
        gt.rand(2)
    assert gt.rand(3).tolist() == expected
    with gt.random.fork_rng(enabled=False):
        after = gt.rand(1).tolist()
    assert gt.rand(1).tolist() != after
    assert not hasattr(gt, "fork_rng")


def close(m, *pair, **options):
    try:
        m.testing.assert_close(*pair, **options)
    except (AssertionError, TypeError, ValueError) as error:
        return type(error), str(error).replace("torch.", "gt.").replace("gt.Tensor", "Tensor")
    return None


PAIRS = [
    lambda t, m: (t([1.0, 2]), t([1.0, 3])),
    lambda t, m: (t([1.0, 2]), t([1.0, 2 + 1e-7])),
    lambda t, m: (1.0, 2.0),
    lambda t, m: (1, 2),
    lambda t, m: (1.0, 1),
    lambda t, m: (nan, nan),
    lambda t, m: (inf, inf),
    lambda t, m: (inf, 1.0),
    lambda t, m: (t([1.0]), t([1.0, 2])),
    lambda t, m: (t([1.0]), t([1])),
    lambda t, m: ([t([1.0])], [t([2.0])]),
    lambda t, m: ({"a": t(1.0)}, {"b": t(1.0)}),
    lambda t, m: ({"a": [t(1.0), {"b": t([1.0])}]}, {"a": [t(1.0), {"b": t([3.0])}]}),
    lambda t, m: ([1], [1, 2]),
    lambda t, m: (t([1, 2]), t([1, 3])),
    lambda t, m: (t([nan, 1]), t([nan, 1])),
    lambda t, m: (t(1.0), t(2.0)),
    lambda t, m: (t([inf, 1.0]), t([1.0, 1.0])),
    lambda t, m: (t([[0.0, 1], [2, 3]]), t([[0.0, 1], [2.5, 9]])),
    lambda t, m: (t([0.0]), t([1.0])),
    lambda t, m: (t([True]), t([False])),
    lambda t, m: (True, False),
    lambda t, m: (None, None),
    lambda t, m: (None, 1),
    lambda t, m: ("a", "b"),
    lambda t, m: (t([1.0], dtype=m.bfloat16), t([2.0], dtype=m.bfloat16)),
    lambda t, m: (t([1.0], dtype=m.float16), t([2.0], dtype=m.float16)),
    lambda t, m: (t([]), t([])),
    lambda t, m: (np.ones(1), np.zeros(1)),
]
OPTIONS = [
    {},
    {"equal_nan": True},
    {"rtol": 0, "atol": 0},
    {"rtol": 0.1, "atol": 0.5},
    {"check_dtype": False},
    {"msg": "mine"},
    {"msg": lambda text: f"mine: {text[:5]}"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=[*map(str, OPTIONS[:-1]), "a function"])
def test_assert_close_says_what_pytorchs_says(options):
    for pair in PAIRS:
        ours, theirs = (close(m, *pair(m.tensor, m), **options) for m in (gt, torch))
        assert (ours is None) == (theirs is None), (options, theirs)
        if theirs is not None:
            assert issubclass(ours[0], theirs[0])
            assert ours[1] == theirs[1]


@pytest.mark.parametrize("options", [{"rtol": 1}, {"atol": 1}], ids=str)
def test_assert_close_takes_both_tolerances_or_none(options):
    ours, theirs = (close(m, m.ones(1), m.ones(1), **options) for m in (gt, torch))
    assert ours[1] == theirs[1]
    assert issubclass(ours[0], theirs[0])


def test_assert_close_compares_strides_where_asked():
    x = gt.ones(2, 3)
    gt.testing.assert_close(x, gt.ones(3, 2).T)
    with pytest.raises(AssertionError, match=r"attribute 'stride\(\)' do not match"):
        gt.testing.assert_close(x, gt.ones(3, 2).T, check_stride=True)


def test_there_are_no_gpus_of_intels():
    assert not gt.xpu.is_available()
    assert gt.xpu.device_count() == 0
