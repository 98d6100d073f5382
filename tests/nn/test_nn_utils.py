"""gt.nn.init and gt.nn.utils beside torch's: values where they are determined, properties else."""

import itertools

import numpy as np
import pytest
import torch.nn.utils.prune

import gt

LENGTHS = [2, 5, 1, 3]


def numbers(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def close(ours, theirs, tolerance=1e-5):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype)[3:] == str(theirs.dtype)[6:]
    given, expected = ours.detach().numpy(), theirs.detach().numpy()
    np.testing.assert_allclose(given, expected, rtol=tolerance, atol=tolerance)


# ---- init ----


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (4, 2, 3), (5, 5)])
def test_orthogonal_is(shape):
    w = gt.nn.init.orthogonal_(gt.empty(*shape), gain=2.0).reshape(shape[0], -1)
    w = w if w.shape[0] <= w.shape[1] else w.t()
    np.testing.assert_allclose((w @ w.t()).numpy(), 4 * np.eye(len(w)), atol=1e-5)


def test_orthogonal_signs_are_as_likely():
    gt.manual_seed(0)
    firsts = [gt.nn.init.orthogonal_(gt.empty(3, 3))[0, 0].item() > 0 for _ in range(40)]
    assert 8 < sum(firsts) < 32


def test_a_seed_repeats_what_is_drawn():
    for call in (gt.nn.init.orthogonal_, lambda x: gt.nn.init.sparse_(x, 0.3)):
        gt.manual_seed(3)
        first = call(gt.empty(5, 4)).tolist()
        gt.manual_seed(3)
        assert call(gt.empty(5, 4)).tolist() == first


@pytest.mark.parametrize("shape", [(4, 2, 3), (6, 6, 3, 2), (4, 2, 3, 3, 3)])
@pytest.mark.parametrize("groups", [1, 2])
def test_dirac(shape, groups):
    ours = gt.nn.init.dirac_(gt.full(shape, 7.0), groups)
    theirs = torch.nn.init.dirac_(torch.full(shape, 7.0), groups)
    close(ours, theirs)


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.5, 0.99])
def test_sparse_zeros_of_each_column(sparsity):
    ours = gt.nn.init.sparse_(gt.empty(10, 40), sparsity, std=0.5)
    theirs = torch.nn.init.sparse_(torch.empty(10, 40), sparsity, std=0.5)
    assert (ours == 0).sum(0).tolist() == (theirs == 0).sum(0).tolist()
    if sparsity < 0.9:
        rest = ours.numpy()[ours.numpy() != 0]
        assert abs(rest.std() - 0.5) < 0.1
        rows = (ours == 0).sum(1).tolist()
        assert sparsity == 0 or len(set(rows)) > 1  # not the same rows in each column


@pytest.mark.parametrize(
    ("name", "shape", "args"),
    [("orthogonal_", (3,), ()), ("sparse_", (3, 3, 3), (0.1,)), ("dirac_", (3, 3), ()),
     ("dirac_", (3, 3, 3), (2,)), ("eye_", (3,), ())],
)  # fmt: skip
def test_init_errors(name, shape, args):
    texts = []
    for m in (gt, torch):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the texts are compared
            getattr(m.nn.init, name)(m.empty(*shape), *args)
        texts.append(str(error.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])
def test_older_names_warn(m):
    with pytest.warns(FutureWarning, match=r"`nn\.init\.constant` is now deprecated in favor"):
        assert m.nn.init.constant(m.empty(2), 3.0).tolist() == [3.0, 3.0]


# ---- sequences ----


def sequences(m, ndim=2):
    return [m.tensor(numbers(*((n, 3) if ndim == 2 else (n,)))) for n in LENGTHS]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("ndim", [1, 2])
def test_pad_sequence(first, side, ndim):
    both = [m.nn.utils.rnn.pad_sequence(sequences(m, ndim), first, 2.5, side) for m in (gt, torch)]
    close(*both)
    if side == "right":
        lengths = gt.tensor(LENGTHS), torch.tensor(LENGTHS)
        apart = [
            m.nn.utils.rnn.unpad_sequence(padded, lens, first)
            for m, padded, lens in zip((gt, torch), both, lengths, strict=True)
        ]
        for ours, theirs in zip(*apart, strict=True):
            close(ours, theirs)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("total", [None, 7])
def test_packed_sequences(first, total):
    packed = [m.nn.utils.rnn.pack_sequence(sequences(m), enforce_sorted=False) for m in (gt, torch)]
    for ours, theirs in zip(*packed, strict=True):
        close(ours, theirs)
    padded = [
        m.nn.utils.rnn.pad_packed_sequence(p, first, -1.0, total)
        for m, p in zip((gt, torch), packed, strict=True)
    ]
    for ours, theirs in zip(*padded, strict=True):
        close(ours, theirs)
    apart = [m.nn.utils.rnn.unpack_sequence(p) for m, p in zip((gt, torch), packed, strict=True)]
    for ours, theirs in zip(*apart, strict=True):
        close(ours, theirs)
    assert packed[0].double().data.dtype == gt.float64


