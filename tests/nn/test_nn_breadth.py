"""Modules and functions of gt.nn that module_db does not drive, or not with all arguments."""

import copy
import functools

import numpy as np
import pytest
import torch
from test_nn import check, drawn
from test_nn_generic import CLOSE, LIBRARIES, compare, equal, tensors, title

import gt

LINE, PLANE, BOX = (2, 4, 9), (2, 4, 9, 8), (2, 4, 5, 6, 7)
BAGS = np.array([[1, 2, 0, 2], [4, 3, 3, 1]])
FLAT, OFFSETS = np.array([1, 2, 0, 2, 4, 3, 3, 1]), np.array([0, 3, 3, 8])
# name, arguments of the constructor, shapes of inputs
MODULES = [
    ("CELU", (0.7,), {}, [LINE]),
    ("RReLU", (0.1, 0.4), {}, [LINE]),
    ("Threshold", (0.2, -3.0), {}, [LINE]),
    ("Hardshrink", (0.4,), {}, [LINE]),
    ("Softshrink", (0.4,), {}, [LINE]),
    ("Softmin", (1,), {}, [LINE]),
    ("Softmax2d", (), {}, [PLANE]),
    ("ChannelShuffle", (2,), {}, [PLANE]),
    ("SyncBatchNorm", (4,), {}, [PLANE]),
    ("FeatureAlphaDropout", (0.0,), {}, [PLANE]),
    ("Bilinear", (4, 3, 5), {}, [(2, 4), (2, 3)]),
    ("Bilinear", (4, 3, 5), {"bias": False}, [(2, 3, 4), (2, 3, 3)]),
    ("EmbeddingBag", (5, 3), {}, [BAGS]),
    ("EmbeddingBag", (5, 3), {"mode": "sum", "padding_idx": 3}, [BAGS]),
    ("EmbeddingBag", (5, 3), {"mode": "max"}, [BAGS]),
    ("EmbeddingBag", (5, 3), {"mode": "max", "padding_idx": -2}, [BAGS]),
    ("EmbeddingBag", (5, 3), {"scale_grad_by_freq": True}, [BAGS]),
    ("EmbeddingBag", (5, 3), {"max_norm": 0.5, "norm_type": 1.0}, [BAGS]),
    ("EmbeddingBag", (5, 3), {}, [FLAT, OFFSETS]),
    ("EmbeddingBag", (5, 3), {"mode": "sum", "include_last_offset": True}, [FLAT, OFFSETS]),
    ("EmbeddingBag", (5, 3), {"mode": "max", "padding_idx": 3}, [FLAT, OFFSETS]),
    ("EmbeddingBag", (5, 3), {"mode": "mean", "padding_idx": 2}, [FLAT, OFFSETS]),
    ("EmbeddingBag", (5, 3), {"mode": "sum"}, [FLAT, OFFSETS, (8,)]),
    ("EmbeddingBag", (5, 3), {"mode": "sum", "padding_idx": 1}, [FLAT, OFFSETS, (8,)]),
    (
        "AdaptiveLogSoftmaxWithLoss",
        (16, 20, [4, 10]),
        {},
        [(6, 16), np.array([0, 5, 3, 19, 10, 4])],
    ),
    ("AdaptiveLogSoftmaxWithLoss", (16, 20, [4]), {"head_bias": True}, [(16,), np.array(7)]),
    ("TripletMarginWithDistanceLoss", (), {"swap": True, "margin": 0.7}, [(5, 4)] * 3),
    ("NLLLoss2d", (), {}, [(2, 3, 4, 4), np.ones((2, 4, 4), dtype=np.int64)]),
    ("Upsample", (), {"scale_factor": 1.7, "mode": "nearest-exact"}, [LINE]),
    ("Upsample", ((5, 11),), {"mode": "nearest-exact"}, [PLANE]),
    ("Upsample", (4,), {"mode": "nearest-exact"}, [BOX]),
]


