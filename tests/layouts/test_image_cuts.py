"""Images that are cut along their height, width or depth: convolutions and pools exchange the rows
around a cut and nothing else. Values and gradients are PyTorch's, whatever the sizes.
"""

import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from spread_session import workers

import gt
from gt import _core
from gt.aten import windows

# Prices with free messages, so that a plan's cost is that of its bytes.
FREE_MESSAGES = "message=0.001\nkernel=0\n"
# (library, operands) -> the result.
Call = Callable[..., Any]


@pytest.fixture(scope="module", params=[2, 4], ids="{} workers".format)
def count(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    prices = tmp_path_factory.mktemp("prices") / "prices"
    prices.write_text(FREE_MESSAGES, encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GT_PRICES", str(prices))
        with workers(request.param):
            yield request.param


def values(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.4


def functional(name: str, **arguments: object) -> Call:
    return lambda lib, *operands: getattr(lib.nn.functional, name)(*operands, **arguments)


def gathers() -> int:
    counts = gt.debug.stats()
    return counts["all_gathers"] + counts["gathered"]


def check(call: Call, operands: Sequence[torch.Tensor], layout: Callable[[Any], Any]) -> int:
    """Results and all gradients equal PyTorch's, with a layout of the first operand.

    Returns the number of gathers.
    """
    results, gathered = [], 0
    for lib in (gt, torch):
        leaves = [x.clone() if lib is torch else gt.from_numpy(x.numpy()) for x in operands]
        if lib is gt:
            leaves[0] = layout(leaves[0])
        leaves = [x.requires_grad_() for x in leaves]
        before = gathers() if lib is gt else 0
        y = call(lib, *leaves)
        grads = lib.autograd.grad((y * y * y).sum(), leaves)
        gathered += gathers() - before if lib is gt else 0
        results.append([y.detach(), *grads])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(torch.from_numpy(ours.numpy()), theirs, rtol=1e-10, atol=1e-10)
    return gathered


# Kernel, stride, padding and dilation.
WINDOWS = [
    (3, 1, 1, 1), (3, 1, 0, 1), (3, 2, 1, 1), (2, 2, 0, 1), (1, 1, 0, 1), (1, 3, 0, 1),
    (2, 3, 1, 1), (5, 1, 2, 1), (5, 2, 0, 1), (3, 1, 2, 2), (2, 2, 3, 3), (7, 3, 3, 1),
    (4, 1, 0, 1),
]  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("dim", [2, 3], ids=["height", "width"])
def test_a_convolution_of_a_cut_image(count: int, dim: int, window: tuple[int, ...]) -> None:
    kernel, stride, padding, dilation = window
    call = functional("conv2d", stride=stride, padding=padding, dilation=dilation)
    operands = [values(2, 3, 23, 22), values(4, 3, kernel, kernel), values(4)]
    assert check(call, operands, lambda x: gt.distribute(x, dim=dim)) == 0


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_transposed_convolution_of_a_cut_image(count: int, window: tuple[int, ...]) -> None:
    kernel, stride, padding, dilation = window
    for added in range(min(2, max(stride, dilation))):
        call = functional(
            "conv_transpose2d",
            stride=stride,
            padding=padding,
            dilation=dilation,
            output_padding=added,
        )
        operands = [values(2, 3, 17, 6), values(3, 4, kernel, kernel), values(4)]
        assert check(call, operands, lambda x: gt.distribute(x, dim=2)) == 0


POOLS: dict[str, dict[str, object]] = {
    "two": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "apart": {"kernel_size": 2, "stride": 3},
    "rounded up": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "rounded up, padded": {"kernel_size": 4, "stride": 3, "padding": 2, "ceil_mode": True},
    "of each step": {"kernel_size": 3, "stride": 1},
}


@pytest.mark.parametrize("pool", ["max", "avg"])
@pytest.mark.parametrize("arguments", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_pool_of_a_cut_image(
    count: int, pool: str, arguments: dict[str, object], dims: int
) -> None:
    call = functional(f"{pool}_pool{dims}d", **arguments)
    image = values(2, 3, *(23, 7, 8)[:dims])
    assert check(call, [image], lambda x: gt.distribute(x, dim=2)) == 0
    image = image.transpose(2, -1).contiguous()
    assert check(call, [image], lambda x: gt.distribute(x, dim=x.ndim - 1)) == 0


def test_a_pool_counts_its_padding_or_does_not(count: int) -> None:
    for arguments in ({"count_include_pad": False}, {"divisor_override": 5}):
        call = functional("avg_pool2d", kernel_size=3, stride=2, padding=1, **arguments)
        assert check(call, [values(2, 3, 21, 8)], lambda x: gt.distribute(x, dim=2)) == 0


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_places_of_a_maximum_are_those_of_the_whole_image(count: int, dim: int) -> None:
    image = values(2, 3, 11, 10, 9)
    cut = gt.distribute(gt.from_numpy(image.numpy()), dim=dim)
    before = gathers()
    found = gt.nn.functional.max_pool3d(cut, 3, 2, 1, return_indices=True)
    assert gathers() == before
    expected = torch.nn.functional.max_pool3d(image, 3, 2, 1, return_indices=True)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(torch.from_numpy(ours.numpy()), theirs)


def test_the_gradient_of_a_maximum_with_its_places_on_a_cut_line(count: int) -> None:
    line = values(2, 3, 16)
    slopes = []
    for lib in (torch, gt):
        x = line.clone() if lib is torch else gt.distribute(gt.tensor(line.numpy()), dim=2)
        x.requires_grad_()
        pooled, places = lib.nn.functional.max_pool1d(x, 2, 2, return_indices=True)
        opened = lib.nn.functional.max_unpool1d(pooled, places, 2, 2)
        (opened * opened + x).sum().backward()
        slopes.append(x.grad.tolist())
    assert slopes[0] == slopes[1]


@pytest.mark.parametrize("name", ["conv1d", "conv3d", "conv_transpose1d", "conv_transpose3d"])
def test_images_of_one_and_of_three_dimensions(count: int, name: str) -> None:
    dims = int(name[-2])
    call = functional(name, stride=2, padding=1)
    operands = [values(2, 3, *(19, 9, 8)[:dims]), values(3, 3, *(3,) * dims), values(3)]
    assert check(call, operands, lambda x: gt.distribute(x, dim=2)) == 0


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("kernel", [3, 4])
def test_padding_as_a_word(count: int, padding: str, kernel: int) -> None:
    call = functional("conv2d", padding=padding)
    operands = [values(2, 3, 18, 9), values(4, 3, kernel, kernel), values(4)]
    assert check(call, operands, lambda x: gt.distribute(x, dim=2)) == 0


def test_groups_and_images_without_a_batch(count: int) -> None:
    for call, operands in (
        (functional("conv2d", groups=3, padding=1), [values(2, 6, 16, 9), values(9, 2, 3, 3)]),
        (functional("conv_transpose2d", groups=2), [values(2, 4, 16, 9), values(4, 2, 3, 3)]),
        (functional("conv2d", padding=1), [values(3, 16, 9), values(4, 3, 3, 3), values(4)]),
        (functional("max_pool2d", kernel_size=3, stride=1), [values(3, 16, 9)]),
    ):
        dim = operands[0].ndim - 2
        assert check(call, operands, functools.partial(gt.distribute, dim=dim)) == 0


# Shards of 23 rows over two and four workers: of one row, of none at all, out of order.
UNEVEN = {
    2: [((0, 20), (20, 23)), ((0, 2), (2, 23)), ((0, 22), (22, 23)), ((0, 23), (23, 23))],
    4: [
        ((0, 1), (1, 3), (3, 20), (20, 23)), ((0, 12), (12, 13), (13, 14), (14, 23)),
        ((0, 12), (12, 12), (12, 20), (20, 23)), ((5, 9), (0, 5), (9, 15), (15, 23)),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "window", [(7, 1, 3, 1), (3, 2, 1, 1), (2, 2, 0, 1), (3, 1, 4, 4)], ids=str
)
def test_shards_of_any_size(count: int, window: tuple[int, ...]) -> None:
    """Shards that are smaller than the rows around them reach over several neighbours; where a
    worker would have nothing to compute, the image is gathered.
    """
    kernel, stride, padding, dilation = window
    call = functional("conv2d", stride=stride, padding=padding, dilation=dilation)
    pool = functional("max_pool2d", kernel_size=3, stride=stride, padding=1)
    for ranges in UNEVEN[count]:
        shard = gt.Shard(2, ranges=list(ranges))

        def layout(x: gt.Tensor, shard: gt.Shard = shard) -> gt.Tensor:
            return gt.distribute(x, gt.Layout(gt.DeviceMesh(count), x.shape, placements=[shard]))

        check(call, [values(2, 3, 23, 9), values(4, 3, kernel, kernel), values(4)], layout)
        check(pool, [values(2, 3, 23, 9)], layout)


@pytest.mark.parametrize("dims", list(itertools.permutations(range(4), 2)), ids=str)
def test_two_dimensions_are_cut(count: int, dims: tuple[int, int]) -> None:
    """Batch, channels, height, width: any two of them over a mesh of two dimensions."""
    mesh = gt.DeviceMesh((count // 2, 2))

    def layout(x: gt.Tensor) -> gt.Tensor:
        placements = [gt.Shard(dim) for dim in dims]
        return gt.distribute(x, gt.Layout(mesh, x.shape, placements=placements))

    image, weight = values(3, 4, 13, 12), values(5, 4, 3, 3)
    for stride in (1, 2):
        # Sharded channels make the results partial sums, which the next line needs whole.
        conv, transposed = (
            check(functional(name, stride=stride, padding=1), [image, x, values(5)], layout)
            for name, x in (("conv2d", weight), ("conv_transpose2d", weight.transpose(0, 1)))
        )
        assert 1 in dims or conv == transposed == 0
        for pool in ("max_pool2d", "avg_pool2d"):
            call = functional(pool, kernel_size=3, stride=stride, padding=1)
            assert check(call, [image], layout) == 0


def test_a_sum_is_reduced_before_its_rows_are_sent(count: int) -> None:
    """And is read afterwards as what it is: shards that overlap are no layout of a value."""
    image, weight = values(2, 3, 16, 9), values(4, 3, 3, 3)
    mesh = gt.DeviceMesh((count // 2, 2))
    placements = [gt.Partial("sum"), gt.Shard(2)]
    x = gt.distribute(
        gt.from_numpy(image.numpy()), gt.Layout(mesh, image.shape, placements=placements)
    )
    w = gt.from_numpy(weight.numpy())
    for _ in range(2):
        y = gt.nn.functional.conv2d(x, w, padding=1)
        expected = torch.nn.functional.conv2d(image, weight, padding=1)
        torch.testing.assert_close(torch.from_numpy(y.numpy()), expected)
        torch.testing.assert_close(torch.from_numpy(x.numpy()), image)


def moved(call: Callable[[], Any]) -> tuple[Any, int, int]:
    """Result of a call, the bytes that it moved, and messages between workers."""
    before = gt.debug.stats()
    result = call()
    gt.synchronize()
    after = gt.debug.stats()
    return result, *(after[name] - before[name] for name in ("moved_bytes", "transfers"))


def test_rows_around_a_cut_are_all_that_travels(count: int) -> None:
    rows, width, channels, made = 32, 9, 3, 5
    x = gt.distribute(gt.randn(2, channels, rows, width), dim=2).requires_grad_()
    weight = gt.distribute(gt.randn(made, channels, 3, 3)).requires_grad_()
    neighbours = 2 * (count - 1)
    of_image, of_result = 4 * 2 * channels * width, 4 * 2 * made * width  # bytes of a row

    y, moved_bytes, messages = moved(lambda: gt.nn.functional.conv2d(x, weight, padding=1))
    assert (moved_bytes, messages) == (neighbours * of_image, neighbours)
    assert repr(y.layout) == f"shard(2)@[{','.join(map(str, range(count)))}]"

    g = gt.ones_like(y)
    (grad,), moved_bytes, messages = moved(lambda: gt.autograd.grad(y, [x], g, retain_graph=True))
    # A row of the gradients, and what their windows reach.
    assert (moved_bytes, messages) == (neighbours * (2 * of_image + of_result), 2 * neighbours)
    assert grad.layout == x.layout

    y = gt.nn.functional.conv2d(x.detach(), weight, padding=1)
    (grad,), moved_bytes, messages = moved(lambda: gt.autograd.grad(y, [weight], g))
    assert (moved_bytes, messages) == (neighbours * of_image, neighbours)
    assert grad.layout.is_partial  # a sum over the members, like every gradient of a whole weight

    pooled, moved_bytes, _ = moved(lambda: gt.nn.functional.max_pool2d(y.detach(), 2))
    assert moved_bytes == 0
    assert pooled.layout.placements == y.layout.placements


LAYOUTS = """
pictures:
  shard: {axis: 2, workers: [0, 1]}
"""


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[None]:
    for name, text in (("layouts.yaml", LAYOUTS), ("none.yaml", "")):
        (tmp_path / name).write_text(text, encoding="ascii")
    gt.load_config(tmp_path / "layouts.yaml")
    yield
    gt.load_config(tmp_path / "none.yaml")


def test_a_network_on_pictures_that_a_file_cuts(count: int, configured: None) -> None:
    """The file alone says that pictures are cut along their height."""
    generator = torch.Generator().manual_seed(3)
    pictures = torch.rand(4, 3, 24, 16, generator=generator, dtype=torch.float64)
    losses = []
    for lib in (torch, gt):
        layers = lib.nn.Sequential(
            lib.nn.Conv2d(3, 8, 3, padding=1), lib.nn.BatchNorm2d(8), lib.nn.ReLU(),
            lib.nn.MaxPool2d(2), lib.nn.Conv2d(8, 8, 5, stride=2, padding=2), lib.nn.GELU(),
            lib.nn.ConvTranspose2d(8, 3, 4, stride=4), lib.nn.AvgPool2d(3, 1, 1),
        ).double()  # fmt: skip
        if lib is torch:
            states = {name: x.clone() for name, x in layers.state_dict().items()}
            x = pictures
        else:
            layers.load_state_dict(
                {name: gt.from_numpy(value.numpy()) for name, value in states.items()}
            )
            with gt.signal.context("pictures"):
                x = gt.tensor(pictures.numpy()) * 1
            assert repr(x.layout) == "shard(2)@[0,1]"
        optimizer = lib.optim.SGD(layers.parameters(), lr=0.5)
        before = gathers() if lib is gt else 0
        losses.append([])
        for _ in range(3):
            optimizer.zero_grad()
            loss = ((layers(x) - x) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert gathers() == before
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)


MODES = {
    "nearest": 1, "nearest-exact": 1, "linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3,
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factor", [1, 2, 4])
def test_an_image_grows_by_a_power_of_two(count: int, mode: str, factor: int) -> None:
    every = (1, 2, 3) if mode.startswith("nearest") else (MODES[mode],)
    for dims in every:
        image = values(2, 3, *(11, 6, 5)[:dims])
        for arguments in (
            {"scale_factor": factor}, {"size": [factor * size for size in image.shape[2:]]},
            {"scale_factor": [float(factor), 2.0, 1.0][:dims]},
        ):  # fmt: skip
            call = functional("interpolate", mode=mode, **arguments)
            assert check(call, [image], lambda x: gt.distribute(x, dim=2)) == 0
            turned = image.transpose(2, -1).contiguous()
            if "size" not in arguments:
                assert check(call, [turned], lambda x: gt.distribute(x, dim=x.ndim - 1)) == 0


def test_an_image_that_grows_keeps_shards_of_any_size(count: int) -> None:
    for mode, ranges in itertools.product(("nearest", "bilinear", "bicubic"), UNEVEN[count]):
        call = functional("interpolate", mode=mode, scale_factor=2)
        shard = gt.Shard(2, ranges=list(ranges))
        mesh = gt.DeviceMesh(count)
        check(
            call,
            [values(1, 2, 23, 6)],
            lambda x, shard=shard, mesh=mesh: gt.distribute(
                x, gt.Layout(mesh, x.shape, placements=[shard])
            ),
        )


@pytest.mark.parametrize(
    "arguments",
    [
        {"scale_factor": 3.0}, {"scale_factor": 2.5}, {"scale_factor": 0.5}, {"size": [30, 7]},
        {"scale_factor": 2.0, "mode": "bilinear", "align_corners": True},
        {"scale_factor": 2.0, "mode": "bicubic", "antialias": True},
        {"scale_factor": 2.0, "recompute_scale_factor": True},
        {"size": [5, 3], "mode": "area"},
    ],
    ids=str,
)  # fmt: skip
def test_an_image_of_which_no_part_grows_alone_is_gathered(
    count: int, arguments: dict[str, Any]
) -> None:
    check(
        functional("interpolate", **arguments),
        [values(2, 3, 12, 6)],
        lambda x: gt.distribute(x, dim=2),
    )


@pytest.mark.parametrize("size", [1, 6, [12, 1], [8, 2], [4, None]], ids=str)
def test_adaptive_averages_of_windows_that_are_alike(count: int, size: Any) -> None:
    call = functional("adaptive_avg_pool2d", output_size=size)
    assert check(call, [values(2, 3, 24, 6)], lambda x: gt.distribute(x, dim=2)) == 0
    sizes = [*size, 2] if isinstance(size, list) else size
    call = functional("adaptive_avg_pool3d", output_size=sizes)
    assert check(call, [values(3, 24, 6, 6)], lambda x: gt.distribute(x, dim=1)) == 0


def test_adaptive_averages_in_half_precision_have_a_kernel() -> None:
    for dtype, size in itertools.product(("float16", "bfloat16"), (1, 2)):
        image = values(2, 3, 4, 4, 4).float()
        found = gt.nn.functional.adaptive_avg_pool3d(
            gt.from_numpy(image.numpy()).to(getattr(gt, dtype)), size
        )
        expected = torch.nn.functional.adaptive_avg_pool3d(
            image.to(getattr(torch, dtype)), size
        ).float()
        assert torch.equal(torch.from_numpy(found.float().numpy()), expected)


def test_other_adaptive_pools_are_gathered(count: int) -> None:
    for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
        for size in (5, [3, 4], [7, 1]):
            call = functional(name, output_size=size)
            check(call, [values(2, 3, 12, 9)], lambda x: gt.distribute(x, dim=2))


def test_every_line_is_a_convolution_or_a_pool_of_these_tests() -> None:
    names = {name.partition(".")[0] for name in windows.overloads() if "upsample" not in name}
    families = {"conv", "conv_transpose", "max_pool", "avg_pool"}
    listed = {f"{family}{dims}d" for family in families for dims in (1, 2, 3)}
    assert names == listed | {f"max_pool{dims}d_with_indices" for dims in (1, 2, 3)}


# Too few numbers, no whole number of dimensions, kinds, dimensions and sizes that there are not.
FALSE_WINDOWS = [
    [], [0], [0, -1, 0], [0, -1, 9, 0, 0, 1, 1, 0, 0, 0], [0, -1, 0, 7, 0, 1, 1, 0, 0, 0],
    [0, -1, 0, 0, 7, 1, 1, 0, 0, 0], [0, -1, 0, 0, 0, 0, 1, 0, 0, 0],
    [0, -1, 0, 0, 0, 1, 0, 0, 0, 0],
    [0, -1, 0, 0, 0, 2**62, 2**62, 2**62, 2**62, 0], [0, -1, 0, 0, 0, 1, 1, -(2**63), 0, 0],
    [7, -1, 0, 0, 0, 1, 1, 0, 0, 0], [-7, 5, 0, 0, 0, 1, 1, 0, 0, 0],
]  # fmt: skip


@pytest.mark.parametrize("stated", FALSE_WINDOWS, ids=str)
def test_windows_that_cannot_be_are_not_made(count: int, stated: list[int]) -> None:
    x = gt.distribute(gt.arange(15.0).reshape(5, 3), dim=0)
    assert emitted(x, stated).tolist() == torch.arange(15.0).reshape(5, 3).exp().tolist()


def test_windows_that_are_false_give_a_failure(count: int) -> None:
    """Results that the operator does not have are missed where a worker keeps its own."""
    x = gt.distribute(gt.arange(24.0).reshape(8, 3), dim=0)
    with pytest.raises(gt.Error, match="of dimension 0 of"):
        emitted(x, [0, -1, 0, 0, 0, 1, 2, 0, 0, 0]).tolist()


def emitted(x: gt.Tensor, stated: list[int]) -> gt.Tensor:
    made = _core.call(
        "aten", x, overload="exp", arguments="_0", wanted=[], results=[8, x.ndim, *x.shape],
        differentiable=False, default=gt.float32, windows=stated,
    )  # fmt: skip
    assert isinstance(made, gt.Tensor)
    return made


IMAGES_WITHOUT_TORCH = """
import gt
gt.gpu_workers(2)
F = gt.nn.functional
x = gt.arange(2 * 3 * 12 * 6).reshape(2, 3, 12, 6).float().sin()
w = gt.arange(4 * 3 * 9).reshape(4, 3, 3, 3).float().cos().requires_grad_()
found = []
for cut in (False, True):
    image = (gt.distribute(x, dim=2) if cut else x).requires_grad_()
    before = gt.debug.stats()["gathered"]
    y = F.avg_pool2d(F.max_pool2d(F.conv2d(image, w, padding=1), 3, 2, 1), 2, 1)
    grads = gt.autograd.grad((y * y).sum(), [image, w])
    assert not cut or "shard(2)" in repr(y.layout), y.layout
    assert gt.debug.stats()["gathered"] == before
    found.append([y.detach(), *grads])
for one, other in zip(*found):
    assert gt.allclose(one, other, rtol=1e-4, atol=1e-4), (one - other).abs().max()
print("alike")
"""


def test_workers_without_torch_cut_images_too(tmp_path: Path) -> None:
    prices = tmp_path / "prices"
    prices.write_text(FREE_MESSAGES, encoding="ascii")
    settings = {"GT_BACKEND": "native", "GT_PRICES": str(prices)}
    done = subprocess.run(
        [sys.executable, "-c", IMAGES_WITHOUT_TORCH],
        env=os.environ | settings, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("alike\n", 0), done.stderr
