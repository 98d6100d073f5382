"""gt.nn against torch.nn: the same weights and inputs give the same values, gradients and texts."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch

import gt

LIBRARIES = (gt, torch)


def pair(array):
    """A GT and a PyTorch tensor of equal values; floating-point ones require a gradient."""
    array = np.array(array)  # a copy: torch.tensor of a read-only view warns
    tracked = array.dtype.kind == "f"
    return gt.tensor(array, requires_grad=tracked), torch.tensor(array, requires_grad=tracked)


def drawn(seed, *shapes, dtype=np.float32):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def flat(value):
    """All tensors in nested tuples and lists, in order; None is left out."""
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in flat(part)]
    return [] if value is None else [value]


def close(ours, theirs, what, tolerance):
    ours, theirs = ours.detach().numpy(), theirs.detach().numpy()
    assert ours.dtype == theirs.dtype, what
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=what)


def check(call, arrays, *, tolerance=2e-5):
    """`call(library, *tensors)` gives the same values and input gradients in both libraries."""
    pairs = [pair(array) for array in arrays]
    ours, theirs = (
        flat(call(library, *(both[place] for both in pairs)))
        for place, library in enumerate(LIBRARIES)
    )
    assert len(ours) == len(theirs)
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert tuple(a.shape) == tuple(b.shape), f"shape of output {place}"
        close(a, b, f"output {place}", tolerance)
    differentiable = [place for place, tensor in enumerate(theirs) if tensor.requires_grad]
    weights = drawn(99, *(theirs[place].shape for place in differentiable))
    for library, outputs in ((gt, ours), (torch, theirs)):
        total = 0.0
        for place, weight in zip(differentiable, weights, strict=True):
            total = total + (outputs[place] * library.tensor(weight)).sum()
        if differentiable:
            total.backward()
    for place, (a, b) in enumerate(pairs):
        assert (a.grad is None) == (b.grad is None), f"gradient of input {place}"
        if b.grad is not None:
            close(a.grad, b.grad, f"gradient of input {place}", tolerance)


def twins(make):
    """One module in both libraries, with PyTorch's initial values."""
    torch.manual_seed(0)
    theirs, ours = make(torch), make(gt)
    ours.load_state_dict({name: gt.tensor(v.numpy()) for name, v in theirs.state_dict().items()})
    return ours, theirs


def check_module(make, arrays, *, tolerance=2e-5, call=None):
    """A module has the same values, and the same gradients of inputs and parameters."""
    ours, theirs = twins(make)
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()
    ]
    models = {gt: ours, torch: theirs}
    apply = call or (lambda model, *inputs: model(*inputs))
    check(lambda library, *inputs: apply(models[library], *inputs), arrays, tolerance=tolerance)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if b.grad is not None:
            close(a.grad, b.grad, f"gradient of {name}", tolerance)


X = drawn(1, (5, 4))[0]
SEQUENCE = drawn(2, (6, 3, 4))[0]
INDICES = np.array([[0, 2, 1], [1, 1, 4]])

