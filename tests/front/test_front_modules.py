"""Modules, hooks, files, transforms and random numbers on the device `mux`, beside the host's."""

import copy
import io
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from front_devices import Program, assert_same_on_both, ramp
from front_paths import front_path  # noqa: F401 - runs each test in both ways
from torch import nn
from torch.nn import functional as F
from torch_session import torch_workers

import gt.torch  # noqa: F401 - names the device

PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


@program
def tied_weights(device: str) -> Any:
    m = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    m[1].weight = m[0].weight
    m.to(device)
    a = m[1].weight is m[0].weight
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    m(torch.tensor([1, 2], device=device)).sum().backward()
    o.step()
    m.to("cpu")
    b = m[1].weight is m[0].weight
    return (a, b, len(list(m.parameters())), isinstance(m[0].weight, nn.Parameter))


@program
def files(device: str) -> Any:
    b = io.BytesIO()
    m = nn.Linear(3, 2).to(device)
    torch.manual_seed(0)
    with torch.no_grad():
        m.weight.copy_(ramp(2, 3))
        m.bias.zero_()
    torch.save({"m": m.state_dict(), "x": ramp(2).to(device), "k": 3}, b)
    r = []
    for loc in (None, "cpu", device, torch.device(device)):
        b.seek(0)
        found = torch.load(b, map_location=loc)
        r.append(
            (
                found["m"]["weight"],
                found["x"],
                found["k"],
                found["x"].device.type == torch.device(loc or device).type,
            )
        )
    b = io.BytesIO()
    torch.save(m, b)
    b.seek(0)
    n = torch.load(b, weights_only=False)
    r.append((n.weight, isinstance(n.weight, nn.Parameter), n.weight.requires_grad))
    p = pickle.loads(pickle.dumps(m))
    r.append(p.weight)
    return r


@program
def copies(device: str) -> Any:
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    m.to(device)
    with torch.no_grad():
        m[0].weight.copy_(ramp(2, 2))
        m[0].bias.zero_()
        m[1].bias.zero_()
    n = copy.deepcopy(m)
    with torch.no_grad():
        n[0].weight.add_(1)
    x = ramp(2, 2).to(device)
    y = x[0]
    x2, y2 = copy.deepcopy([x, y])
    y2.add_(5)
    return (m[0].weight, n[1].weight, n[0].weight is n[1].weight, x, x2, copy.copy(x))


@program
def hooks(device: str) -> Any:
    log = []
    m = nn.Linear(2, 2).to(device)
    with torch.no_grad():
        m.weight.copy_(ramp(2, 2))
        m.bias.zero_()
    m.register_forward_hook(lambda m, i, o: o * 2)
    m.register_full_backward_hook(lambda m, gi, go: log.append(go[0].clone()))
    x = ramp(2, 2).to(device).requires_grad_()
    x.register_hook(lambda g: g * 3)
    y = m(x)
    y.retain_grad()
    y.sum().backward()
    return (x.grad, y.grad, log, m.weight.grad)


@program
def checkpoints(device: str) -> Any:
    from torch.utils.checkpoint import checkpoint

    r = []
    for re in (True, False):
        x = ramp(2, 2).to(device).requires_grad_()
        w = ramp(2, 2).to(device).requires_grad_()
        y = checkpoint(lambda a, b: (a @ b).relu().sum(), x, w, use_reentrant=re)
        y.backward()
        r += [x.grad, w.grad]
    return r


@program
def functional_call(device: str) -> Any:
    m = nn.Linear(2, 2).to(device)
    return torch.func.functional_call(
        m, {"weight": ramp(2, 2).to(device), "bias": ramp(2).to(device)}, (ramp(1, 2).to(device),)
    )


@program
def inference(device: str) -> Any:
    with torch.inference_mode():
        x = ramp(2, 3).to(device)
        m = (
            nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.GELU(), nn.Dropout(0.5))
            .to(device)
            .eval()
        )
        for p in m.parameters():
            p.fill_(0.5)
        return (
            m(x),
            x.is_inference(),
            F.scaled_dot_product_attention(
                ramp(1, 2, 3, 4).to(device) / 10,
                ramp(1, 2, 3, 4).to(device) / 10,
                ramp(1, 2, 3, 4).to(device),
            ),
        )


