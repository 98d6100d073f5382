"""Collectives: they change where a tensor is, and never what it is."""

from collections.abc import Iterator

import numpy as np
import pytest
from spread_session import workers

import gt
from gt import Layout, Partial, Replicate, Shard
from gt import distributed as dist

MESH = gt.DeviceMesh((2, 2), names=("dp", "tp"))
LINE = gt.DeviceMesh(4)
VALUES = np.random.default_rng(0).normal(size=(6, 10))
PLACEMENTS = [
    [Replicate(), Replicate()],
    [Shard(0), Replicate()],
    [Replicate(), Shard(1)],
    [Shard(1), Shard(0)],
    [Partial(), Replicate()],
    [Shard(0), Partial()],
    [Partial("max"), Partial("max")],
]


@pytest.fixture(autouse=True, scope="module")
def four_workers() -> Iterator[None]:
    with workers(4):
        yield


def with_layout(placements) -> gt.Tensor:
    return gt.distribute(gt.tensor(VALUES), Layout(MESH, VALUES.shape, placements=placements))


@pytest.mark.parametrize("group", [None, MESH["dp"], MESH["tp"]], ids=["all", "dp", "tp"])
@pytest.mark.parametrize("placements", PLACEMENTS, ids=str)
def test_no_collective_changes_a_value(placements, group):
    op = "max" if Partial("max") in placements else "sum"
    x = with_layout(placements)
    for result in (
        dist.all_reduce(with_layout(placements), op, group),
        dist.all_reduce(dist.all_reduce(with_layout(placements), op, group), op, group),
        dist.all_gather(x, group),
        dist.reduce_scatter(with_layout([Partial(op)]), 0, op, MESH["dp"]),
        dist.broadcast(x, 0, group),
        dist.send(x, 2),
        x,
    ):
        np.testing.assert_array_equal(result.numpy(), VALUES)


def test_all_reduce_makes_what_is_partial_whole():
    x = with_layout([Partial(), Shard(1)])
    assert repr(dist.all_reduce(x, group=MESH["tp"]).layout) == repr(x.layout)
    assert repr(dist.all_reduce(x).layout) == "replicate,shard(1)@[[0,1],[2,3]]"
    assert repr(x.layout) == "replicate,shard(1)@[[0,1],[2,3]]"  # and nobody reduces it again
    before = gt.debug.stats()["all_reduces"]
    assert x.all_reduce() is x
    assert gt.debug.stats()["all_reduces"] == before


def test_asynchronous_collectives_have_wait():
    x = with_layout([Partial(), Partial()])
    work = dist.all_reduce(x, op="sum", async_op=True)
    assert work.wait().layout.is_replicated
    group = MESH.get_process_group("tp")
    np.testing.assert_array_equal(
        group.all_reduce_async(with_layout([Partial()])).wait().numpy(), VALUES
    )
    for work in (
        group.all_gather_async(with_layout([Shard(0), Shard(1)])),
        group.reduce_scatter_async(with_layout([Shard(1), Partial()]), 0),
        group.all_to_all_async(with_layout([Replicate(), Shard(1)]), 0),
        group.broadcast_async(gt.tensor(VALUES)),
    ):
        np.testing.assert_array_equal(work.wait().numpy(), VALUES)


@pytest.mark.parametrize(
    ("placements", "collective", "layout"),
    [
        ([Partial()], lambda x: dist.reduce_scatter(x, 1, group=MESH["dp"]), "shard(1),replicate"),
        ([Replicate(), Partial()], dist.reduce_scatter, "replicate,shard(0)"),
        ([Shard(0), Shard(1)], lambda x: dist.all_gather(x, MESH["tp"]), "shard(0),replicate"),
        ([Replicate(), Shard(0)], lambda x: dist.all_to_all(x, 1), "replicate,shard(1)"),
        ([Shard(0)], lambda x: dist.scatter(x, 1), "shard(0),shard(1)"),
        ([Shard(0)], lambda x: dist.broadcast(x, group=MESH), "replicate,replicate"),
    ],
)
def test_where_a_collective_leaves_its_result(placements, collective, layout):
    result = collective(with_layout(placements))
    assert repr(result.layout) == f"{layout}@[[0,1],[2,3]]"
    np.testing.assert_array_equal(result.numpy(), VALUES)


