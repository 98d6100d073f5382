"""Display of tensors on several workers: text and layout, and a grid for notebooks.

Tensors on one worker, and those that every worker holds, are shown exactly as PyTorch shows them.
"""

import html
import itertools
import re

import numpy as np
import pytest
import torch
from spread_session import workers

import gt
from gt import printing
from gt.distributed import Layout, Replicate, Shard
from gt.distributed.picture import COLOURS, PARTS_MAX, grid

MESH = gt.DeviceMesh((2, 2), names=("dp", "tp"))
SPREAD = [
    (gt.DeviceMesh(4), [Shard(0)]),
    (gt.DeviceMesh(4), [Shard(1)]),
    (gt.DeviceMesh(2, [3, 1]), [Shard(1)]),
    (MESH, [Shard(0), Shard(1)]),
    (MESH, [Shard(1), Shard(0)]),
    (MESH, [Shard(0), Replicate()]),
    (MESH, [Replicate(), Shard(1)]),
    (MESH, [Shard(1, blocks=2), Shard(0)]),
]
WHOLE = [(gt.DeviceMesh(4), [Replicate()]), (MESH, [Replicate()] * 2), (gt.DeviceMesh(1, [2]), [])]
SHAPES = [(5, 8), (1, 2), (3, 40), (0, 4), (40, 60)]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"]
OPTIONS = [{}, {"precision": 2}, {"edgeitems": 1, "threshold": 10}, {"linewidth": 40}]


@pytest.fixture(scope="module", autouse=True)
def four_workers():
    with workers(4):
        yield


def pair(shape, dtype, *, grad=False):
    """Equal tensors of PyTorch and of GT."""
    values = np.random.default_rng(3).integers(0, 9, shape).astype(np.float32)
    theirs = torch.tensor(values).to(getattr(torch, dtype))
    ours = gt.tensor(values).to(getattr(gt, dtype))
    return theirs.requires_grad_(grad), ours.requires_grad_(grad)


def text_of(theirs):
    return repr(theirs).replace("torch.", "gt.")