@program
def inference_of_what_was_made_before(device: str) -> Any:
    x = ramp(2, 6).to(device)
    m = nn.Sequential(nn.Linear(6, 6), nn.Flatten(0), nn.Unflatten(0, (2, 6))).to(device)
    lstm = nn.LSTM(6, 3).to(device)
    with torch.no_grad():
        for p in (*m.parameters(), *lstm.parameters()):
            p.fill_(0.1)
    with torch.inference_mode():
        views = [
            x.view(3, 4), x[0], x[:, 1:], x.t(), x.chunk(2, 1)[1], x.split([2, 4], 1)[0], x[None],
            x.unbind(1)[2], x.expand(1, 2, 6), x.transpose(0, 1), x.permute(1, 0), x.squeeze(),
            x.select(1, 2), x.diagonal(), x.unfold(1, 2, 2), x.detach(), x.movedim(0, 1), x.real,
            x.narrow(1, 0, 2), x.reshape(-1), x.view(-1)[1:][1:],
        ]  # fmt: skip
        flags = [view.is_inference() for view in views]
        x[0, :2].add_(1)
        made = x + 1
        flags += [made.is_inference(), made[0].is_inference(), x.is_inference()]
        results = [m(x), lstm(x)]
    x.requires_grad_()
    (x * x).sum().backward()
    return views, flags, results, x, x.grad


