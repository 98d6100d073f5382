"""Modules and functions of gt.nn that run PyTorch's operators whole, against torch.nn."""

import functools

import numpy as np
import pytest
import torch

import gt

LIBRARIES = (gt, torch)
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def drawn(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def tensors(shapes):
    """Equal tensors in both libraries; a shape draws numbers, an array is taken as it is."""
    arrays = [x if isinstance(x, np.ndarray) else drawn(i, *x) for i, x in enumerate(shapes)]
    return [
        [library.tensor(x, requires_grad=x.dtype.kind == "f") for x in arrays]
        for library in LIBRARIES
    ]


def flat(value):
    return list(value) if isinstance(value, tuple) else [value]


def compare(calls, inputs, parameters=((), ())):
    """Both calls give the same values, and the same gradients of inputs and parameters."""
    outputs = [flat(call(*values)) for call, values in zip(calls, inputs, strict=True)]
    assert len(outputs[0]) == len(outputs[1])
    for library, values in zip(LIBRARIES, outputs, strict=True):
        total = 0.0
        for x in values:
            if x.requires_grad:
                total = total + (x * library.tensor(drawn(77, *x.shape))).sum()
        if not isinstance(total, float):
            total.backward()
    for ours, theirs in zip(*outputs, strict=True):
        assert ours.requires_grad == theirs.requires_grad
        equal(ours, theirs)
    for ours, theirs in zip(*inputs, strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            equal(ours.grad, theirs.grad)
    for ours, theirs in zip(*parameters, strict=True):
        equal(ours.grad, theirs.grad)


def equal(ours, theirs):
    ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, **CLOSE)


LINE, PLANE, BOX = (2, 4, 9), (2, 4, 9, 8), (2, 4, 5, 6, 7)
# name, arguments of the constructor, shapes of inputs
MODULES = [
    ("Conv1d", (4, 6, 3), {}, [LINE]),
    ("Conv1d", (4, 6, 3), {"padding": "same", "padding_mode": "circular"}, [LINE]),
    ("Conv1d", (4, 6, 3), {"bias": False, "groups": 2, "dilation": 2}, [(4, 9)]),
    ("Conv2d", (4, 6, 3), {}, [PLANE]),
    ("Conv2d", (4, 6, (3, 2)), {"stride": (2, 1), "padding": (1, 0), "dilation": 2}, [PLANE]),
    ("Conv2d", (4, 6, 3), {"padding": "same", "dilation": (1, 2)}, [PLANE]),
    ("Conv2d", (4, 6, 3), {"padding": (1, 2), "padding_mode": "reflect"}, [PLANE]),
    ("Conv2d", (4, 8, 3), {"padding": "valid", "padding_mode": "replicate"}, [PLANE]),
    ("Conv2d", (4, 8, 1), {"groups": 4, "bias": False}, [(4, 9, 8)]),
    ("Conv3d", (4, 3, 2), {"stride": 2, "padding": 1}, [BOX]),
    ("Conv3d", (4, 3, (1, 2, 3)), {"padding": (0, 1, 1), "padding_mode": "circular"}, [BOX]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, [LINE]),
    ("ConvTranspose2d", (4, 6, 3), {"padding": 1, "groups": 2, "bias": False}, [PLANE]),
    ("ConvTranspose2d", (4, 6, (2, 3)), {"stride": (2, 3), "dilation": 2}, [PLANE]),
    ("ConvTranspose3d", (4, 3, 2), {"stride": 2}, [(1, 4, 3, 3, 3)]),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, [LINE]),
    ("MaxPool1d", (3,), {"return_indices": True}, [(4, 9)]),
    ("MaxPool2d", (2,), {}, [PLANE]),
    ("MaxPool2d", ((3, 2),), {"stride": (2, 1), "padding": (1, 0), "ceil_mode": True}, [PLANE]),
    ("MaxPool2d", (2,), {"dilation": 2, "return_indices": True}, [PLANE]),
    ("MaxPool3d", (2,), {"return_indices": True}, [BOX]),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, [LINE]),
    ("AvgPool2d", (2,), {"ceil_mode": True}, [PLANE]),
    ("AvgPool2d", ((3, 2),), {"stride": 1, "padding": 1, "divisor_override": 5}, [PLANE]),
    ("AvgPool3d", (2,), {"stride": (1, 2, 2)}, [BOX]),
    ("LPPool1d", (3, 3), {}, [LINE]),
    ("LPPool2d", (2, (3, 2)), {"stride": 2}, [PLANE]),
    ("LPPool2d", (float("inf"), 2), {}, [PLANE]),
    ("LPPool2d", (-float("inf"), 2), {}, [PLANE]),
    ("LPPool3d", (4, 2), {"ceil_mode": True}, [BOX]),
    ("AdaptiveAvgPool1d", (4,), {}, [LINE]),
    ("AdaptiveAvgPool2d", ((3, None),), {}, [PLANE]),
    ("AdaptiveAvgPool2d", (1,), {}, [PLANE]),
    ("AdaptiveAvgPool3d", ((2, 3, None),), {}, [BOX]),
    ("AdaptiveMaxPool1d", (4,), {"return_indices": True}, [LINE]),
    ("AdaptiveMaxPool2d", ((None, 3),), {}, [PLANE]),
    ("AdaptiveMaxPool3d", (2,), {"return_indices": True}, [BOX]),
    ("ZeroPad1d", (2,), {}, [LINE]),
    ("ZeroPad2d", ((1, 0, 2, -1),), {}, [PLANE]),
    ("ZeroPad3d", (1,), {}, [BOX]),
    ("ConstantPad1d", (2, 1.5), {}, [LINE]),
    ("ConstantPad2d", ((1, 2, 3, 4), -2), {}, [PLANE]),
    ("ConstantPad3d", (1, 0.5), {}, [BOX]),
    ("ReflectionPad1d", (2,), {}, [LINE]),
    ("ReflectionPad2d", ((1, 2, 3, 4),), {}, [PLANE]),
    ("ReflectionPad3d", (2,), {}, [BOX]),
    ("ReplicationPad1d", (3,), {}, [LINE]),
    ("ReplicationPad2d", ((1, 2, 3, 0),), {}, [PLANE]),
    ("ReplicationPad3d", (1,), {}, [BOX]),
    ("CircularPad1d", (3,), {}, [LINE]),
    ("CircularPad2d", ((1, 2, 3, 0),), {}, [PLANE]),
    ("CircularPad3d", (1,), {}, [BOX]),
    ("Upsample", (), {"scale_factor": 2}, [PLANE]),
    ("Upsample", ((5, 7),), {}, [PLANE]),
    ("Upsample", (), {"scale_factor": 1.7, "mode": "linear"}, [LINE]),
    ("Upsample", (), {"scale_factor": (1.3, 2.2), "mode": "bilinear"}, [PLANE]),
    ("Upsample", (5,), {"mode": "bicubic", "align_corners": True}, [PLANE]),
    ("Upsample", (5,), {"mode": "trilinear"}, [BOX]),
    ("Upsample", (), {"scale_factor": 0.5, "mode": "area"}, [PLANE]),
    ("Upsample", (), {"scale_factor": 1.9, "recompute_scale_factor": True}, [PLANE]),
    ("UpsamplingNearest2d", (), {"scale_factor": 2}, [PLANE]),
    ("UpsamplingBilinear2d", (12,), {}, [PLANE]),
    ("Unfold", ((3, 2),), {"padding": 1, "stride": 2}, [PLANE]),
    ("Fold", ((4, 5), (2, 2)), {"padding": 1, "stride": 2}, [(2, 12, 9)]),
    ("PixelShuffle", (2,), {}, [PLANE]),
    ("PixelUnshuffle", (2,), {}, [(2, 3, 4, 6)]),
    ("BatchNorm3d", (4,), {}, [BOX]),
    ("InstanceNorm1d", (4,), {}, [LINE]),
    ("InstanceNorm2d", (4,), {"affine": True, "track_running_stats": True}, [PLANE]),
    ("InstanceNorm2d", (4,), {"affine": True, "bias": False}, [(4, 9, 8)]),
    ("InstanceNorm3d", (4,), {"affine": True}, [BOX]),
    ("LocalResponseNorm", (3,), {"alpha": 0.1}, [PLANE]),
    ("LocalResponseNorm", (2,), {}, [LINE]),
    ("CosineSimilarity", (), {}, [LINE, LINE]),
    ("PairwiseDistance", (3.0,), {"keepdim": True}, [LINE, LINE]),
]


