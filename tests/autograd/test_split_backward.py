"""A backward pass in two parts: the gradients of one pass, and nothing computed twice."""

import pytest

import gt
from gt import _core, nn
from gt.nn import functional


class Doubled(gt.autograd.Function):
    """A function of the user's, whose backward gives both gradients at once."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight * 2

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient * weight * 2, (gradient * x * 2).sum(0)


class Free(nn.Module):
    """A function of x and weights."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(gt.randn(*shape)) for shape in shapes])
        self.function = function

    def forward(self, x):
        return self.function(x, *self.weights)


def halved(leaf):
    leaf.grad.mul_(0.5)


def hooked():
    """Hooks of a leaf, of a leaf that has accumulated, of a result and of a node."""
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    model[0].weight.register_hook(lambda gradient: gradient * 3)
    model[2].bias.register_post_accumulate_grad_hook(halved)

    def forward(x):
        y = model[0](x)
        y.register_hook(lambda gradient: gradient * 2)
        z = model[2](model[1](y))
        z.grad_fn.register_prehook(lambda gradients: (gradients[0] * 1.5,))
        return z

    module = Free(forward)
    module.inner = model
    return module


def twice_used(x, weight):
    return gt.tanh(x @ weight) @ weight.t()


def derived(x, weight, scale):
    """A weight that is computed: nothing of it leads to x."""
    return x @ (weight / weight.norm(dim=0, keepdim=True) * gt.exp(scale)).t()


def views(x, weight):
    first, second, third = (x @ weight).reshape(4, 3, 2).unbind(1)
    return gt.cat([first * second, third, x[:, 1:3]], 1)


def in_place(x, weight):
    y = x @ weight
    y += x
    y[:, 0] *= 2.0
    return y


def checkpointed(x, weight):
    from gt.utils.checkpoint import checkpoint

    return checkpoint(lambda one: gt.tanh(one @ weight), x, use_reentrant=False) @ weight


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 3, batch_first=True)

    def forward(self, x):
        return self.lstm(x[None])[0][0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        one = x[None]
        return self.attention(one, one, one, need_weights=False)[0][0]


MODELS = {
    "linear": lambda: nn.Linear(6, 6),
    "two layers": lambda: nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 6)),
    "residual": lambda: Free(lambda x, w: x + gt.relu(x @ w), (6, 6)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6)),
    "rms norm": lambda: nn.RMSNorm(6),
    "batch norm": lambda: nn.BatchNorm1d(6),
    "group norm": lambda: nn.GroupNorm(2, 6),
    "prelu": nn.PReLU,
    "bilinear": lambda: Free(lambda x, w: functional.bilinear(x, x, w), (5, 6, 6)),
    "attention": Attention,
    "encoder layer": lambda: nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0),
    "gru cell": lambda: nn.GRUCell(6, 5),
    "lstm": Recurrent,
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 4, 2)),
    "used twice": lambda: Free(twice_used, (6, 6)),
    "derived weight": lambda: Free(derived, (5, 6), (5, 1)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)),
    "views": lambda: Free(views, (6, 6)),
    "in place": lambda: Free(in_place, (6, 6)),
    "where": lambda: Free(lambda x, w: gt.where(x > 0, x * w, w * w), (6,)),
    "broadcast": lambda: Free(lambda x, a, b: (x * a + b).sum(1, keepdim=True) * b, (4, 1), (6,)),
    "einsum": lambda: Free(lambda x, w: gt.einsum("bi,ijk->bjk", x, w), (6, 2, 3)),
    "function": lambda: Free(lambda x, w: Doubled.apply(x, w) @ gt.ones(6, 2), (6,)),
    "aten": lambda: Free(lambda x, w: gt.cosine_similarity(x, w) * gt.cdist(x, w).sum(), (4, 6)),
    "hooks": hooked,
    "checkpoint": lambda: Free(checkpointed, (6, 6)),
    "no input": lambda: Free(lambda x, w: (w * w).sum() + x.detach().sum(), (6,)),
    "no weight": lambda: Free(gt.tanh),
}  # fmt: skip