def shown(x):
    """The text of a spread tensor, and the layout at its end."""
    match = re.fullmatch(r"(.*),\s+layout=([^\s]+)\)", repr(x), re.DOTALL)
    assert match, repr(x)
    return match[1] + ")", match[2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_spread_tensor_shows_pytorchs_text_and_its_layout(dtype):
    for shape, (mesh, placements) in itertools.product(SHAPES, SPREAD):
        theirs, ours = pair(shape, dtype)
        x = gt.distribute(ours, Layout(mesh, shape, placements=placements))
        text, layout = shown(x)
        assert layout == str(x.layout) == gt.explain(x).layout
        assert re.sub(r",\s+dtype", ", dtype", text) == re.sub(
            r",\s+dtype", ", dtype", text_of(theirs)
        )
        assert str(x) == repr(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_that_each_holder_has_whole_shows_pytorchs_text_alone(dtype):
    for shape, (mesh, placements) in itertools.product(SHAPES, WHOLE):
        theirs, ours = pair(shape, dtype)
        x = gt.distribute(ours, Layout(mesh, shape, placements=placements))
        for tensor in (ours, x):
            assert re.sub(r",\s+dtype", ", dtype", repr(tensor)) == re.sub(
                r",\s+dtype", ", dtype", text_of(theirs)
            )
            assert tensor._repr_html_() == f"<pre>{html.escape(repr(tensor))}</pre>"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_options_hold_for_spread_tensors(options):
    try:
        torch.set_printoptions(**options)
        gt.set_printoptions(**options)
        for shape in SHAPES:
            theirs, ours = pair(shape, "float32")
            x = gt.distribute(ours, Layout(gt.DeviceMesh(4), shape, 0))
            assert shown(x) == (text_of(theirs), "shard(0)@[0,1,2,3]")
            assert len(repr(x).splitlines()[-1]) <= options.get("linewidth", 80)
    finally:
        torch.set_printoptions(profile="default")
        gt.set_printoptions(profile="default")


def test_the_layout_comes_after_what_pytorch_shows_of_gradients():
    theirs, ours = pair((4, 2), "float32", grad=True)
    x = gt.distribute(ours.detach(), 0).requires_grad_()
    assert shown(x) == (text_of(theirs), "shard(0)@[0,1,2,3]")
    assert shown(x * 2)[0] == text_of(theirs * 2)
    parameter = gt.nn.Parameter(x.detach())
    assert repr(parameter) == "Parameter containing:\n" + repr(x)


def test_only_the_edges_of_a_spread_tensor_are_read(monkeypatch):
    x = gt.distribute(gt.zeros(500, 400), 0)
    read, original = [], printing._core.read_bytes

    def counted(tensor):
        data = original(tensor)
        read.append(len(data))
        return data

    monkeypatch.setattr(printing._core, "read_bytes", counted)
    assert repr(x).endswith("layout=shard(0)@[0,1,2,3])")
    assert read == [6 * 6 * 4]


# ---- notebooks ----


def cells(table):
    """The grid's rows: a heading, and the workers of each cell."""
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    headings = [re.findall(r"<th>(.*?)</th>", row) for row in rows]
    workers_of = [re.findall(r"<td [^>]*>workers? ([\d, ]+)</td>", row) for row in rows]
    named = [[set(map(int, one.split(", "))) for one in row] for row in workers_of[1:]]
    return headings[0][1:], [heading[0] for heading in headings[1:]], named


@pytest.mark.parametrize(("mesh", "placements"), SPREAD, ids=str)
@pytest.mark.parametrize("shape", [(5, 8), (7, 12), (1, 2), (3, 4)])
def test_the_grid_names_for_each_part_the_workers_that_hold_it(mesh, placements, shape):
    values = np.arange(np.prod(shape)).reshape(shape)  # each once
    x = gt.distribute(gt.tensor(values), Layout(mesh, shape, placements=placements))
    held = {
        rank: set(x.to_local(member).flatten().tolist()) for member, rank in enumerate(mesh.ranks)
    }
    columns, rows, named = cells(x._repr_html_())
    drawn = set()
    for row, column in itertools.product(range(len(rows)), range(len(columns))):
        part = part_of(values, rows[row]) & part_of(values, columns[column])
        assert named[row][column] == {rank for rank, one in held.items() if part <= one}
        drawn |= part
    assert drawn == set(values.flat)


def part_of(values, name):
    """The elements that a heading like `dim 1: 2:5` means; an empty one means all."""
    if not name:
        return set(values.flat)
    dim, start, end = map(int, re.fullmatch(r"dim (\d+): (\d+):(\d+)", name).groups())
    return set(values.take(range(start, end), axis=dim).flat)


@pytest.mark.parametrize(("mesh", "placements"), SPREAD, ids=str)
def test_local_ranges_are_the_indices_of_what_a_member_holds(mesh, placements):
    for shape in ((5, 8), (7, 12), (1, 2)):
        values = np.arange(np.prod(shape)).reshape(shape)
        x = gt.distribute(gt.tensor(values), Layout(mesh, shape, placements=placements))
        for member in range(mesh.size()):
            ranges = x.layout.local_ranges(member)
            index = [[k for start, end in one for k in range(start, end)] for one in ranges]
            assert x.to_local(member).tolist() == values[np.ix_(*index)].tolist()
            assert x.layout.local_shape(member) == tuple(map(len, index))


def test_a_read_reduces_so_that_nothing_is_shown_as_partial():
    total = gt.distribute(gt.ones(64, 64), 0).sum()
    assert total.layout.is_partial
    assert repr(total) == "tensor(4096.)"
    assert total._repr_html_() == "<pre>tensor(4096.)</pre>"


def test_a_notebooks_text_is_escaped_and_has_no_script():
    x = gt.distribute((gt.ones(4, 4, requires_grad=True) * 2), 0)
    shown_html = x._repr_html_()
    assert "grad_fn=&lt;" in shown_html
    assert "<script" not in shown_html
    assert shown_html.count("<table") == shown_html.count("</table>") == 1


def test_a_long_dimension_is_abridged_and_says_so():
    many = Layout(gt.DeviceMesh(40), (80, 3), 0)
    table = grid(many)
    assert table.count("<td") == PARTS_MAX
    assert f"only the first {PARTS_MAX} parts of a dimension are drawn" in table
    assert COLOURS[0] in table
