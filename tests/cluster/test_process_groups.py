"""Process groups of torch.distributed as workers of several hosts use them: processes, Gloo."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from group_cluster import Cluster, described, tensor  # noqa: E402

from gt.worker.reference.values import DTYPES  # noqa: E402

MEMBERS = 3
REDUCE_OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    cluster = Cluster(MEMBERS)
    yield cluster
    cluster.end()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(MEMBERS)
    yield cluster
    cluster.end()


def values(seed, dtype, *shape, count=MEMBERS):
    """One for each member."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == "bool":
        return [torch.rand(shape, generator=generator) < 0.5 for _ in range(count)]
    if dtype.startswith(("int", "uint")):
        least = 0 if dtype == "uint8" else -100
        return [
            torch.randint(least, 100, shape, generator=generator).to(getattr(torch, dtype))
            for _ in range(count)
        ]
    wide = torch.complex128 if dtype.startswith("complex") else torch.float64
    return [
        torch.randn(shape, generator=generator, dtype=wide).to(getattr(torch, dtype))
        for _ in range(count)
    ]


def reduced(parts, reduce_op):
    """By numpy; halves in single and rounded once."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        return (
            torch.stack(parts).any(0) if reduce_op in {"sum", "max"} else torch.stack(parts).all(0)
        )
    if dtype in {torch.float16, torch.bfloat16}:
        parts = [part.float() for part in parts]
    with np.errstate(over="ignore"):
        result = REDUCE_OPS[reduce_op].reduce([part.numpy() for part in parts])
    return torch.from_numpy(np.asarray(result)).to(dtype)


def agree(found, expected):
    """Exactly, but for the order in which floats are added or multiplied."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if not (expected.is_floating_point() or expected.is_complex()):
        assert torch.equal(found, expected)
        return
    torch.testing.assert_close(found, expected, equal_nan=True)


def cut(value, sizes, dim):
    return list(torch.split(value, sizes, dim))


@pytest.mark.parametrize(
    ("dtype", "reduce_op"),
    [
        (dtype, reduce_op)
        for dtype in DTYPES
        for reduce_op in REDUCE_OPS
        # complex numbers have no order, and no rule leaves products of them to be combined
        if reduce_op == "sum" or not dtype.startswith("complex")
    ],
)
def test_all_reduce_of_every_dtype(shared: Cluster, dtype: str, reduce_op: str) -> None:
    operands = values(1, dtype, 7, 5)
    parts = [
        {"operand": described(one), "result": [dtype, [7, 5]], "arguments": {"reduce": reduce_op}}
        for one in operands
    ]
    results = shared.run([0, 1, 2], "all_reduce", parts)
    for result in results:
        agree(result, reduced(operands, reduce_op))
        assert result.view(torch.uint8).equal(results[0].view(torch.uint8))