MODULES = {
    "linear": (lambda t: t.nn.Linear(4, 3), [X]),
    "linear without bias": (lambda t: t.nn.Linear(4, 3, bias=False), [X]),
    "linear 3d": (lambda t: t.nn.Linear(4, 3), [SEQUENCE]),
    "linear 1d": (lambda t: t.nn.Linear(4, 3), [X[0]]),
    "embedding": (lambda t: t.nn.Embedding(5, 3), [INDICES]),
    "embedding padding": (lambda t: t.nn.Embedding(5, 3, padding_idx=1), [INDICES]),
    "embedding padding from the end": (lambda t: t.nn.Embedding(5, 3, padding_idx=-1), [INDICES]),
    "layer norm": (lambda t: t.nn.LayerNorm(4), [X]),
    "layer norm two dims": (lambda t: t.nn.LayerNorm((3, 4)), [SEQUENCE]),
    "layer norm without bias": (lambda t: t.nn.LayerNorm(4, bias=False), [X]),
    "layer norm plain": (lambda t: t.nn.LayerNorm(4, elementwise_affine=False, eps=1e-3), [X]),
    "rms norm": (lambda t: t.nn.RMSNorm(4), [X]),
    "rms norm two dims": (lambda t: t.nn.RMSNorm((3, 4), eps=1e-2), [SEQUENCE]),
    "rms norm plain": (lambda t: t.nn.RMSNorm(4, elementwise_affine=False), [X]),
    "identity": (lambda t: t.nn.Identity(7, a=1), [X]),
    "flatten": (lambda t: t.nn.Flatten(), [SEQUENCE]),
    "flatten some": (lambda t: t.nn.Flatten(0, 1), [SEQUENCE]),
    "unflatten": (lambda t: t.nn.Unflatten(-1, (2, 2)), [SEQUENCE]),
    "dropout 0": (lambda t: t.nn.Dropout(0.0), [X]),
    "dropout 1": (lambda t: t.nn.Dropout(1.0), [X]),
    "dropout in evaluation": (lambda t: t.nn.Dropout(0.5).eval(), [X]),
    "mlp": (
        lambda t: t.nn.Sequential(t.nn.Linear(4, 8), t.nn.GELU(), t.nn.Linear(8, 2)),
        [X],
    ),
    "rnn": (lambda t: t.nn.RNN(4, 3), [SEQUENCE]),
    "rnn relu": (lambda t: t.nn.RNN(4, 3, nonlinearity="relu", bias=False), [SEQUENCE]),
    "gru": (lambda t: t.nn.GRU(4, 3, num_layers=2), [SEQUENCE]),
    "gru both ways": (lambda t: t.nn.GRU(4, 3, 2, bidirectional=True, bias=False), [SEQUENCE]),
    "lstm": (lambda t: t.nn.LSTM(4, 3), [SEQUENCE]),
    "lstm batch first": (lambda t: t.nn.LSTM(4, 3, 2, batch_first=True), [SEQUENCE]),
    "lstm both ways": (lambda t: t.nn.LSTM(4, 3, 2, bidirectional=True), [SEQUENCE]),
    "lstm unbatched": (lambda t: t.nn.LSTM(4, 3), [X]),
    "lstm dropout in evaluation": (lambda t: t.nn.LSTM(4, 3, 2, dropout=0.5).eval(), [SEQUENCE]),
    "gru with state": (lambda t: t.nn.GRU(4, 3, 2), [SEQUENCE, *drawn(3, (2, 3, 3))]),
    "rnn cell": (lambda t: t.nn.RNNCell(4, 3, nonlinearity="relu"), [X]),
    "gru cell": (lambda t: t.nn.GRUCell(4, 3), [X, *drawn(4, (5, 3))]),
    "lstm cell": (lambda t: t.nn.LSTMCell(4, 3, bias=False), [X]),
}

ACTIVATIONS = {
    "ReLU": [(), (True,)],
    "GELU": [(), ("tanh",)],
    "SiLU": [()],
    "Mish": [()],
    "SELU": [()],
    "ELU": [(), (0.3,)],
    "LeakyReLU": [(), (0.3,)],
    "Softplus": [(), (2.0, 3.0)],
    "Hardtanh": [(), (-0.5, 0.25)],
    "ReLU6": [()],
    "Hardsigmoid": [()],
    "Hardswish": [()],
    "Tanh": [()],
    "Sigmoid": [()],
    "LogSigmoid": [()],
    "Softsign": [()],
    "Tanhshrink": [()],
    "GLU": [()],
    "Softmax": [(-1,), (0,)],
    "LogSoftmax": [(-1,), (0,)],
}


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    make, arrays = MODULES[name]
    check_module(make, arrays)
    assert repr(make(gt)) == repr(make(torch))


@pytest.mark.parametrize("name", ["mlp", "lstm both ways", "gru", "layer norm", "rms norm"])
def test_module_in_float64(name):
    make, arrays = MODULES[name]
    arrays = [array.astype(np.float64) for array in arrays]
    check_module(lambda t: make(t).double(), arrays, tolerance=1e-11)


@pytest.mark.parametrize(
    ("name", "arguments"), [(name, row) for name, rows in ACTIVATIONS.items() for row in rows]
)
def test_activation(name, arguments):
    points = np.concatenate(
        [drawn(5, (6, 6))[0] * 4, [[-3, -1, 0, 1, 3, 6], [50, -50, 0, 1, 2, 9]]]
    )
    x = points.astype(np.float32)
    check_module(
        lambda t: getattr(t.nn, name)(*arguments), [x], call=lambda model, x: model(x * 1.0)
    )
    assert repr(getattr(gt.nn, name)(*arguments)) == repr(getattr(torch.nn, name)(*arguments))


