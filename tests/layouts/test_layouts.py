"""Meshes, layouts, and where tensors are: what users write, and that it changes no value."""

from collections.abc import Iterator

import numpy as np
import pytest
from cluster import Cluster
from spread_session import workers

import gt
from gt import Layout, Partial, Replicate, Shard

MESH = gt.DeviceMesh((2, 2), names=("dp", "tp"))
LINE = gt.DeviceMesh(4)
VALUES = np.arange(35.0).reshape(5, 7)


@pytest.fixture(autouse=True, scope="module")
def four_workers() -> Iterator[None]:
    with workers(4):
        yield


# ---- meshes ----


def test_a_mesh_has_ranks_in_rows_and_names():
    assert str(MESH) == "[[0,1],[2,3]]"
    assert repr(MESH) == "DeviceMesh([[0,1],[2,3]], names=('dp', 'tp'))"
    assert (MESH.ndim, MESH.shape) == (2, (2, 2))
    assert (MESH.size(), MESH.size("tp"), MESH.size(-2)) == (4, 2, 2)
    assert gt.DeviceMesh((2,), [3, 1]).ranks == (3, 1)
    assert str(gt.DeviceMesh((2, 1, 2), [4, 5, 6, 7])) == "[[[4,5]],[[6,7]]]"
    assert gt.DeviceMesh(4) == gt.DeviceMesh([4], range(4)) != gt.DeviceMesh(3)


def test_a_dimension_of_a_mesh_is_a_group_of_lines():
    assert MESH["tp"].ranks == ((0, 1), (2, 3))
    assert MESH["dp"].ranks == ((0, 2), (1, 3))
    assert MESH["dp", "tp"].ranks == ((0, 1, 2, 3),)
    assert MESH.get_process_group("dp") == MESH[0] != MESH[1]
    assert MESH["tp"].size() == 2
    assert LINE.get_process_group().ranks == ((0, 1, 2, 3),)
    assert repr(MESH["tp"]) == f"ProcessGroup({MESH!r}, along ['tp'])"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: gt.DeviceMesh((2, 2), [0, 1, 2]), ValueError, "room for 4 workers, 3 are named"),
        (lambda: gt.DeviceMesh(2, [1, 1]), ValueError, "not each named once"),
        (lambda: gt.DeviceMesh((1, 1, 1, 1)), ValueError, "one to 3 sizes"),
        (lambda: gt.DeviceMesh(0), ValueError, "sizes of at least 1"),
        (lambda: gt.DeviceMesh((2, 2), names=("a", "a")), ValueError, "different names"),
        (lambda: MESH["pp"], ValueError, "no dimension is called 'pp'"),
        (lambda: LINE["tp"], ValueError, "none has a name"),
        (lambda: MESH[2], IndexError, "dimension 2 of 2"),
        (MESH.get_process_group, ValueError, "name one of the 2 dimensions"),
    ],
)
def test_mistakes_in_a_mesh(make, error, text):
    with pytest.raises(error, match=text):
        make()


# ---- layouts ----

LAYOUTS = [
    (Layout(LINE, (5, 7)), "replicate@[0,1,2,3]"),
    (Layout(LINE, (5, 7), 1), "shard(1)@[0,1,2,3]"),
    (Layout(LINE, (5, 7), -1), "shard(1)@[0,1,2,3]"),
    (Layout(MESH, (5, 7), 0), "replicate,shard(0)@[[0,1],[2,3]]"),
    (Layout(MESH["dp"], (5, 7), 0), "shard(0),replicate@[[0,1],[2,3]]"),
    (
        Layout(MESH, (5, 7), placements=[Shard(0), Shard(1)]),
        "shard(0),shard(1)@[[0,1],[2,3]]",
    ),
    (Layout(MESH, (5, 7), placements=[Partial()]), "partial(sum),replicate@[[0,1],[2,3]]"),
    (
        Layout(MESH, (5, 7), placements=[Partial("max"), Shard(1)]),
        "partial(max),shard(1)@[[0,1],[2,3]]",
    ),
    (
        Layout(gt.DeviceMesh(2, [3, 1]), (5, 7), placements=[Shard(1, ranges=[(0, 2), (2, 7)])]),
        "shard(1)[0:2|2:7]@[3,1]",
    ),
    (
        Layout(gt.DeviceMesh(2), (5, 7), placements=[Shard(1, ranges=[[(0, 2), (6, 7)], (2, 6)])]),
        "shard(1)[0:2+6:7|2:6]@[0,1]",
    ),
    (Layout(LINE, (5, 7), placements=[Shard(1, ranges=[(0, 7), [], [], []])]), None),
]