@pytest.mark.filterwarnings("ignore:`NLLLoss2d`:FutureWarning")
@pytest.mark.parametrize("row", MODULES, ids=lambda row: title(row)[:90])
def test_modules(row):
    name, given, named, shapes = row
    modules = [getattr(library.nn, name)(*given, **named).double() for library in LIBRARIES]
    ours, theirs = modules
    assert repr(ours) == repr(theirs)
    ours.load_state_dict({k: gt.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    if name == "RReLU":
        ours.eval(), theirs.eval()
    compare(modules, tensors(shapes), tuple(list(x.parameters()) for x in modules))


@pytest.mark.parametrize(
    "options",
    [{"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}],
    ids=["layers", "batch first"],
)
def test_projections_of_an_lstm(options):
    modules = [library.nn.LSTM(4, 6, proj_size=3, **options).double() for library in LIBRARIES]
    ours, theirs = modules
    assert repr(ours) == repr(theirs)
    ours.load_state_dict({k: gt.tensor(v.numpy()) for k, v in theirs.state_dict().items()})

    def call(module, x, *state):
        output, last = module(x, state or None)
        return (output, *last)

    calls = [functools.partial(call, module) for module in modules]
    count = 4 if "bidirectional" in options else 1
    batch = 5 if "batch_first" in options else 2
    for shapes in ([(5, 2, 4)], [(5, 2, 4), (count, batch, 3), (count, batch, 6)]):
        ours.zero_grad(), theirs.zero_grad()
        compare(calls, tensors(shapes), tuple(list(x.parameters()) for x in modules))


def test_projections_of_packed_sequences_and_in_how_many_instructions():
    modules = [library.nn.LSTM(4, 6, proj_size=3, bidirectional=True) for library in LIBRARIES]
    ours, theirs = modules
    ours.load_state_dict({k: gt.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    lines = [torch.linspace(-1, 1, n * 4).reshape(n, 4) for n in (3, 5, 1)]
    pack = {"enforce_sorted": False}
    packed = torch.nn.utils.rnn.pack_sequence(lines, **pack)
    expected, last = theirs(packed)
    actual, final = ours(
        gt.nn.utils.rnn.pack_sequence([gt.tensor(x.numpy()) for x in lines], **pack)
    )
    for mine, other in zip((actual.data, *final), (expected.data, *last), strict=True):
        np.testing.assert_allclose(
            mine.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6
        )
    counted = []
    for length in (4, 40):
        x = gt.ones(length, 2, 4)
        before = gt._core.stats()["instructions"]
        ours(x)
        counted.append(gt._core.stats()["instructions"] - before)
    assert counted[0] == counted[1]


FUNCTIONS = {
    "antialias": lambda f, x: f.interpolate(x, (4, 5), mode="bilinear", antialias=True),
    "antialias cubic": lambda f, x: f.interpolate(
        x, scale_factor=0.6, mode="bicubic", antialias=True
    ),
    "lanczos": lambda f, x: f.interpolate(x, 5, mode="lanczos", antialias=True),
    "threshold": lambda f, x: f.threshold_(x * 1, 0.1, 7.0),
    "celu": lambda f, x: f.celu_(x * 1, 0.5),
    "selu": lambda f, x: f.selu_(x * 1),
    "hardtanh": lambda f, x: f.hardtanh_(x * 1, -0.2, 0.3),
    "leaky": lambda f, x: f.leaky_relu_(x * 1, 0.2),
    "rrelu": lambda f, x: f.rrelu_(x * 1, 0.2, 0.4),
    "soft margin": lambda f, x: f.multilabel_soft_margin_loss(
        x, (x > 0).to(x.dtype), reduction="sum"
    ),
    "elu": lambda f, x: f.elu(x * 1, 0.3, inplace=True),
    "silu": lambda f, x: f.silu(x * 1, inplace=True),
    "hardswish": lambda f, x: f.hardswish(x * 1, inplace=True),
    "mish": lambda f, x: f.mish(x * 1, inplace=True),
    "triplet": lambda f, x: f.triplet_margin_with_distance_loss(
        x, x * 2, x - 1, distance_function=lambda a, b: ((a - b) ** 2).sum(-1), reduction="none"
    ),
    "variance": lambda f, x: f.gaussian_nll_loss(x, x * 2, 0.3, full=True),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    calls = [functools.partial(FUNCTIONS[name], library.nn.functional) for library in LIBRARIES]
    compare(calls, tensors([PLANE]))


@pytest.mark.parametrize("lengths", ["tensors", "lists"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_loss(lengths, reduction):
    def call(library, x):
        targets = library.tensor([[1, 2, 2], [3, 1, 0], [2, 2, 2]])
        sizes = ([8, 7, 3], [3, 2, 3])  # the last one cannot be aligned
        if lengths == "tensors":
            sizes = tuple(library.tensor(size) for size in sizes)
        return library.nn.functional.ctc_loss(
            x.log_softmax(2), targets, *sizes, reduction=reduction, zero_infinity=True
        )

    compare([functools.partial(call, library) for library in LIBRARIES], tensors([(8, 3, 4)]))


def test_likeliest_classes_of_an_adaptive_softmax():
    ours, theirs = (
        library.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10]).double() for library in LIBRARIES
    )
    ours.load_state_dict({k: gt.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    (x,), (y,) = tensors([(30, 16)])
    equal(ours.predict(x), theirs.predict(y))
    equal(ours.log_prob(x), theirs.log_prob(y))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_attention_with_more_keys(batch_first, zeros, bias):
    modules = [
        library.nn.MultiheadAttention(
            8, 2, add_bias_kv=bias, add_zero_attn=zeros, batch_first=batch_first
        ).double()
        for library in LIBRARIES
    ]
    modules[0].load_state_dict(
        {k: gt.tensor(v.numpy()) for k, v in modules[1].state_dict().items()}
    )

    def call(library, module, x, y):
        sources = y.shape[1 if batch_first else 0]
        padding = library.zeros(2, sources).bool()
        padding[1, 2] = True
        mask = library.ones(x.shape[1 if batch_first else 0], sources).tril().logical_not()
        return module(x, y, y, key_padding_mask=padding, attn_mask=mask)

    shapes = [(2, 4, 8), (2, 5, 8)] if batch_first else [(4, 2, 8), (5, 2, 8)]
    calls = [functools.partial(call, *pair) for pair in zip(LIBRARIES, modules, strict=True)]
    compare(calls, tensors(shapes), tuple(list(x.parameters()) for x in modules))


LAZY = [
    ("LazyLinear", (3,), {}, (2, 5)),
    ("LazyConv2d", (6, 3), {"groups": 2, "padding": 1}, PLANE),
    ("LazyConvTranspose1d", (6, 3), {"stride": 2}, LINE),
    ("LazyBatchNorm1d", (), {}, LINE),
    ("LazyBatchNorm3d", (), {"affine": False}, BOX),
    ("LazyInstanceNorm2d", (), {}, PLANE),
]


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize("row", LAZY, ids=title)
def test_lazy_modules_become_others_at_their_first_call(row):
    name, given, named, shape = row
    ours, theirs = (getattr(library.nn, name)(*given, **named).double() for library in LIBRARIES)
    assert repr(ours) == repr(theirs)
    waiting, held = copy.deepcopy(ours), list(ours.parameters())
    (x,), (y,) = tensors([shape])
    ours(x), theirs(y)
    assert type(ours).__name__ == type(theirs).__name__
    assert repr(ours) == repr(theirs)
    assert all(mine is param for mine, param in zip(held, ours.parameters(), strict=True))
    assert [p.dtype for p in ours.parameters()] == [gt.float64] * len(held)
    state = {k: gt.tensor(v.numpy()) for k, v in theirs.state_dict().items()}
    ours.load_state_dict(state)
    waiting.load_state_dict(state)  # what is loaded says the shapes, too
    for module in (ours, waiting):
        module.eval()
    equal(ours(x), theirs.eval()(y))
    equal(waiting(x), theirs(y))


def test_slopes_of_rrelu_are_drawn():
    gt.manual_seed(0)
    x = gt.full((50, 50), -1.0, requires_grad=True)
    y = gt.nn.RReLU(0.2, 0.4)(x)
    y.sum().backward()
    slopes = -y.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), slopes)
    assert 0.2 <= slopes.min() < 0.21
    assert 0.39 < slopes.max() <= 0.4
    assert (gt.nn.RReLU()(gt.ones(4)) == 1).all()


def test_dropout_of_whole_channels_keeps_mean_and_variance():
    gt.manual_seed(0)
    y = gt.nn.FeatureAlphaDropout(0.3)(gt.randn(400, 100, 3)).numpy()
    assert abs(y.mean()) < 0.03
    assert abs(y.var() - 1) < 0.05
    same = gt.nn.FeatureAlphaDropout(0.3)(gt.ones(400, 100, 3)).numpy()
    assert len(np.unique(same)) == 2
    assert (same == same[:, :, :1]).all()
    assert abs((same < 0).mean() - 0.3) < 0.02


@pytest.mark.parametrize("dims", [2, 3])
def test_windows_of_fractional_pooling_are_drawn(dims):
    (x,), _ = tensors([(2, 3, *[9] * dims)])
    pool = getattr(gt.nn, f"FractionalMaxPool{dims}d")(2, output_ratio=0.5, return_indices=True)
    values, places = pool(x)
    assert values.shape == (2, 3, *[4] * dims)
    equal(values.flatten(2), torch.from_numpy(x.detach().numpy()).flatten(2).gather(
        2, torch.from_numpy(places.numpy().copy()).flatten(2)))  # fmt: skip


WRONG = {
    "offsets": lambda m, x: m.nn.EmbeddingBag(4, 2)(m.tensor([1, 2])),
    "mode": lambda m, x: m.nn.functional.embedding_bag(m.tensor([[1]]), x[0, 0], mode="min"),
    "weights": lambda m, x: m.nn.EmbeddingBag(4, 2)(
        m.tensor([[1, 2]]), per_sample_weights=m.ones(1, 2)
    ),
    "cutoffs": lambda m, x: m.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 3]),
    "margin": lambda m, x: m.nn.TripletMarginWithDistanceLoss(margin=0),
    "p": lambda m, x: m.nn.MultiMarginLoss(p=3),
    "ratio": lambda m, x: m.nn.FractionalMaxPool2d(2, output_ratio=1.5),
    "no size": lambda m, x: m.nn.FractionalMaxPool2d(2),
    "softmax": lambda m, x: m.nn.Softmax2d()(x[0, 0]),
    "antialias": lambda m, x: m.nn.functional.interpolate(x, 4, antialias=True),
    "lanczos": lambda m, x: m.nn.functional.interpolate(x, 4, mode="lanczos"),
    "projection": lambda m, x: m.nn.LSTM(4, 3, proj_size=3),
    "variance": lambda m, x: m.nn.functional.gaussian_nll_loss(x, x, -1.0),
    "widths": lambda m, x: m.nn.Transformer(6, 2, 1, 1)(x[0], x[0]),
    "activation": lambda m, x: m.nn.TransformerDecoderLayer(8, 2, activation="tanh"),
    "slopes": lambda m, x: m.nn.functional.rrelu(x, 0.5, 0.1),
    "channels": lambda m, x: m.nn.LazyConv2d(4, 3)(x[0, 0]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WRONG)
def test_errors(name):
    texts = []
    for library, kind in ((torch, Exception), (gt, Exception)):
        (x,) = tensors([PLANE])[library is torch]
        with pytest.raises(kind) as caught:
            WRONG[name](library, x)
        texts.append((str(caught.value), caught.type))
    (theirs, their_type), (ours, our_type) = texts
    assert issubclass(our_type, their_type)
    assert ours.splitlines()[0] == theirs.splitlines()[0]


def test_masks_of_the_transformer():
    ours, theirs = (
        library.nn.Transformer.generate_square_subsequent_mask(4) for library in LIBRARIES
    )
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), **CLOSE)


@pytest.mark.parametrize("rank", range(4, 9))
def test_pad_of_many_dimensions(rank):
    """All pairs, some of them, and what is taken off: beyond four pairs in several instructions."""
    array = drawn(rank, (2, 1, 3, 2, 1, 2, 3, 2)[:rank])[0]
    for pairs in range(4, rank + 1):
        pad = [(1, 0, 2, 1, 0, 0, -1, 1, 1)[place % 9] for place in range(2 * pairs)]
        check(lambda t, x, pad=pad: t.nn.functional.pad(x, pad, value=0.5), [array])