LABELS = np.array([0, 3, 1, 1, 2])
LOGITS, OTHER = drawn(6, (5, 4), (5, 4))
SIGNS = np.sign(OTHER[:, 0])
CLASS_WEIGHT = np.array([0.5, 1.0, 2.0, 0.1], np.float32)
DENSE = drawn(7, (2, 4, 3))[0]
DENSE_LABELS = np.array([[0, 3, 1], [2, 2, -100]])
SHARES = np.exp(OTHER) / np.exp(OTHER).sum(1, keepdims=True)


LOSSES = {
    "mse": (lambda t, r, x, y: t.nn.MSELoss(reduction=r)(x, y), [LOGITS, OTHER]),
    "l1": (lambda t, r, x, y: t.nn.L1Loss(reduction=r)(x, y), [LOGITS, OTHER]),
    "smooth l1": (
        lambda t, r, x, y: t.nn.SmoothL1Loss(reduction=r, beta=0.7)(x, y),
        [LOGITS, OTHER],
    ),
    "smooth l1 sharp": (
        lambda t, r, x, y: t.nn.SmoothL1Loss(reduction=r, beta=0.0)(x, y),
        [LOGITS, OTHER],
    ),
    "huber": (lambda t, r, x, y: t.nn.HuberLoss(r, delta=0.6)(x, y), [LOGITS, OTHER]),
    "nll": (
        lambda t, r, x, y: t.nn.NLLLoss(reduction=r)(x.log_softmax(1), y),
        [LOGITS, LABELS],
    ),
    "nll weighted, one ignored": (
        lambda t, r, x, y, w: t.nn.NLLLoss(w.detach(), ignore_index=3, reduction=r)(x, y),
        [LOGITS, LABELS, CLASS_WEIGHT],
    ),
    "nll dense": (lambda t, r, x, y: t.nn.NLLLoss(reduction=r)(x, y), [DENSE, DENSE_LABELS]),
    "nll of one": (
        lambda t, r, x, y: t.nn.NLLLoss(reduction=r)(x, y),
        [LOGITS[0], np.array(2)],
    ),
    "cross entropy": (
        lambda t, r, x, y: t.nn.CrossEntropyLoss(reduction=r)(x, y),
        [LOGITS, LABELS],
    ),
    "cross entropy weighted": (
        lambda t, r, x, y, w: t.nn.CrossEntropyLoss(w.detach(), reduction=r)(x, y),
        [LOGITS, LABELS, CLASS_WEIGHT],
    ),
    "cross entropy smoothed": (
        lambda t, r, x, y: t.nn.CrossEntropyLoss(label_smoothing=0.2, reduction=r)(x, y),
        [LOGITS, LABELS],
    ),
    "cross entropy weighted, smoothed, one ignored": (
        lambda t, r, x, y, w: t.nn.CrossEntropyLoss(
            w.detach(), ignore_index=1, label_smoothing=0.2, reduction=r
        )(x, y),
        [LOGITS, LABELS, CLASS_WEIGHT],
    ),
    "cross entropy dense, smoothed": (
        lambda t, r, x, y: t.nn.CrossEntropyLoss(label_smoothing=0.1, reduction=r)(x, y),
        [DENSE, DENSE_LABELS],
    ),
    "cross entropy of one": (
        lambda t, r, x, y: t.nn.CrossEntropyLoss(reduction=r)(x, y),
        [LOGITS[0], np.array(2)],
    ),
    "cross entropy of shares": (
        lambda t, r, x, y: t.nn.CrossEntropyLoss(reduction=r)(x, y),
        [LOGITS, SHARES],
    ),
    "cross entropy of shares, weighted, smoothed": (
        lambda t, r, x, y, w: t.nn.CrossEntropyLoss(w.detach(), label_smoothing=0.3, reduction=r)(
            x, y.detach()
        ),
        [LOGITS, SHARES, CLASS_WEIGHT],
    ),
    "bce": (
        lambda t, r, x, y: t.nn.BCELoss(reduction=r)(x.sigmoid(), y.detach()),
        [LOGITS, SHARES],
    ),
    "bce weighted, at the ends": (
        lambda t, r, x, y, w: t.nn.BCELoss(w.detach(), reduction=r)(
            (x * 200).sigmoid(), y.detach()
        ),
        [LOGITS, SHARES, CLASS_WEIGHT],
    ),
    "bce with logits": (
        lambda t, r, x, y: t.nn.BCEWithLogitsLoss(reduction=r)(x * 30, y.detach()),
        [LOGITS, SHARES],
    ),
    "bce with logits, weighted": (
        lambda t, r, x, y, w: t.nn.BCEWithLogitsLoss(
            w.detach(), reduction=r, pos_weight=w.detach() + 1
        )(x, y.detach()),
        [LOGITS, SHARES, CLASS_WEIGHT],
    ),
    "kl": (
        lambda t, r, x, y: t.nn.KLDivLoss(reduction=r)(x.log_softmax(1), y.detach()),
        [LOGITS, np.where(SHARES > 0.2, SHARES, 0)],
    ),
    "kl of logarithms": (
        lambda t, r, x, y: t.nn.KLDivLoss(reduction=r, log_target=True)(x, y),
        [LOGITS, np.log(SHARES)],
    ),
    "poisson": (
        lambda t, r, x, y: t.nn.PoissonNLLLoss(full=True, reduction=r)(x, y.abs().detach()),
        [LOGITS, OTHER * 3],
    ),
    "soft margin": (
        lambda t, r, x, y: t.nn.SoftMarginLoss(reduction=r)(x, y.detach()),
        [LOGITS[:, 0], SIGNS],
    ),
    "hinge embedding": (
        lambda t, r, x, y: t.nn.HingeEmbeddingLoss(reduction=r)(x, y.detach()),
        [LOGITS[:, 0], SIGNS],
    ),
    "margin ranking": (
        lambda t, r, x, y, s: t.nn.MarginRankingLoss(0.3, reduction=r)(x, y, s.detach()),
        [LOGITS[:, 0], OTHER[:, 0], SIGNS],
    ),
    "cosine embedding": (
        lambda t, r, x, y, s: t.nn.CosineEmbeddingLoss(0.1, reduction=r)(x, y, s.detach()),
        [LOGITS, OTHER, SIGNS],
    ),
}