@pytest.mark.parametrize(("layout", "text"), LAYOUTS, ids=str)
def test_a_layout_is_its_text_and_that_of_a_tensor(layout, text):
    assert text is None or repr(layout) == text
    x = gt.distribute(gt.tensor(VALUES), layout)
    assert x.layout == layout
    assert hash(x.layout) == hash(layout)
    assert Layout.parse(repr(layout), (5, 7)) == layout
    np.testing.assert_array_equal(x.numpy(), VALUES)
    np.testing.assert_array_equal((x * 2 + 1).numpy(), VALUES * 2 + 1)
    assert isinstance(x, gt.DTensor)
    assert isinstance(x, gt.Tensor)


def test_blocks_cut_each_block():
    layout = Layout(gt.DeviceMesh(2), (2, 12), placements=[Shard(1, blocks=3)])
    assert repr(layout) == "shard(1)[0:2+4:6+8:10|2:4+6:8+10:12]@[0,1]"
    x = gt.distribute(gt.arange(24).reshape(2, 12), layout)
    assert x.to_local(1).tolist() == [[2, 3, 6, 7, 10, 11], [14, 15, 18, 19, 22, 23]]
    assert x.layout == layout


@pytest.mark.parametrize(("layout", "text"), LAYOUTS, ids=str)
def test_a_members_shard_is_a_plain_tensor(layout, text):
    del text
    x = gt.distribute(gt.tensor(VALUES, requires_grad=True), layout)
    shards = [x.to_local(member) for member in range(layout.mesh.size())]
    for member, shard in enumerate(shards):
        assert shard.shape == layout.local_shape(member)
        assert shard.layout.mesh.ranks == (layout.mesh.ranks[member],)
        assert not shard.requires_grad
    if not layout.is_partial:
        total = sum(shard.sum().item() for shard in shards)
        cut = sum(
            size
            for size, one in zip(layout.mesh.shape, layout.placements, strict=True)
            if isinstance(one, Replicate)
        )
        assert total == VALUES.sum() * (cut or 1)


def test_shards_of_a_partial_tensor_add_up():
    x = gt.distribute(gt.tensor(VALUES), Layout(LINE, (5, 7), placements=[Partial()]))
    total = sum(x.to_local(member).numpy() for member in range(4))
    np.testing.assert_array_equal(total, VALUES)


def test_a_plain_tensor_is_on_one_worker():
    x = gt.ones(2, 3)
    assert repr(x.layout) == "replicate@[0]"
    assert x.layout.is_replicated
    assert not isinstance(x, gt.DTensor)
    assert not isinstance(3, gt.DTensor)
    assert x.to_local().tolist() == [[1.0] * 3] * 2
    assert repr(gt.distribute(x, dim=0).layout) == "shard(0)@[0,1,2,3]"
    assert repr(gt.distribute(x).layout) == "replicate@[0,1,2,3]"
    assert repr(gt.distribute(x, LINE).layout) == "replicate@[0,1,2,3]"
    assert isinstance(gt.DTensor(x, Layout(LINE, x.shape, 0)), gt.DTensor)