def title(row):
    return f"{row[0]}-{row[1]}-{row[2]}".replace(" ", "")


@pytest.mark.parametrize("row", MODULES, ids=title)
def test_modules(row):
    name, given, named, shapes = row
    modules = [getattr(library.nn, name)(*given, **named) for library in LIBRARIES]
    ours, theirs = modules
    assert repr(ours) == repr(theirs)
    ours.double(), theirs.double()
    for number, value in enumerate(theirs.state_dict().values()):
        if value.is_floating_point():
            value.copy_(torch.tensor(drawn(50 + number, *value.shape)).abs())
    # both ways: what one library writes, the other one reads
    ours.load_state_dict({k: gt.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    told = {k: torch.from_numpy(v.numpy().copy()) for k, v in ours.state_dict().items()}
    theirs.load_state_dict(told)
    compare(modules, tensors(shapes), tuple(list(x.parameters()) for x in modules))
    ours.eval(), theirs.eval()
    compare(modules, tensors(shapes))
    for (word, mine), (other, value) in zip(
        ours.state_dict().items(), theirs.state_dict().items(), strict=True
    ):
        assert word == other
        equal(mine, value)


@pytest.mark.parametrize("given", [(1,), (2, 0.5), (3, 0.2, 0.5, 2.0), (4, 0.5), (5, 0.3)])
def test_the_older_norm_over_channels_gives_pytorchs_values_and_their_gradient(given):
    ours, theirs = (library.nn.CrossMapLRN2d(*given) for library in LIBRARIES)
    assert repr(ours) == repr(theirs)
    for channels in (2, 6):
        values = drawn(channels, 2, channels, 3, 2)
        x = gt.tensor(values, requires_grad=True)
        equal(ours(x), theirs(torch.tensor(values)))
        assert gt.autograd.gradcheck(ours, (x,))
    with pytest.raises(ValueError, match="Expected input to be 4D, got 3D instead"):
        ours(gt.ones(2, 3, 4))


@pytest.mark.parametrize("name", ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d"])
def test_first_weights_are_drawn_as_pytorch_draws_them(name):
    gt.manual_seed(0)
    ours, theirs = (getattr(library.nn, name)(16, 32, 3, groups=4) for library in LIBRARIES)
    for mine, value in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert mine.shape == tuple(value.shape)
        bound = 1 / np.sqrt(theirs.weight[0].numel())
        assert np.abs(mine.detach().numpy()).max() <= bound
        assert np.abs(mine.detach().numpy()).max() > 0.9 * bound


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("odd", [0, 1])
def test_unpooling_undoes_pooling(dims, odd):
    inputs = tensors([(2, 3, *range(6 + odd, 6 + odd + 2 * dims, 2))])

    def call(library):
        pool = getattr(library.nn, f"MaxPool{dims}d")(2, return_indices=True)
        unpool = getattr(library.nn, f"MaxUnpool{dims}d")(2)

        def run(x):
            values, places = pool(x)
            return unpool(values, places, output_size=x.shape if odd else None)

        return run

    assert repr(gt.nn.MaxUnpool2d(2, 3, 1)) == repr(torch.nn.MaxUnpool2d(2, 3, 1))
    compare([call(library) for library in LIBRARIES], inputs)


def test_transposed_convolutions_take_a_size():
    modules = [library.nn.ConvTranspose2d(4, 2, 3, stride=2).double() for library in LIBRARIES]
    modules[0].load_state_dict(
        {k: gt.tensor(v.numpy()) for k, v in modules[1].state_dict().items()}
    )
    for size in ([20, 18], [2, 2, 19, 17]):
        calls = [functools.partial(module, output_size=size) for module in modules]
        compare(calls, tensors([PLANE]))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_samples_of_a_grid(mode, padding_mode):
    def sampled(library):
        functional = library.nn.functional

        def run(x, theta):
            grid = functional.affine_grid(theta, (2, 4, 5, 6), align_corners=False)
            return functional.grid_sample(x, grid, mode, padding_mode, align_corners=True)

        return run

    compare([sampled(library) for library in LIBRARIES], tensors([PLANE, (2, 2, 3)]))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_dropout_of_channels(dims):
    gt.manual_seed(dims)
    module = getattr(gt.nn, f"Dropout{dims}d")(0.25)
    assert repr(module) == repr(getattr(torch.nn, f"Dropout{dims}d")(0.25))
    x = gt.ones(40, 50, *[3] * dims, requires_grad=True)
    y = module(x)
    y.sum().backward()
    channels = y.detach().numpy().reshape(2000, -1)
    assert (channels == channels[:, :1]).all()
    assert sorted({round(float(v), 5) for v in channels[:, 0]}) == [0.0, 1.33333]
    assert abs((channels == 0).mean() - 0.25) < 0.05
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    assert module.eval()(x) is x


def test_alpha_dropout_keeps_mean_and_variance():
    gt.manual_seed(0)
    module = gt.nn.AlphaDropout(0.3)
    assert repr(module) == repr(torch.nn.AlphaDropout(0.3))
    y = module(gt.randn(200, 200)).numpy()
    assert abs(y.mean()) < 0.03
    assert abs(y.var() - 1) < 0.05
    floor = torch.nn.AlphaDropout(0.3)(torch.zeros(1000)).unique()
    ours = np.unique(module(gt.zeros(1000)).numpy())
    np.testing.assert_allclose(ours, floor.numpy(), rtol=1e-6)
    assert module.eval()(x := gt.ones(2)) is x


WRONG = {
    "two sizes": lambda nn, x: nn.functional.interpolate(x, 2, 2.0),
    "no size": lambda nn, x: nn.functional.interpolate(x),
    "sizes of interpolate": lambda nn, x: nn.functional.interpolate(x, [2, 2, 2]),
    "factors": lambda nn, x: nn.functional.interpolate(x, scale_factor=[2.0]),
    "corners": lambda nn, x: nn.functional.interpolate(x, 2, align_corners=True),
    "linear": lambda nn, x: nn.functional.interpolate(x, 2, mode="linear"),
    "unknown": lambda nn, x: nn.functional.interpolate(x, 2, mode="cubic"),
    "grid": lambda nn, x: nn.functional.grid_sample(x, x, "linear"),
    "theta": lambda nn, x: nn.functional.affine_grid(x, (2, 4, 5, 6), align_corners=False),
    "dropout": lambda nn, x: nn.functional.dropout1d(x),
    "probability": lambda nn, x: nn.functional.dropout2d(x, 2.0),
    "instance": lambda nn, x: nn.InstanceNorm1d(4)(x),
    "one place": lambda nn, x: nn.InstanceNorm2d(4)(x[:, :, :1, :1]),
    "features": lambda nn, x: nn.InstanceNorm2d(3, affine=True)(x),
    "groups": lambda nn, x: nn.Conv2d(4, 6, 3, groups=0),
    "inputs": lambda nn, x: nn.Conv2d(4, 6, 3, groups=3),
    "outputs": lambda nn, x: nn.Conv2d(4, 6, 3, groups=4),
    "same": lambda nn, x: nn.Conv2d(4, 6, 3, padding="same", stride=2),
    "mode": lambda nn, x: nn.ConvTranspose1d(4, 6, 3, padding_mode="reflect"),
    "channels": lambda nn, x: nn.Conv2d(3, 6, 3, dtype=x.dtype)(x),
    "size": lambda nn, x: nn.ConvTranspose2d(4, 6, 3, dtype=x.dtype)(x, output_size=[99, 99]),
    "sizes": lambda nn, x: nn.ConvTranspose2d(4, 6, 3, dtype=x.dtype)(x, output_size=[9, 9, 9]),
    "norm": lambda nn, x: nn.LPPool2d(0, 2),
    "adaptive": lambda nn, x: nn.AdaptiveAvgPool2d((2, 2, 2, 2))(x),
    "circular": lambda nn, x: nn.CircularPad1d(1)(x),
    "padding": lambda nn, x: nn.MaxPool2d(2, padding=2)(x),
    "unpool": lambda nn, x: nn.functional.max_unpool2d(x, x, 2, output_size=[1, 1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    texts = []
    for library, kind in ((torch, Exception), (gt, (ValueError, RuntimeError))):
        (x,) = tensors([PLANE])[library is torch]
        with pytest.raises(kind) as caught:
            WRONG[name](library.nn, x)
        texts.append((str(caught.value), caught.type))
    (theirs, their_type), (ours, our_type) = texts
    assert issubclass(our_type, their_type)
    assert ours.splitlines()[0] == theirs.splitlines()[0]


def cnn(library):
    nn = library.nn
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
        nn.Flatten(),
        nn.Linear(8 * 2 * 2, 3),
    ).double()


def test_a_small_cnn_trains_as_in_pytorch():
    models = [cnn(library) for library in LIBRARIES]
    models[0].load_state_dict({k: gt.tensor(v.numpy()) for k, v in models[1].state_dict().items()})
    losses = []
    for library, model in zip(LIBRARIES, models, strict=True):
        optimizer = library.optim.SGD(model.parameters(), lr=0.1)
        x, target = library.tensor(drawn(1, 6, 1, 8, 8)), library.tensor([0, 1, 2, 0, 1, 2])
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            loss = library.nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[1][-1] < losses[1][0]
    np.testing.assert_allclose(*losses, **CLOSE)