@pytest.mark.filterwarnings("ignore:reduction. .mean. divides")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, reduction):
    call, arrays = LOSSES[name]
    check(lambda t, *tensors: call(t, reduction, *tensors), arrays)


def test_kl_batchmean_and_old_reductions():
    check(
        lambda t, x, y: t.nn.functional.kl_div(x, y.detach(), reduction="batchmean"),
        [LOGITS, SHARES],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, that these arguments are old
        check(lambda t, x, y: t.nn.MSELoss(size_average=False)(x, y), [LOGITS, OTHER])
        check(lambda t, x, y: t.nn.L1Loss(reduce=False)(x, y), [LOGITS, OTHER])


def test_losses_and_activations_stand_on_nn():
    assert gt.nn.mse_loss is gt.nn.functional.mse_loss
    assert gt.nn.relu is gt.nn.functional.relu
    assert gt.nn.cross_entropy is gt.nn.functional.cross_entropy


def test_mse_of_other_shapes_warns_as_pytorch():
    texts = []
    for library in LIBRARIES:
        with pytest.warns(UserWarning, match="Using a target size") as caught:
            library.nn.functional.mse_loss(library.zeros(3, 1), library.zeros(3))
        texts.append(str(caught[0].message))
    assert texts[0] == texts[1]


QUERY, KEY, VALUE = drawn(8, (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 2))
SEEN = np.array([[(row + place) % 3 > 0 for place in range(6)] for row in range(5)])
SEEN[2] = False  # a row that sees nothing

ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "mask": {"attn_mask": SEEN},
    "bias": {"attn_mask": drawn(9, (5, 6))[0]},
    "bias with rows of minus infinity": {"attn_mask": np.where(SEEN, 0.5, -np.inf).astype("f4")},
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name):
    options = dict(ATTENTION[name])
    mask = options.pop("attn_mask", None)

    def call(library, q, k, v):
        weights = None if mask is None else library.tensor(mask)
        attend = library.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, attn_mask=weights, **options)

    check(call, [QUERY, KEY, VALUE])


MULTIHEAD = {
    "self": ({}, {}, 1),
    "three": ({}, {}, 3),
    "three, average off": ({}, {"average_attn_weights": False}, 3),
    "batch first": ({"batch_first": True}, {}, 1),
    "other widths": ({"kdim": 5, "vdim": 6, "bias": False}, {}, 3),
    "no weights": ({}, {"need_weights": False}, 1),
}