def test_methods_change_the_placement_of_a_tensor():
    x = gt.distribute(gt.tensor(VALUES), Layout(MESH["dp"], (5, 7), 0))
    assert repr(x.shard(1).layout) == "shard(0),shard(1)@[[0,1],[2,3]]"
    assert repr(x.shard(1, MESH["dp"]).layout) == "shard(1),replicate@[[0,1],[2,3]]"
    assert x.all_gather().layout.is_replicated
    assert x.all_reduce() is x
    assert x.redistribute(Layout(LINE, (5, 7), 1)).layout == Layout(LINE, (5, 7), 1)
    assert repr(gt.ones(4).shard(0).layout) == "shard(0)@[0,1,2,3]"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Layout(LINE, (5, 7), 2), IndexError, "dimension 2 of a tensor of 2 dimensions"),
        (lambda: Layout(LINE, (5,), placements=[Shard(3)]), ValueError, "dimension 3 of a tensor"),
        (
            lambda: Layout(MESH, (5, 7), placements=[Shard(0), Shard(0)]),
            ValueError,
            "dimension 0 is cut twice",
        ),
        (
            lambda: Layout(LINE, (5, 7), placements=[Shard(1, blocks=3)]),
            ValueError,
            "3 blocks do not divide dimension 1 of size 7",
        ),
        (
            lambda: Layout(gt.DeviceMesh(2), (5,), placements=[Shard(0, ranges=[(0, 2), (3, 5)])]),
            ValueError,
            "do not hold each of 5 indexes once",
        ),
        (
            lambda: Layout(LINE, (5,), placements=[Shard(0, ranges=[(0, 5)])]),
            ValueError,
            "1 ranges for 4 workers",
        ),
        (lambda: Layout(LINE, (5,), placements=[Partial("mean")]), ValueError, "none of replicate"),
        (lambda: Layout(LINE, (5,), placements=["shard"]), TypeError, "placements are Replicate"),
        (lambda: Layout(LINE, (5,), placements=[Shard(0)] * 2), ValueError, "2 placements for"),
        (lambda: Layout(LINE, (5,), 0, [Shard(0)]), ValueError, "not with placements"),
        (lambda: Shard(0, 2, [(0, 1)]), ValueError, "blocks or ranges"),
        (lambda: gt.ones(3).redistribute(Layout(LINE, (4,))), RuntimeError, "of shape"),
        (lambda: gt.ones(3).redistribute("shard(0)"), TypeError, "expected a Layout"),
        (lambda: gt.distribute(gt.ones(3), "shard(0)"), TypeError, "expected a Layout"),
        (lambda: gt.ones(3).to_local(1), IndexError, "member 1 of 1"),
    ],
)
def test_mistakes_in_a_layout(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_a_worker_that_is_not_there_is_an_error_of_the_tensor():
    x = gt.distribute(gt.ones(3), Layout(gt.DeviceMesh(2, [0, 9]), (3,), 0))
    with pytest.raises(gt.WorkerError, match=r"worker 9 of layout .* is not connected"):
        x.tolist()
    with pytest.raises(gt.WorkerError, match="worker 9"):
        print(x.layout)


def test_gradients_pass_through_layouts():
    x = gt.tensor(VALUES, requires_grad=True)
    y = gt.distribute(x, Layout(MESH, (5, 7), placements=[Shard(0), Shard(1)]))
    (y.all_gather().redistribute(Layout(LINE, (5, 7), 0)) ** 2).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * VALUES)


# ---- explain and counters ----


def test_explain_says_where_why_and_what_moved():
    x = gt.ones(256, 256)
    assert gt.explain(x).layout == "replicate@[0]"
    assert gt.explain(x).why.startswith("placed with its operands")
    y = gt.distribute(x, dim=0)
    explanation = gt.explain(y)
    assert explanation.layout == "shard(0)@[0,1,2,3]"
    assert explanation.why == "asked for by the program"
    assert explanation.moved_bytes == 256 * 256 * 4 * 3 // 4
    assert "test_layouts.py" in explanation.line
    total = y.sum()  # partial: nothing moves yet
    explanation = gt.explain(total)
    assert explanation.layout == "partial(sum)@[0,1,2,3]"
    assert explanation.why.startswith("sum follows its operands: %")
    assert explanation.moved_bytes == 0
    assert total.item() == 256 * 256
    assert gt.explain(total).why == "a read made it whole"
    assert "layout:  replicate@[0,1,2,3]\n" in str(gt.explain(total))


def test_explain_names_what_had_to_be_resharded():
    whole = gt.ones(256, 256)
    product = gt.distribute(gt.ones(256, 256), dim=0) @ whole
    assert repr(product.layout) == "shard(0)@[0,1,2,3]"
    explanation = gt.explain(product)
    assert explanation.moved_bytes == 256 * 256 * 4 * 3
    (reshard,) = explanation.reshards
    assert reshard.endswith("from replicate@[0] to replicate@[0,1,2,3]")
    assert gt.explain(whole).why == f"{explanation.value.split()[0]} needed this layout"


