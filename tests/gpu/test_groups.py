"""Process groups by NCCL, a GPU for each member: the tests that Gloo has on the CPU.

NCCL refuses two members on one GPU ("invalid usage", 2.28), so these need as many GPUs.
"""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from group_cluster import Cluster  # noqa: E402
from test_process_groups import agree, cut, described, reduced, sums, values  # noqa: E402

MEMBERS = 2
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < MEMBERS, reason=f"needs {MEMBERS} GPUs"),
]
BOTH = [0, 1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(MEMBERS, "nccl")
    yield cluster
    cluster.end()


@pytest.mark.parametrize("reduce_op", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("dtype", ["bool", "int16", "int64", "bfloat16", "float32"])
def test_all_reduce(cluster: Cluster, dtype: str, reduce_op: str) -> None:
    operands = values(1, dtype, 7, 5, count=MEMBERS)
    parts = [
        {"operand": described(one), "result": [dtype, [7, 5]], "arguments": {"reduce": reduce_op}}
        for one in operands
    ]
    for result in cluster.run(BOTH, "all_reduce", parts):
        agree(result, reduced(operands, reduce_op))


@pytest.mark.parametrize("sizes", [[3, 3], [5, 1], [0, 6]], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_shards(cluster: Cluster, sizes: list[int], dim: int) -> None:
    shape = [4, 4]
    shape[dim] = 6
    wholes = values(2, "float32", *shape, count=MEMBERS)
    arguments = {"dim": dim, "sizes": sizes}
    shards = cut(wholes[0], sizes, dim)
    parts = [
        {
            "operand": described(shard),
            "result": ["float32", shape],
            "arguments": {**arguments, "me": k},
        }
        for k, shard in enumerate(shards)
    ]
    for result in cluster.run(BOTH, "all_gather", parts):
        assert torch.equal(result, wholes[0])
    expected = cut(reduced(wholes, "sum"), sizes, dim)
    parts = [
        {
            "operand": described(whole),
            "result": ["float32", list(shard.shape)],
            "arguments": {**arguments, "me": k, "reduce": "sum"},
        }
        for k, (whole, shard) in enumerate(zip(wholes, expected, strict=True))
    ]
    for result, shard in zip(cluster.run(BOTH, "reduce_scatter", parts), expected, strict=True):
        agree(result, shard)


def test_broadcast(cluster: Cluster) -> None:
    (value,) = values(3, "float16", 3, 7, count=1)
    shape = ["float16", [3, 7]]
    parts = [
        {"result": shape, "arguments": {"root": 1, "operand": None}},
        {"operand": described(value), "result": shape, "arguments": {"root": 1}},
    ]
    for result in cluster.run(BOTH, "broadcast", parts):
        assert torch.equal(result, value)


def test_the_same_bits_in_each_run(cluster: Cluster) -> None:
    operands = values(4, "float32", 100_003, count=MEMBERS)
    results = cluster.run(BOTH, "all_reduce", sums(operands, 100_003))
    results += cluster.run(BOTH, "all_reduce", sums(operands, 100_003))
    for result in results:
        assert torch.equal(result, results[0])


def test_a_killed_member_is_an_error(cluster: Cluster) -> None:
    operands = values(5, "float32", 1_000_000, count=MEMBERS)
    call, payloads = cluster.prepare(BOTH, "all_reduce", sums(operands, 1_000_000))
    cluster.begin([0], call, payloads)
    cluster.members[1].process.kill()
    cluster.members[1].process.wait()
    cluster.members[0].ask("lose", worker=1)
    assert cluster.failures([0], call) == ["worker 1 is gone"]