@pytest.mark.parametrize("name", MULTIHEAD)
def test_multihead_attention(name):
    options, call, count = MULTIHEAD[name]
    widths = [8, options.get("kdim", 8), options.get("vdim", 8)][:count]
    arrays = [drawn(10 + place, (5, 5, width))[0] for place, width in enumerate(widths)]
    check_module(
        lambda t: t.nn.MultiheadAttention(8, 2, **options),
        arrays,
        call=lambda model, *inputs: model(*(inputs * 3)[:3], **call),
    )


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformer_encoder(norm_first, activation):
    padding = np.array([[False] * 5 + [True], [False] * 6, [False] * 4 + [True] * 2])

    def make(t):
        layer = t.nn.TransformerEncoderLayer(
            8, 2, 16, 0.0, activation, batch_first=True, norm_first=norm_first
        )
        return t.nn.TransformerEncoder(layer, 2, t.nn.LayerNorm(8), enable_nested_tensor=False)

    def call(model, x):
        library = gt if isinstance(x, gt.Tensor) else torch
        hidden = library.tensor(np.triu(np.ones((6, 6), bool), 1))
        return model(x, mask=hidden, src_key_padding_mask=library.tensor(padding))

    check_module(make, drawn(11, (3, 6, 8)), call=call)


# ---- Module itself ----


class Net(gt.nn.Module):
    """A model with all kinds of attributes."""

    def __init__(self):
        super().__init__()
        self.first = gt.nn.Linear(3, 4)
        self.blocks = gt.nn.ModuleList([gt.nn.Linear(4, 4) for _ in range(2)])
        self.tied = self.first
        self.scale = gt.nn.Parameter(gt.ones(4))
        self.register_buffer("count", gt.zeros(2))
        self.register_buffer("cache", gt.zeros(2), persistent=False)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x).relu()
        return x * self.scale


def test_state_dict_lists_what_pytorch_lists():
    names = ["scale", "count", "first.weight", "first.bias"]
    names += [f"blocks.{place}.{name}" for place in range(2) for name in ("weight", "bias")]
    names += ["tied.weight", "tied.bias"]
    assert list(Net().state_dict()) == names
    assert len(Net().parameters()) == 7


def test_load_state_dict_copies_and_keeps_identity():
    source, target = Net(), Net()
    weight = target.first.weight
    assert str(target.load_state_dict(source.state_dict())) == "<All keys matched successfully>"
    assert target.first.weight is weight
    assert target.first.weight.tolist() == source.first.weight.tolist()
    with gt.no_grad():
        source.first.weight += 1
    assert target.first.weight.tolist() != source.first.weight.tolist()


def test_load_state_dict_errors_have_pytorchs_text():
    texts = []
    for library in LIBRARIES:
        model = library.nn.Sequential(library.nn.Linear(3, 4), library.nn.Linear(4, 2))
        state = model.state_dict()
        del state["0.bias"]
        state["more"] = library.zeros(1)
        state["1.weight"] = library.zeros(5, 4)
        with pytest.raises(RuntimeError) as caught:
            model.load_state_dict(state)
        texts.append(str(caught.value))
        del state["1.weight"]
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert sorted(missing) == ["0.bias", "1.weight"]
        assert unexpected == ["more"]
    assert texts[0] == texts[1]


def test_load_state_dict_assign_takes_the_tensors():
    model = gt.nn.Linear(2, 2)
    model.load_state_dict({"weight": gt.ones(2, 2), "bias": gt.zeros(2)}, assign=True)
    assert isinstance(model.weight, gt.nn.Parameter)
    assert model.weight.tolist() == [[1, 1], [1, 1]]


def test_parameters_can_be_looped_over_again():
    listed = gt.nn.Linear(3, 4).parameters()
    assert [tuple(param.shape) for param in listed] == [(4, 3), (4,)]
    assert [tuple(param.shape) for param in listed] == [(4, 3), (4,)]
    assert len(listed) == 2
    assert tuple(next(listed).shape) == (4, 3)
    assert tuple(next(listed).shape) == (4,)
    with pytest.raises(StopIteration):
        next(listed)