def test_explain_of_what_cannot_be_placed_raises_why():
    lost = gt.distribute(gt.ones(3), Layout(gt.DeviceMesh(1, [9]), (3,))) + 1
    with pytest.raises(gt.WorkerError, match="worker 9"):
        gt.explain(lost)


def test_explain_names_the_signal():
    with gt.signal.context("attention"):
        y = gt.distribute(gt.ones(4), dim=0) * 2
    assert gt.explain(y).signal == "attention"


@pytest.mark.parametrize("rank", range(1, 9))
def test_running_sums_along_a_cut(rank):
    """Each dimension of each rank, with shards of one length and of two."""
    array = np.arange(2.0 * 3 ** (rank - 1)).reshape((2, *[3] * (rank - 1)))
    for dim in range(rank):
        cut = gt.distribute(gt.tensor(array), gt.DeviceMesh(2), dim=dim)
        np.testing.assert_array_equal(cut.cumsum(dim).numpy(), array.cumsum(dim))


def test_what_passes_contributions_on_is_decided_dtype_by_dtype():
    """A cast to more digits leaves them as they are, one to integers must not: 3.2 - 1.6 is 1."""
    parts = gt.distribute(gt.tensor([[3.2] * 50, [-1.6] * 50]), gt.DeviceMesh(2), dim=0)
    assert parts.sum(0).double().layout.placements == (Partial("sum"),)
    assert parts.sum(0).int().tolist() == [1] * 50
    assert parts.sum(0).sum(0, dtype=gt.int64).item() == 50
    assert parts.sum(0).cumsum(0, dtype=gt.int64).tolist() == list(range(1, 51))
    counts = gt.distribute(gt.full((2, 50), 2**30, dtype=gt.int32), gt.DeviceMesh(2), dim=0)
    total = counts.sum(0, dtype=gt.int32)  # wraps round
    assert (total * 1).tolist() == [-(2**31)] * 50
    assert (total * 0.5).tolist() == [-(2.0**30)] * 50


def test_what_passes_a_maximum_on_is_decided_slope_by_slope():
    """A function that rises may be taken of each contribution, one that falls must not."""
    values = np.random.default_rng(0).uniform(-2, 2, (400, 50))
    parts = gt.distribute(gt.tensor(values), LINE, dim=0)
    least = values.min(0)
    for slope in (0.25, -0.5, 2.0, -0.5):
        actual = gt.nn.functional.leaky_relu(parts.amin(0), slope)
        np.testing.assert_array_equal(actual.numpy(), np.where(least > 0, least, slope * least))


def test_what_is_no_number_is_not_lost_in_a_maximum():
    """A sign makes 0 of it, which another contribution's 1 would hide."""
    values = np.random.default_rng(0).uniform(1, 2, (400, 50))
    values[3, ::2] = np.nan
    most = gt.distribute(gt.tensor(values), LINE, dim=0).amax(0)
    np.testing.assert_array_equal(most.sign().numpy(), gt.tensor(values).amax(0).sign().numpy())


@pytest.mark.parametrize("reduction", ["amax", "amin"])
def test_bounds_with_contributions_of_their_own(reduction):
    """The least of two contributions is nothing that a maximum of contributions passes."""
    values = np.random.default_rng(0).uniform(-2, 2, (3, 400, 50))
    x, least, most = (
        getattr(gt.distribute(gt.tensor(one), LINE, dim=0), reduction)(0) for one in values
    )
    a, low, high = getattr(values, reduction[1:])(1)
    np.testing.assert_array_equal(gt.clamp(x, least), np.maximum(a, low))
    np.testing.assert_array_equal(gt.clamp(x, max=most), np.minimum(a, high))
    np.testing.assert_array_equal(gt.clamp(x, least, most), np.minimum(np.maximum(a, low), high))


def test_contributions_to_a_maximum_and_to_a_minimum_are_two_layouts():
    values = np.random.default_rng(0).uniform(-2, 2, (2, 400, 50))
    shape = values.shape[1:]
    first = gt.distribute(gt.tensor(values[0]), Layout(MESH, shape, placements=[Shard(0)]))
    placements = [Replicate(), Shard(0)]
    second = gt.distribute(gt.tensor(values[1]), Layout(MESH, shape, placements=placements))
    actual = gt.maximum(first.amax(0), second.amin(0))
    assert {one.op for one in actual.layout.placements if isinstance(one, Partial)} <= {"max"}
    np.testing.assert_array_equal(actual, np.maximum(values[0].max(0), values[1].min(0)))