def test_send_brings_a_tensor_to_a_worker():
    x = with_layout([Shard(0), Shard(1)])
    assert repr(dist.send(x, 3).layout) == "replicate@[3]"
    assert repr(dist.gather(x).layout) == "replicate@[0]"
    assert repr(dist.broadcast(gt.ones(3)).layout) == "replicate@[0,1,2,3]"


def test_a_reduction_is_counted_once():
    # Data parallel, with the synchronisation that a script of one process a rank needs.
    w = gt.tensor(VALUES, requires_grad=True)
    x = gt.distribute(gt.ones(8, 6, dtype=gt.float64), dim=0)
    (x @ w).sum().backward()
    expected = np.full(VALUES.shape, 8.0)
    for _ in range(2):
        w.grad = LINE.get_process_group(0).all_reduce_async(w.grad, op="sum").wait()
        np.testing.assert_array_equal(w.grad.numpy(), expected)


def reductions(run) -> int:
    before = gt.debug.stats()
    run()
    after = gt.debug.stats()
    assert after["gathered"] == before["gathered"]
    return after["all_reduces"] - before["all_reduces"]


def test_the_norm_of_gradients_that_are_cut_is_one_reduction():
    params = [gt.nn.Parameter(gt.zeros(size)) for size in ((8, 3), (5,), (2, 6))]
    for param in params:
        param.grad = gt.distribute(gt.rand(*param.shape), dim=0)
    expected = np.sqrt(sum((param.grad.numpy() ** 2).sum() for param in params))
    norms = []
    clip = gt.nn.utils.clip_grad_norm_
    assert reductions(lambda: norms.append(clip(params, 0.5))) == 1
    assert norms[0].item() == pytest.approx(expected, rel=1e-6)


def test_a_gradient_that_is_clipped_is_reduced_once():
    w = gt.nn.Parameter(gt.tensor(VALUES))
    optimizer = gt.optim.SGD([w], lr=0.1)
    x = gt.distribute(gt.ones(64, 6, dtype=gt.float64), dim=0)
    (x @ w).sum().backward()
    assert w.grad.layout.is_partial

    def step() -> None:
        gt.nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.step()

    assert reductions(step) == 1
    np.testing.assert_allclose(w.detach().numpy(), VALUES - 0.1 / np.sqrt(VALUES.size), rtol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: dist.all_reduce(with_layout([Partial()]), "max"), "is the sum of its parts"),
        (lambda: dist.reduce_scatter(with_layout([Partial("max")])), "is the max of its parts"),
        (lambda: dist.all_reduce(gt.ones(3), "avg"), "for a mean divide by get_world_size"),
        (lambda: dist.all_reduce(with_layout([Partial()]), group=LINE[0]), "is not on"),
    ],
)
def test_mistakes(wrong, text):
    with pytest.raises(ValueError, match=text):
        wrong()


def test_what_is_not_partial_stays_whatever_the_group():
    x = gt.distribute(gt.tensor(VALUES), Layout(gt.DeviceMesh(4), VALUES.shape, 0))
    assert dist.all_reduce(x, group=MESH["tp"]) is x
    assert MESH.get_process_group("dp").all_reduce_async(x, op="max").wait() is x


def test_meshes_and_groups_by_the_names_that_pytorch_gives_them():
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert repr(mesh) == repr(MESH)
    x = gt.distribute(gt.tensor(VALUES), Layout(mesh, VALUES.shape, placements=[Partial()]))
    reduced = dist.all_reduce(x, group=mesh.get_group("dp"))
    assert repr(reduced.layout) == "replicate,replicate@[[0,1],[2,3]]"
    pair = dist.new_group([3, 1])
    assert (dist.get_world_size(pair), dist.get_world_size(dist.new_group())) == (2, 4)
    assert repr(dist.broadcast(gt.ones(3), group=pair).layout) == "replicate@[3,1]"


def test_one_program_speaks_for_all_workers():
    dist.init_process_group("nccl", world_size=4)
    assert dist.is_available()
    assert dist.is_initialized()
    assert (dist.get_world_size(), dist.get_world_size(MESH["tp"])) == (4, 2)
    assert dist.get_rank() == 0
    dist.barrier()
    dist.destroy_process_group()
    assert dist.ReduceOp.PRODUCT == "prod"