def test_named_modules_and_children():
    net = Net()
    assert [name for name, _ in net.named_modules()] == [
        "",
        "first",
        "blocks",
        "blocks.0",
        "blocks.1",
    ]
    assert [name for name, _ in net.named_children()] == ["first", "blocks"]
    assert net.get_submodule("blocks.1") is net.blocks[1]
    assert net.get_parameter("blocks.1.bias") is net.blocks[1].bias
    with pytest.raises(AttributeError, match="has no attribute `nothing`"):
        net.get_submodule("nothing")


def test_train_eval_apply_and_requires_grad():
    net = Net().eval()
    assert not any(module.training for module in net.modules())
    assert all(module.training for module in net.train().modules())
    seen = []
    net.apply(seen.append)
    assert seen[-1] is net
    assert len(seen) == 5
    assert not any(param.requires_grad for param in net.requires_grad_(False).parameters())


def test_deepcopy_is_apart_and_keeps_ties():
    net = Net()
    copied = copy.deepcopy(net)
    assert copied.tied is copied.first
    assert copied.first.weight is not net.first.weight
    assert isinstance(copied.scale, gt.nn.Parameter)
    with gt.no_grad():
        copied.scale += 1
    assert net.scale.tolist() == [1, 1, 1, 1]


def test_casts_keep_the_parameters_identity():
    net = Net()
    weight = net.first.weight
    net(gt.ones(2, 3)).sum().backward()
    net.double()
    assert net.first.weight is weight
    assert weight.dtype == gt.float64
    assert weight.grad.dtype == gt.float64
    assert net.count.dtype == gt.float64
    assert net.to("cpu") is net
    assert net.to("cpu", gt.float32).first.weight.dtype == gt.float32
    assert net.cuda().cpu().half().scale.dtype == gt.float16
    with pytest.raises(TypeError, match="only accepts floating point"):
        net.to(gt.int64)