@pytest.mark.parametrize("shape", [[], [0, 3], [1], [70_000]])
def test_all_reduce_over_its_operand(shared: Cluster, shape: list[int]) -> None:
    operands = values(2, "float32", *shape)
    parts = [
        {"operand": described(one), "result": "operand", "arguments": {"reduce": "sum"}}
        for one in operands
    ]
    for result in shared.run([0, 1, 2], "all_reduce", parts):
        agree(result, reduced(operands, "sum"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("reduce_op", ["max", "min"])
def test_a_nan_stays_and_infinities_are_ordered(
    shared: Cluster, dtype: str, reduce_op: str
) -> None:
    nan, inf = math.nan, math.inf
    rows = [[nan, 1, -inf, inf, -0.5, 3], [2, nan, 5, -2, -1.5, -inf], [0, 7, nan, 1, -2.5, inf]]
    operands = [torch.tensor(row, dtype=getattr(torch, dtype)) for row in rows]
    parts = [
        {"operand": described(one), "result": [dtype, [6]], "arguments": {"reduce": reduce_op}}
        for one in operands
    ]
    for result in shared.run([0, 1, 2], "all_reduce", parts):
        agree(result, reduced(operands, reduce_op))


CUTS = {
    "even": [2, 2, 2],
    "uneven": [3, 1, 2],
    "empty": [0, 5, 1],
    "one has all": [0, 0, 6],
    "nobody has any": [0, 0, 0],
}


@pytest.mark.parametrize("cut_name", CUTS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gathered_and_reduced_shards(shared: Cluster, cut_name: str, dim: int) -> None:
    sizes = CUTS[cut_name]
    shape = [3, 4, 5]
    shape[dim] = sum(sizes)
    for dtype in ("float32", "int16", "bool"):
        whole = values(3, dtype, *shape)
        shards = cut(whole[0], sizes, dim)
        arguments = {"dim": dim, "sizes": sizes}
        parts = [
            {
                "operand": described(shard),
                "result": [dtype, shape],
                "arguments": {**arguments, "me": place},
            }
            for place, shard in enumerate(shards)
        ]
        for result in shared.run([0, 1, 2], "all_gather", parts):
            assert torch.equal(result, whole[0])
        for reduce_op in ("sum", "max"):
            expected = cut(reduced(whole, reduce_op), sizes, dim)
            parts = [
                {
                    "operand": described(one),
                    "result": [dtype, list(expected[place].shape)],
                    "arguments": {**arguments, "me": place, "reduce": reduce_op},
                }
                for place, one in enumerate(whole)
            ]
            results = shared.run([0, 1, 2], "reduce_scatter", parts)
            for result, shard in zip(results, expected, strict=True):
                agree(result, shard)


@pytest.mark.parametrize("before", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize(("from_dim", "to_dim"), [(0, 1), (2, 0), (1, 1)])
def test_all_to_all(shared: Cluster, before: list[int], from_dim: int, to_dim: int) -> None:
    after = [1, 4, 1] if from_dim != to_dim or sum(before) else [0, 0, 0]
    shape = [3, 4, 5]
    shape[to_dim] = sum(after)
    shape[from_dim] = sum(before)
    for dtype in ("float64", "int16"):
        whole = values(4, dtype, *shape)[0]
        expected = cut(whole, after, to_dim)
        arguments = {
            "from_dim": from_dim,
            "from_sizes": before,
            "to_dim": to_dim,
            "to_sizes": after,
        }
        parts = [
            {
                "operand": described(shard),
                "result": [dtype, list(expected[place].shape)],
                "arguments": {**arguments, "me": place},
            }
            for place, shard in enumerate(cut(whole, before, from_dim))
        ]
        results = shared.run([0, 1, 2], "all_to_all", parts)
        for result, shard in zip(results, expected, strict=True):
            assert torch.equal(result, shard)


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "int16", "float64"])
def test_broadcast_and_send(shared: Cluster, dtype: str) -> None:
    (value,) = values(5, dtype, 3, 7, count=1)
    shape = [dtype, [3, 7]]
    parts = [{"result": shape, "arguments": {"root": 1, "operand": None}} for _ in range(3)]
    parts[1] = {"operand": described(value), "result": shape, "arguments": {"root": 1}}
    for result in shared.run([0, 1, 2], "broadcast", parts):
        assert torch.equal(result, value)
    parts = [
        {"operand": described(value), "arguments": {"root": 0}},
        {"result": shape, "arguments": {"root": 0}},
    ]
    sent, received = shared.run([2, 0], "broadcast", parts)
    assert sent is None
    assert torch.equal(received, value)


def sums(operands, size):
    return [
        {"operand": described(one), "result": ["float32", [size]], "arguments": {"reduce": "sum"}}
        for one in operands
    ]


def test_the_same_bits_again_and_in_another_group(shared: Cluster) -> None:
    operands = values(6, "float32", 100_003)
    first = shared.run([0, 1, 2], "all_reduce", sums(operands, 100_003))
    again = shared.run([0, 1, 2], "all_reduce", sums(operands, 100_003))
    for member in shared.members:
        member.ask("lose", worker=0)
    anew = shared.run([0, 1, 2], "all_reduce", sums(operands, 100_003))
    for result in first + again + anew:
        assert torch.equal(result, first[0])


def test_calls_go_out_in_the_order_of_the_offers(shared: Cluster) -> None:
    groups = [[0, 1, 2], [2, 0], [1, 2], [2, 1, 0]]
    operands = [values(seed, "float32", 1000) for seed in range(12)]
    calls = []
    for place, one in enumerate(operands):
        group = groups[place % len(groups)]
        parts = sums([one[worker] for worker in group], 1000)
        calls.append((group, one, *shared.prepare(group, "all_reduce", parts)))
    for worker in range(MEMBERS):
        # The last offered collective may complete first, in another order on each worker.
        order = calls[::-1] if worker else calls[6:] + calls[:6]
        for group, _, call, payloads in order:
            if worker in group:
                shared.begin([worker], call, payloads)
    for group, one, call, _ in calls:
        for result in shared.finish(group, call):
            agree(tensor(result), reduced([one[worker] for worker in group], "sum"))


def test_a_call_that_one_member_refuses(shared: Cluster) -> None:
    operands = values(7, "float32", 10)
    for _ in range(2):  # before the members have met, and after
        call, _ = shared.prepare([0, 1, 2], "all_reduce", sums(operands, 10), skip=[1])
        for worker in (0, 2):
            shared.members[worker].ask("cancel", call=call)
        for result in shared.run([0, 1, 2], "all_reduce", sums(operands, 10)):
            agree(result, reduced(operands, "sum"))


def test_a_killed_member_ends_its_groups_and_no_other(cluster: Cluster) -> None:
    operands = values(8, "float32", 1_000_000)
    pair = sums(operands[:2], 1_000_000)
    cluster.run([0, 1, 2], "all_reduce", sums(operands, 1_000_000))
    cluster.run([0, 1], "all_reduce", pair)
    call, payloads = cluster.prepare([0, 1, 2], "all_reduce", sums(operands, 1_000_000))
    cluster.begin([0, 1], call, payloads)  # the third never makes its call
    cluster.members[2].process.kill()
    cluster.members[2].process.wait()
    cluster.members[0].ask("lose", worker=2)  # the other one hears of it from its group alone
    told_of_it, met_it = cluster.failures([0, 1], call)
    assert told_of_it == "worker 2 is gone"
    assert "reset" in met_it or "closed" in met_it or "Connection" in met_it
    for result in cluster.run([0, 1], "all_reduce", pair):
        agree(result, reduced(operands[:2], "sum"))


def test_a_member_that_begins_anew_is_noticed_by_all(shared: Cluster) -> None:
    operands = values(9, "float32", 10)
    shared.run([0, 1, 2], "all_reduce", sums(operands, 10))
    shared.members[1].ask("lose", worker=0)  # which is not true: it alone gives the group up
    call, payloads = shared.prepare([0, 1, 2], "all_reduce", sums(operands, 10))
    begun = [
        member.ask("begin", call=call, payloads=payloads)["begun"] for member in shared.members
    ]
    assert begun == [False, False, False]
    for result in shared.run([0, 1, 2], "all_reduce", sums(operands, 10)):
        agree(result, reduced(operands, "sum"))


def test_the_end_leaves_no_thread(cluster: Cluster) -> None:
    operands = values(10, "float32", 10)
    for group in ([0, 1, 2], [0, 2, 1], [2, 1, 0]):
        cluster.run(group, "all_reduce", sums(operands, 10))
    call, _ = cluster.prepare([1, 0, 2], "all_reduce", sums(operands, 10), skip=[2])
    for worker in (0, 1):  # connecting, for the third never comes
        cluster.members[worker].ask("cancel", call=call)
        assert "gt-group" in cluster.members[worker].ask("threads")["threads"]
    for member in cluster.members:
        assert "pt_gloo_runloop" in member.ask("threads")["threads"]
        member.ask("close")
        while member.ask("threads")["threads"]:
            pass  # joined, and the kernel may still have to take note of it