def run(make, backward):
    gt.manual_seed(0)
    model = make()
    x = gt.randn(4, 6).requires_grad_()
    gt.manual_seed(1)
    y = model(x)
    seed = gt.randn(*y.shape)
    first = _core.numbered()
    backward(y, seed, x)
    count = _core.numbered() - first
    gradients = [None if x.grad is None else x.grad.tolist()]
    gradients += [None if p.grad is None else p.grad.tolist() for p in model.parameters()]
    return gradients, count


def whole(y, seed, x):
    del x
    gt.autograd.backward(y, seed)


def split(y, seed, x):
    (x.grad,), weights = _core.split_backward([y], [seed], [x])
    weights.accumulate()


@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_of_one_pass_and_no_instruction_more(name):
    expected, count = run(MODELS[name], whole)
    gradients, split_count = run(MODELS[name], split)
    assert gradients == expected
    # A pass that fills `.grad` of x copies nothing; what fills it here copies nothing either.
    assert split_count == count


def test_what_a_part_computes():
    """A linear layer: a product for the input; for the weights a product and a sum."""
    layer = nn.Linear(6, 3)
    x = gt.randn(4, 6).requires_grad_()
    y = layer(x)
    (gradient,), weights = _core.split_backward([y], [gt.ones(4, 3)], [x])
    assert gradient.shape == x.shape
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    assert x.grad is None
    weights.accumulate()
    assert layer.weight.grad.tolist() == gt.ones(3, 4).matmul(x.detach()).tolist()
    with pytest.raises(RuntimeError, match="added already"):
        weights.accumulate()


def test_weights_add_up_in_the_order_of_their_calls():
    layer = nn.Linear(3, 3, bias=False)
    parts = [gt.randn(2, 3).requires_grad_() for _ in range(2)]
    left = [_core.split_backward([layer(x).sum()], [None], [x])[1] for x in parts]
    left[0].accumulate()
    first = layer.weight.grad.tolist()
    left[1].accumulate()
    again = nn.Linear(3, 3, bias=False)
    again.load_state_dict(layer.state_dict())
    again(parts[0]).sum().backward()
    assert again.weight.grad.tolist() == first
    again(parts[1]).sum().backward()
    assert layer.weight.grad.tolist() == again.weight.grad.tolist()


def test_several_roots_and_inputs():
    def make():
        gt.manual_seed(0)
        a, b, w = (gt.randn(3, 3).requires_grad_() for _ in range(3))
        return a, b, w, [a @ w, (b * w).sum(), w.exp()]

    seeds = [gt.full((3, 3), 0.5), None, gt.ones(3, 3)]
    a, b, w, roots = make()
    gt.autograd.backward(roots, seeds)
    expected = [a.grad.tolist(), b.grad.tolist(), w.grad.tolist()]
    a, b, w, roots = make()
    (of_a, of_b), weights = _core.split_backward(roots, seeds, [a, b])
    weights.accumulate()
    assert [of_a.tolist(), of_b.tolist(), w.grad.tolist()] == expected


def test_all_is_put_off_without_inputs():
    w = gt.randn(3).requires_grad_()
    gradients, weights = _core.split_backward([(w * 2).sum()], [None], [])
    assert gradients == []
    assert w.grad is None
    weights.accumulate()
    assert w.grad.tolist() == [2.0, 2.0, 2.0]


def test_inputs_are_leaves():
    x = gt.randn(3).requires_grad_()
    y = x * 2
    with pytest.raises(RuntimeError, match="are leaves"):
        _core.split_backward([y.sum()], [None], [y])


def test_a_weight_that_was_written_in_between_is_an_error():
    x, w = gt.randn(2, 2).requires_grad_(), gt.randn(2, 2).requires_grad_()
    _, weights = _core.split_backward([(x @ w).sum()], [None], [x])
    with gt.no_grad():
        w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        weights.accumulate()