def test_zero_grad():
    net = Net()
    net(gt.ones(2, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0, 0, 0, 0]
    net.zero_grad()
    assert net.scale.grad is None


def test_assigning_attributes():
    net = Net()
    net.scale = None
    assert net.scale is None
    net.scale = gt.nn.Parameter(gt.zeros(2))
    assert "scale" in dict(net.named_parameters())
    with pytest.raises(TypeError, match="cannot assign 'float' as parameter 'scale'"):
        net.scale = 2.0
    with pytest.raises(TypeError, match="cannot assign 'int' as child module 'first'"):
        net.first = 1
    net.count = gt.ones(3)
    assert dict(net.named_buffers())["count"].tolist() == [1, 1, 1]
    net.first = gt.nn.Parameter(gt.zeros(1))
    assert "first" not in dict(net.named_children())
    del net.first
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'first'"):
        _ = net.first


NAME_MISTAKES = [
    (lambda m, t: m.register_parameter("a.b", None), KeyError),
    (lambda m, t: m.register_parameter("", None), KeyError),
    (lambda m, t: m.register_parameter("forward", None), KeyError),
    (lambda m, t: m.register_parameter(3, None), TypeError),
    (lambda m, t: m.register_parameter("a", 3), TypeError),
    (lambda m, t: m.register_buffer("a.b", None), KeyError),
    (lambda m, t: m.register_buffer("a", 3), TypeError),
    (lambda m, t: m.add_module("a.b", None), KeyError),
    (lambda m, t: m.add_module("a", 3), TypeError),
    (lambda m, t: m.train("yes"), ValueError),
    (lambda m, t: m(t.zeros(1)), NotImplementedError),
]


@pytest.mark.parametrize("place", range(len(NAME_MISTAKES)))
def test_mistakes_have_pytorchs_class_and_text(place):
    mistake, kind = NAME_MISTAKES[place]
    texts = []
    for library in LIBRARIES:
        with pytest.raises(kind) as caught:
            mistake(library.nn.Module(), library)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_module_before_init():
    class Early(gt.nn.Module):
        def __init__(self):
            self.layer = gt.nn.Linear(1, 1)

    with pytest.raises(AttributeError, match="cannot assign module before"):
        Early()


def test_hooks():
    seen = []
    layer = gt.nn.Linear(2, 2)
    first = layer.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    second = layer.register_forward_hook(lambda m, args, out: seen.append("after") or out + 1)
    layer.register_forward_hook(lambda m, args, out: seen.append("before"), prepend=True)
    x = gt.ones(1, 2)
    np.testing.assert_allclose(
        layer(x).detach().numpy(), (layer.forward(x * 2) + 1).detach().numpy(), rtol=1e-6
    )
    assert seen == ["before", "after"]
    first.remove()
    with second:
        pass
    assert layer(x).tolist() == layer.forward(x).tolist()


def test_hook_with_keywords_and_after_a_failure():
    class Doubling(gt.nn.Module):
        def forward(self, x, *, times=2):
            if times < 0:
                raise ValueError("negative")
            return x * times

    seen = []
    layer = Doubling()
    layer.register_forward_pre_hook(lambda m, args, kwargs: (args, {"times": 3}), with_kwargs=True)
    assert layer(gt.ones(1)).tolist() == [3]
    failing = Doubling()
    failing.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(ValueError, match="negative"):
        failing(gt.ones(1), times=-1)
    assert seen == [None]


def test_parameter():
    value = gt.ones(2)
    param = gt.nn.Parameter(value)
    assert isinstance(param, gt.Tensor)
    assert param.requires_grad
    assert param.is_leaf
    assert type(param * 2) is gt.Tensor
    assert repr(param) == f"Parameter containing:\n{gt.ones(2, requires_grad=True)!r}"
    with gt.no_grad():
        param += 1
    assert value.tolist() == [2, 2]  # the value is shared, as in PyTorch
    assert not gt.nn.Parameter(value, requires_grad=False).requires_grad


@pytest.mark.parametrize("library", LIBRARIES, ids=["gt", "torch"])
def test_containers(library):
    nn = library.nn
    chain = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    chain.append(nn.Linear(2, 3))
    assert len(chain) == 3
    assert isinstance(chain[-1], nn.Linear)
    assert isinstance(chain[:2], nn.Sequential)
    assert [type(child).__name__ for child in chain] == ["Linear", "ReLU", "Linear"]
    del chain[1]
    assert list(chain.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    chain[0] = nn.Identity()
    with pytest.raises(IndexError, match="index 2 is out of range"):
        chain[2]
    listed = nn.ModuleList([nn.ReLU()])
    listed.insert(0, nn.Tanh())
    listed += [nn.Tanh(), nn.Tanh()]
    assert repr(listed) == "ModuleList(\n  (0): Tanh()\n  (1): ReLU()\n  (2-3): 2 x Tanh()\n)"
    named = nn.ModuleDict({"a": nn.Linear(1, 1)})
    named["b"] = nn.ReLU()
    assert list(named) == list(named.keys()) == ["a", "b"]
    assert "b" in named
    assert isinstance(named.pop("b"), nn.ReLU)
    params = nn.ParameterList([library.zeros(1), library.ones(2)])
    params.append(library.ones(3))
    assert list(params.state_dict()) == ["0", "1", "2"]
    assert isinstance(params[1], nn.Parameter)
    by_name = nn.ParameterDict({"w": library.ones(2)})
    assert [name for name, _ in by_name.items()] == ["w"]
    assert len(list(by_name.parameters())) == 1


def test_sequential_from_names():
    chain = gt.nn.Sequential({"first": gt.nn.Linear(2, 3), "then": gt.nn.ReLU()})
    assert list(chain.state_dict()) == ["first.weight", "first.bias"]
    assert chain.then(gt.ones(1)).tolist() == [1]


# ---- initial values ----

INITIAL = {
    "uniform_": lambda init, w: init.uniform_(w, -2.0, 3.0),
    "normal_": lambda init, w: init.normal_(w, 1.0, 0.5),
    "trunc_normal_": lambda init, w: init.trunc_normal_(w, 0.2, 1.0, -1.0, 0.9),
    "xavier_uniform_": lambda init, w: init.xavier_uniform_(w, gain=2.0),
    "xavier_normal_": lambda init, w: init.xavier_normal_(w),
    "kaiming_uniform_": lambda init, w: init.kaiming_uniform_(w, a=math.sqrt(5)),
    "kaiming_normal_": lambda init, w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"),
    "constant_": lambda init, w: init.constant_(w, 0.3),
    "eye_": lambda init, w: init.eye_(w),
}


@pytest.mark.parametrize("name", INITIAL)
def test_initial_values_have_pytorchs_distribution(name):
    gt.manual_seed(3)
    torch.manual_seed(3)
    ours = INITIAL[name](gt.nn.init, gt.nn.Parameter(gt.empty(300, 200))).detach().numpy()
    theirs = INITIAL[name](torch.nn.init, torch.empty(300, 200)).numpy()
    levels = np.linspace(0.02, 0.98, 25)
    spread = max(float(theirs.std()), 1e-6)
    np.testing.assert_allclose(
        np.quantile(ours, levels), np.quantile(theirs, levels), atol=0.03 * spread
    )


def test_a_seed_repeats_initial_values():
    gt.manual_seed(7)
    first = gt.nn.LSTM(3, 4).state_dict()
    gt.manual_seed(7)
    second = gt.nn.LSTM(3, 4).state_dict()
    assert all(first[name].tolist() == second[name].tolist() for name in first)


def test_dropout_scales_what_it_keeps():
    gt.manual_seed(1)
    x = gt.ones(100, 100, requires_grad=True)
    out = gt.nn.Dropout(0.25)(x)
    out.sum().backward()
    values = out.detach().numpy()
    assert set(np.unique(values)) == {0.0, np.float32(1 / 0.75)}
    assert 0.72 < (values > 0).mean() < 0.78
    np.testing.assert_array_equal(x.grad.numpy(), values)


# ---- utils ----


@pytest.mark.parametrize("kind", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("bound", [0.5, 1e3])
def test_clip_grad_norm(kind, bound):
    ours, theirs = twins(lambda t: t.nn.Linear(4, 3))
    norms = []
    for library, model in ((gt, ours), (torch, theirs)):
        (model(library.tensor(X)) ** 2).sum().backward()
        norms.append(library.nn.utils.clip_grad_norm_(model.parameters(), bound, kind).item())
    assert math.isclose(*norms, rel_tol=1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(a.grad, b.grad, "gradient", 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("value", [300.0, 1e-4])  # whose square is none of the half's numbers
def test_the_norm_of_half_precision_is_taken_in_single(dtype, value):
    norms = []
    for library in (gt, torch):
        parameters = [
            library.full((30, 3), value, dtype=getattr(library, dtype)),
            library.ones(2, dtype=getattr(library, dtype)) * value,
        ]
        norm = library.nn.utils.get_total_norm(parameters)
        assert norm.dtype == getattr(library, dtype)
        norms.append(norm.item())
    assert math.isclose(*norms, rel_tol=1e-2)


def test_clip_grad_norm_refuses_what_is_not_finite():
    param = gt.nn.Parameter(gt.ones(2))
    (param * math.inf).sum().backward()
    with pytest.raises(RuntimeError, match="non-finite"):
        gt.nn.utils.clip_grad_norm_([param], 1.0, error_if_nonfinite=True)


def test_clip_grad_value_and_vectors():
    layer = gt.nn.Linear(2, 1)
    (layer(gt.tensor([[3.0, -0.25]]))).sum().backward()
    gt.nn.utils.clip_grad_value_(layer.parameters(), 0.5)
    assert layer.weight.grad.tolist() == [[0.5, -0.25]]
    vector = gt.nn.utils.parameters_to_vector(layer.parameters())
    assert tuple(vector.shape) == (3,)
    gt.nn.utils.vector_to_parameters(gt.tensor([1.0, 2.0, 3.0]), layer.parameters())
    assert layer.weight.tolist() == [[1, 2]]
    assert layer.bias.tolist() == [3]


def test_embedding_max_norm_and_pretrained():
    rows = gt.tensor([[3.0, 4.0], [0.3, 0.4]])
    table = gt.nn.Embedding.from_pretrained(rows)
    assert not table.weight.requires_grad
    shortened = gt.nn.functional.embedding(gt.tensor([0, 1]), rows, max_norm=1.0)
    np.testing.assert_allclose(shortened.numpy(), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)


def test_one_hot_and_pad():
    assert gt.nn.functional.one_hot(gt.tensor([1, 0])).tolist() == [[0, 1], [1, 0]]
    check(lambda t, x: t.nn.functional.pad(x, (1, 2, 0, 1), value=3.0), [X])
    check(lambda t, x: t.nn.functional.normalize(x, dim=1), [X])
    check(lambda t, x, y: t.nn.functional.cosine_similarity(x, y), [X, OTHER])
    check(lambda t, x, y: t.nn.functional.pairwise_distance(x, y, p=3.0), [X, OTHER])