def test_counters_tell_what_was_kept_reduced_gathered_and_fetched():
    before = gt.debug.stats()

    def since(*names: str) -> list[int]:
        now = gt.debug.stats()
        return [now[name] - before[name] for name in names]

    size = 256 * 256 * 4
    x = gt.distribute(gt.ones(256, 256), dim=0)
    assert since("fetched", "transfers", "moved_bytes") == [1, 3, size * 3 // 4]
    y = (x * 2).sum()
    assert since("kept", "reduced", "gathered") == [2, 0, 0]
    y.all_reduce()
    assert since("kept", "reduced", "gathered", "all_reduces") == [2, 1, 0, 1]
    x.all_gather()
    assert since("kept", "reduced", "gathered", "all_gathers") == [2, 1, 1, 1]
    assert since("moved_bytes") == [size * 3 // 4 + 2 * 4 * 3 + size * 3]


# ---- the same from another process ----


@pytest.mark.parametrize("settings", [{}, {"GT_NO_RING": "1"}], ids=["ring", "tcp"])
def test_a_connected_client_knows_its_layouts(settings):
    code = """
x = gt.distribute(gt.ones(256, 256), gt.Layout(gt.DeviceMesh(2), (256, 256), 0))
print(x.layout, x.to_local(1).shape, isinstance(x, gt.DTensor), gt.distributed.get_world_size())
y = x.sum()
print(y.layout, gt.debug.stats()["kept"], gt.explain(y).moved_bytes)
try:
    gt.distribute(gt.ones(3), gt.Layout(gt.DeviceMesh(2, [0, 7]), (3,))).layout
except gt.WorkerError as error:
    print("worker 7" in str(error))
"""
    with Cluster(2) as cluster:
        cluster.wait_for_workers()
        printed = cluster.run(code, **settings).splitlines()
    assert printed[0] == "shard(0)@[0,1] gt.Size([128, 256]) True 2"
    assert printed[1] == "partial(sum)@[0,1] 2 0"
    assert printed[2] == "True"


# ---- failures ----


def test_of_several_steps_what_needs_a_failed_operand_fails_and_names_it():
    x = gt.distribute(gt.tensor(VALUES), dim=1).requires_grad_()
    weight = gt.ones(7, dtype=gt.float64, requires_grad=True)
    broken = gt.index_select(gt.tensor(VALUES[0]), 0, gt.tensor([70] * 7))
    y = gt.nn.functional.layer_norm(x, (7,), weight, broken)
    y.sum().backward()
    for failed in (y, y.sum(), y * weight):
        with pytest.raises(gt.errors.IndexOutOfRange, match="index_select"):
            failed.tolist()
    # The gradient's steps read no bias; what one worker would give without it is here.
    whole = gt.tensor(VALUES)
    gt.nn.functional.layer_norm(whole.requires_grad_(), (7,), weight.detach()).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), whole.grad.numpy(), atol=1e-12)


def test_an_update_stays_where_its_parameter_is():
    pair = gt.DeviceMesh(2, ranks=[2, 3])
    for optimizer in (gt.optim.SGD, gt.optim.AdamW):
        w = gt.nn.Parameter(gt.distribute(gt.ones(6, 4), Layout(pair, (6, 4), 0)))
        w.grad = gt.distribute(gt.ones(6, 4), Layout(MESH, (6, 4), 1))
        optimizer([w], lr=0.5).step()
        assert repr(w.layout) == "shard(0)@[2,3]"
        np.testing.assert_allclose(w.detach().numpy(), np.full((6, 4), 0.5), atol=0.01)


def test_a_single_element_is_where_the_others_are():
    pair = gt.DeviceMesh(2, ranks=[2, 3])
    x = gt.distribute(gt.ones(6, 4), Layout(pair, (6, 4), 0))
    scale = gt.distribute(gt.tensor(3.0))
    assert repr((x * scale).layout) == repr((scale * x).layout) == "shard(0)@[2,3]"
    assert (x * scale + scale).sum().item() == 144