@pytest.mark.parametrize(
    ("lengths", "options"),
    [([1, 2], {}), ([0, 1], {"enforce_sorted": False}), ([2], {}), ([2, 0], {})],
)
def test_packing_errors(lengths, options):
    texts = []
    for m in (gt, torch):
        with pytest.raises(RuntimeError) as error:
            m.nn.utils.rnn.pack_padded_sequence(m.ones(3, 2, 1), lengths, **options)
        texts.append(str(error.value)[:60])
    assert texts[0] == texts[1]


CELLS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {})]


@pytest.mark.parametrize(("name", "options"), CELLS)
@pytest.mark.parametrize("shape", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}])
@pytest.mark.parametrize("state", [False, True])
def test_recurrent_layers_take_packed_sequences(name, options, shape, state):
    theirs = getattr(torch.nn, name)(3, 4, **options, **shape)
    ours = getattr(gt.nn, name)(3, 4, **options, **shape)
    ours.load_state_dict(theirs.state_dict())
    results = []
    for m, layer in ((gt, ours), (torch, theirs)):
        items = [x.requires_grad_() for x in sequences(m)]
        packed = m.nn.utils.rnn.pack_sequence(items, enforce_sorted=False)
        count = shape.get("num_layers", 1) * (2 if "bidirectional" in shape else 1)
        start = m.tensor(numbers(count, 4, 4))
        start = (start, start * 2) if name == "LSTM" else start
        output, last = layer(packed, start) if state else layer(packed)
        padded, _ = m.nn.utils.rnn.pad_packed_sequence(output)
        parts = last if name == "LSTM" else (last,)
        (padded * padded).sum().backward(retain_graph=True)
        sum((part * 3).sum() for part in parts).backward()
        grads = [x.grad for x in items] + [p.grad for p in layer.parameters()]
        results.append([padded, *parts, *grads])
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_what_is_no_number_stays_in_its_sequence(bidirectional):
    results = []
    for m in (gt, torch):
        layer = m.nn.LSTM(3, 4, bidirectional=bidirectional)
        items = list(sequences(m))
        items[0] = items[0] * float("nan")
        items = [x.detach().requires_grad_() for x in items]
        packed = m.nn.utils.rnn.pack_sequence(items, enforce_sorted=False)
        padded, _ = m.nn.utils.rnn.pad_packed_sequence(layer(packed)[0])
        (padded * padded).sum().backward()
        results.append([x.grad.isnan().all().item() for x in items])
    assert results[0] == results[1] == [True, False, False, False]


# ---- fusion ----


def trained(m, kind, transpose):
    m.manual_seed(0)
    if kind == "linear":
        layer, norm, x = m.nn.Linear(3, 4), m.nn.BatchNorm1d(4), m.tensor(numbers(6, 3))
    else:
        conv = m.nn.ConvTranspose2d if transpose else m.nn.Conv2d
        layer, norm = conv(3, 4, 2, bias=not transpose), m.nn.BatchNorm2d(4)
        x = m.tensor(numbers(6, 3, 5, 5))
    norm(layer(x))
    return layer.eval(), norm.eval(), x


@pytest.mark.parametrize(
    ("kind", "transpose"), [("linear", False), ("conv", False), ("conv", True)]
)
def test_fusion(kind, transpose):
    theirs = trained(torch, kind, transpose)
    ours = trained(gt, kind, transpose)
    for mine, its in zip(ours[:2], theirs[:2], strict=True):
        mine.load_state_dict(its.state_dict())
    fused = []
    for m, (layer, norm, x) in ((gt, ours), (torch, theirs)):
        f = m.nn.utils.fusion
        one = (
            f.fuse_linear_bn_eval(layer, norm)
            if kind == "linear"
            else f.fuse_conv_bn_eval(layer, norm, transpose)
        )
        np.testing.assert_allclose(
            one(x).detach().numpy(), norm(layer(x)).detach().numpy(), atol=1e-5
        )
        fused.append(one)
    for mine, its in zip(fused[0].parameters(), fused[1].parameters(), strict=True):
        close(mine, its)
    with pytest.raises(AssertionError, match="Fusion only for eval"):
        gt.nn.utils.fuse_conv_bn_eval(gt.nn.Conv2d(1, 1, 1), gt.nn.BatchNorm2d(1))


def test_names_of_the_package():
    for name in itertools.chain(gt.nn.utils.__all__, gt.nn.utils.rnn.__all__):
        where = torch.nn.utils.rnn if name in gt.nn.utils.rnn.__all__ else torch.nn.utils
        assert hasattr(where, name)