@program
def modules_with_tensors_that_have_a_history(device: str) -> Any:
    """The weight that `weight_norm` leaves has a history, and is recreated on the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = nn.utils.weight_norm(nn.Linear(2, 2).to(device))
    with torch.no_grad():
        m.weight_v.copy_(ramp(2, 2) + 1)
        m.weight_g.copy_(ramp(2, 1) + 1)
        m.bias.zero_()
    m = nn.Sequential(m).to(device).to(device).float()
    results = [m(ramp(1, 2).to(device))]
    results[0].sum().backward()
    copy_of = m.to("cpu").to(device).double()
    return results, m[0].weight_g.grad, copy_of(ramp(1, 2).to(device).double())


@program
def scaler(device: str) -> Any:
    s = torch.amp.GradScaler(device, init_scale=4.0)
    m = nn.Linear(2, 1).to(device)
    with torch.no_grad():
        m.weight.fill_(1.0)
        m.bias.zero_()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    r = []
    for k in (1.0, float("inf"), 1.0):
        o.zero_grad()
        found = m(ramp(1, 2).to(device) * k + 0.0).sum()
        s.scale(found).backward()
        s.unscale_(o)
        nn.utils.clip_grad_norm_(m.parameters(), 10.0)
        s.step(o)
        s.update()
        r += [m.weight.detach().clone(), s.get_scale()]
    return r


@program
def loader(device: str) -> Any:
    from torch.utils.data import DataLoader, TensorDataset

    return [
        (x.to(device) * 2, y.to(device, non_blocking=True))
        for x, y in DataLoader(TensorDataset(ramp(4, 2), torch.arange(4)), batch_size=2)
    ]


@program
def default_device(device: str) -> Any:
    r = []
    with torch.device(device):
        m = nn.Linear(2, 2)
        r += [
            m.weight.device.type == torch.device(device).type,
            torch.zeros(2).device.type == torch.device(device).type,
            torch.tensor([1.0]).device.type == torch.device(device).type,
        ]
    torch.set_default_device(device)
    r.append(torch.ones(2).device.type == torch.device(device).type)
    torch.set_default_device(None)
    return r


@program
def utilities(device: str) -> Any:
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    m = nn.Linear(2, 2).to(device)
    v = parameters_to_vector(m.parameters())
    vector_to_parameters(torch.arange(6.0, device=device), m.parameters())
    from torch.optim.swa_utils import AveragedModel

    a = AveragedModel(m)
    a.update_parameters(m)
    wn = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2).to(device))
    wn(ramp(1, 2).to(device)).sum().backward()
    return (m.weight, m.bias, a.module.weight, v.shape)


@program
def packed_sequences(device: str) -> Any:
    torch.manual_seed(0)
    r = nn.GRU(3, 4, batch_first=True)
    r = r.to(device)
    x = ramp(2, 4, 3).to(device) / 10
    p = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2]), batch_first=True)
    o, h = r(p)
    u, _l = nn.utils.rnn.pad_packed_sequence(o, batch_first=True)
    u.sum().backward()
    return (u, h, r.weight_ih_l0.grad)


@program
def recurrent(device: str) -> Any:
    torch.manual_seed(0)
    r = nn.RNN(3, 4, batch_first=True).to(device)
    o, h = r(ramp(2, 4, 3).to(device) / 10)
    o.sum().backward()
    b = nn.LSTM(3, 4, bidirectional=True).to(device)
    return (o, h, r.weight_ih_l0.grad, b(ramp(2, 4, 3).to(device))[0].shape)


@program
def attention(device: str) -> Any:
    torch.manual_seed(0)
    m = nn.MultiheadAttention(4, 2, batch_first=True).to(device)
    x = ramp(1, 3, 4).to(device) / 10
    o, w = m(x, x, x)
    o.sum().backward()
    return (o, w, m.in_proj_weight.grad)


@program
def batch_norms(device: str) -> Any:
    m = nn.BatchNorm2d(2).to(device)
    x = ramp(2, 2, 3, 3).to(device)
    m(x).sum()
    y = m(x)
    m.eval()
    return (y, m(x), m.running_mean, m.running_var, m.num_batches_tracked)


@program
def bags(device: str) -> Any:
    m = nn.EmbeddingBag(5, 3, mode="sum").to(device)
    with torch.no_grad():
        m.weight.copy_(ramp(5, 3))
    y = m(torch.tensor([0, 1, 2], device=device), torch.tensor([0, 2], device=device))
    y.sum().backward()
    return (y, m.weight.grad)


@program
def accumulation(device: str) -> Any:
    m = nn.Linear(2, 1).to(device)
    with torch.no_grad():
        m.weight.fill_(1.0)
        m.bias.zero_()
    for _ in range(3):
        m(ramp(1, 2).to(device)).sum().backward()
    g = m.weight.grad
    m.zero_grad(set_to_none=False)
    return (g, m.weight.grad is g)


@program
def schedules(device: str) -> Any:
    m = nn.Linear(2, 1).to(device)
    o = torch.optim.AdamW(m.parameters(), lr=0.1)
    s = torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=4)
    r = []
    for _ in range(3):
        m(ramp(1, 2).to(device)).sum().backward()
        o.step()
        s.step()
        r.append(s.get_last_lr())
    return r


@program
def functions(device: str) -> Any:

    class Sq(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    x = ramp(3).to(device).requires_grad_()
    Sq.apply(x).sum().backward()
    return x.grad


@program
def images(device: str) -> Any:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, 8).to(device).requires_grad_()
    w = torch.randn(6, 2, 3, 3).to(device).requires_grad_()
    wt = torch.randn(4, 3, 2, 2).to(device).requires_grad_()
    y = F.conv2d(x, w, padding=1, groups=2, stride=2)
    z = F.conv_transpose2d(x, wt, stride=2)
    u = F.interpolate(x, scale_factor=2, mode="bilinear")
    n = F.interpolate(x, size=(4, 4))
    p = F.pad(x, (1, 1, 1, 1), mode="reflect")
    pp = F.pad(x, (1, 1))
    px = F.pixel_shuffle(x, 2)
    av = F.avg_pool2d(x, 2)
    i = F.instance_norm(x)
    found = F.local_response_norm(x, 2)
    g = F.grid_sample(x, torch.zeros(2, 3, 3, 2).to(device), align_corners=False)
    un = F.unfold(x, 2)
    s = sum(
        (
            t.sum() * (k + 1) + (t * t).sum()
            for k, t in enumerate((y, z, u, n, p, pp, px, av, i, found, g, un))
        )
    )
    s.backward()
    return (y, z, u, n, x.grad, w.grad, wt.grad)


@program
def losses(device: str) -> Any:
    torch.manual_seed(0)
    a = torch.randn(4, 5).to(device).requires_grad_()
    b = torch.rand(4, 5).to(device)
    t = torch.tensor([1, 0, 4, 2], device=device)
    r = [
        F.mse_loss(a, b),
        F.l1_loss(a, b),
        F.smooth_l1_loss(a, b),
        F.huber_loss(a, b),
        F.binary_cross_entropy_with_logits(a, b),
        F.binary_cross_entropy(a.sigmoid(), b),
        F.kl_div(a.log_softmax(-1), b, reduction="batchmean"),
        F.nll_loss(a.log_softmax(-1), t),
        F.cross_entropy(a, t, label_smoothing=0.1),
        F.cross_entropy(a, t, ignore_index=0),
        F.cross_entropy(a, b.softmax(-1)),
        F.multi_margin_loss(a, t),
        F.triplet_margin_loss(a, b, b + 1),
        F.cosine_embedding_loss(a, b, torch.ones(4, device=device)),
        F.gaussian_nll_loss(a, b, torch.ones(4, 5, device=device)),
        F.poisson_nll_loss(a, b),
    ]
    sum(r).backward()
    return (r, a.grad)


@program
def foreach(device: str) -> Any:
    xs = [ramp(2).to(device) + 1, ramp(3).to(device) + 1]
    torch._foreach_add_(xs, 1.0)
    torch._foreach_mul_(xs, xs)
    n = torch._foreach_norm(xs)
    torch._foreach_addcdiv_(xs, xs, xs, value=2.0)
    torch._foreach_lerp_(xs, [x * 0 for x in xs], 0.5)
    return (xs, n, torch._foreach_sqrt(xs), torch._foreach_div(xs, 2.0))


@program
def no_grad_update(device: str) -> Any:
    x = ramp(3).to(device).requires_grad_()
    for _ in range(2):
        (x * x).sum().backward()
        with torch.no_grad():
            x -= 0.1 * x.grad
            x.grad = None
    return x


def refuse(*_: object) -> None:
    raise KeyError("mine")


def message(x: torch.Tensor) -> str:
    """Error of a hook in the backward pass from the sum."""
    with pytest.raises(KeyError) as raised:
        x.sum().backward()
    return str(raised.value)


@program
def raising_hooks(device: str) -> Any:
    x = ramp(2, 2).to(device).requires_grad_()
    y = x * 2
    y.register_hook(refuse)
    return message(y)


@program
def raising_module_hooks(device: str) -> Any:
    layer = nn.Linear(2, 2).to(device)
    layer.register_full_backward_hook(refuse)
    return message(layer(ramp(2, 2).to(device).requires_grad_()))


@program
def raising_node_hooks(device: str) -> Any:
    y = ramp(2, 2).to(device).requires_grad_() * 2
    y.grad_fn.register_prehook(refuse)
    return message(y)


@program
def raising_leaf_hooks(device: str) -> Any:
    x = ramp(2, 2).to(device).requires_grad_()
    x.register_post_accumulate_grad_hook(refuse)
    return message(x * 2)


@program
def second_derivatives(device: str) -> Any:
    x = ramp(3).to(device).requires_grad_()
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return (g, h)


@program
def transforms(device: str) -> Any:
    from torch.func import grad, hessian, jacrev, jvp, vmap

    x = ramp(3).to(device) + 1

    def f(x):
        return (x.sin() * x).sum()

    return (
        grad(f)(x),
        vmap(lambda a: a * 2)(ramp(2, 3).to(device)),
        jvp(f, (x,), (torch.ones_like(x),)),
        jacrev(lambda x: x**2)(x),
        hessian(f)(x),
        vmap(grad(f))(ramp(2, 3).to(device)),
    )


@program
def host_generators(device: str) -> Any:
    g = torch.Generator()
    g.manual_seed(1)
    a = torch.randn(3, device=device, generator=g)
    g.manual_seed(1)
    return torch.equal(a, torch.randn(3, device=device, generator=g)) if device != "cpu" else True


@program
def generators(device: str) -> Any:
    g = torch.Generator(device=device)
    g.manual_seed(1)
    a = torch.randn(3, device=device, generator=g)
    g.manual_seed(1)
    return (
        torch.equal(a, torch.randn(3, device=device, generator=g)),
        g.device.type == device,
        isinstance(g, torch.Generator),
    )


@program
def random_states(device: str) -> Any:
    torch.manual_seed(0)
    if device == "cpu":
        return True
    s = torch.mux.get_rng_state()
    a = torch.rand(2, device=device)
    torch.mux.set_rng_state(s)
    return torch.equal(a, torch.rand(2, device=device))


@program
def draws(device: str) -> Any:
    torch.manual_seed(3)
    a = torch.rand(3, device=device)
    b = torch.randn(3, device=device)
    torch.manual_seed(3)
    c = torch.rand(3, device=device)
    r = torch.randint(0, 5, (3,), device=device)
    p = torch.randperm(5, device=device).sort()[0]
    n = torch.normal(0.0, 1.0, (2,), device=device)
    m = torch.multinomial(torch.ones(3, device=device), 2)
    e = torch.empty(3, device=device).exponential_()
    bb = torch.bernoulli(torch.ones(2, device=device))
    dd = F.dropout(torch.ones(10, device=device), 0.0)
    found = nn.Linear(2, 2, device=device)
    nn.init.kaiming_uniform_(found.weight)
    nn.init.xavier_normal_(found.weight)
    nn.init.trunc_normal_(found.weight)
    nn.init.orthogonal_(found.weight)
    nn.init.constant_(found.bias, 1.0)
    return (
        torch.equal(a, c),
        a.shape,
        b.dtype,
        r.dtype,
        p,
        n.shape,
        m.shape,
        bb,
        dd,
        found.bias,
        e.shape,
    )


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_the_same_on_both(name: str) -> None:
    assert_same_on_both(PROGRAMS[name])


def test_state_goes_on_in_another_model() -> None:
    def step(device: str) -> Any:
        torch.manual_seed(0)
        models = [nn.Linear(4, 3), nn.Linear(4, 3)]
        first, second = (model.to(device) for model in models)
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.1) for model in (first, second)]
        x = ramp(5, 4).to(device)
        first(x).pow(2).sum().backward()
        optimizers[0].step()
        second.load_state_dict(first.state_dict())
        optimizers[1].load_state_dict(optimizers[0].state_dict())
        second(x).pow(2).sum().backward()
        optimizers[1].step()
        return second.state_dict(), [type(name) for name in first.state_dict()]

    assert_same_on_both(step)


def test_autocast_casts_as_on_a_gpu() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)).to("mux")
    x = ramp(2, 4).to("mux")
    low, wide = torch.bfloat16, torch.float32
    with torch.autocast("mux", dtype=low):
        assert torch.is_autocast_enabled("mux")
        linear, norm = model[0](x), model(x)
        loss = F.cross_entropy(norm, torch.tensor([0, 1], device="mux"))
        seen = [
            linear,
            x @ x.t(),
            torch.einsum("ij,kj->ik", x, x),
            F.conv1d(x[None], x[:1, :2, None]),
        ]
        assert [y.dtype for y in seen] == [low] * 4
        kept = [norm, loss, linear.softmax(-1), linear.sum(), linear.exp(), linear.float() + linear]
        assert [y.dtype for y in kept] == [wide] * 6
        with torch.autocast("mux", enabled=False):
            assert (x @ x.t()).dtype == wide
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(linear.sigmoid(), linear.sigmoid())
    loss.backward()
    assert model[0].weight.grad.dtype == wide


def test_what_is_not_implemented_names_the_schema_and_the_way_out() -> None:
    x = torch.ones(2, device="mux")
    with pytest.raises(NotImplementedError, match=r"aten::_to_sparse_csr\(.*x\.cpu\(\)"):
        x.to_sparse_csr()


def test_what_fails_in_a_backward_pass_is_raised_by_it() -> None:
    class Refused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient @ gradient.new_ones(3, 3)

    x = torch.ones(2, 2, device="mux", requires_grad=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            Refused.apply(x).sum().backward()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
