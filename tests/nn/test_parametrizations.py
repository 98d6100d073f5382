"""Parametrizations, weight norm, spectral norm: values, gradients, state, errors as PyTorch."""

import copy

import numpy as np
import pytest
import torch

import gt

BOTH = pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def numbers(m, *shape):
    values = np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")
    return m.tensor(values)


def twins(kind, *args, **kwargs):
    """A module of both, with the same parameters."""
    theirs = getattr(torch.nn, kind)(*args, **kwargs)
    ours = getattr(gt.nn, kind)(*args, **kwargs)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def same_state(ours, theirs):
    """Names, their order, and values must be equal."""
    mine, its = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(its)
    for name, value in mine.items():
        np.testing.assert_allclose(value.numpy(), its[name].numpy(), err_msg=name, **CLOSE)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]


def same_step(ours, theirs, shape):
    """Output and gradients, also of the input, must be equal."""
    results = []
    for m, module in ((gt, ours), (torch, theirs)):
        module.zero_grad()
        x = numbers(m, *shape).requires_grad_()
        out = module(x)
        out = out[0] if isinstance(out, tuple) else out
        (out * out).sum().backward()
        results.append([out, x.grad, *(p.grad for p in module.parameters())])
    for mine, reference in zip(*results, strict=True):
        its = reference.detach().numpy()
        # A small element of a gradient is what large terms leave.
        atol = CLOSE["atol"] * max(1.0, np.abs(its).max(initial=0.0))
        np.testing.assert_allclose(mine.detach().numpy(), its, rtol=CLOSE["rtol"], atol=atol)


LAYERS = [
    ("Linear", (3, 4), (5, 3)),
    ("Conv2d", (3, 4, 2), (2, 3, 5, 5)),
    ("ConvTranspose2d", (3, 4, 2), (2, 3, 5, 5)),
    ("Linear", (4, 4), (5, 4)),
]


# ---- weight norm ----


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
@pytest.mark.parametrize(("kind", "args", "shape"), LAYERS)
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("form", ["hook", "parametrization"])
def test_weight_norm(kind, args, shape, dim, form):
    ours, theirs = twins(kind, *args)
    for m, module in ((gt, ours), (torch, theirs)):
        utils = m.nn.utils if form == "hook" else m.nn.utils.parametrizations
        assert utils.weight_norm(module, dim=dim) is module
    same_state(ours, theirs)
    same_step(ours, theirs, shape)
    doubled = {name: value * 2 for name, value in theirs.state_dict().items()}
    theirs.load_state_dict(doubled)
    ours.load_state_dict(doubled)
    same_step(ours, theirs, shape)
    if form == "hook":
        for m, module in ((gt, ours), (torch, theirs)):
            m.nn.utils.remove_weight_norm(module)
            with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
                m.nn.utils.remove_weight_norm(module)
    else:
        for m, module in ((gt, ours), (torch, theirs)):
            m.nn.utils.parametrize.remove_parametrizations(module, "weight")
    same_state(ours, theirs)
    same_step(ours, theirs, shape)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
def test_older_weight_norm_loads_into_the_new_form():
    ours, theirs = twins("Linear", 3, 4)
    torch.nn.utils.weight_norm(theirs)
    gt.nn.utils.parametrizations.weight_norm(ours)
    ours.load_state_dict({name: value * 2 for name, value in theirs.state_dict().items()})
    np.testing.assert_allclose(ours.weight.detach(), 2 * theirs.weight.detach().numpy(), **CLOSE)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
def test_weight_norm_of_a_recurrent_weight():
    ours, theirs = twins("LSTM", 3, 4, batch_first=True)
    for m, module in ((gt, ours), (torch, theirs)):
        m.nn.utils.weight_norm(module, "weight_hh_l0")
    same_state(ours, theirs)
    same_step(ours, theirs, (2, 5, 3))


# ---- spectral norm ----


@pytest.mark.parametrize(("kind", "args", "shape"), LAYERS)
@pytest.mark.parametrize("form", ["hook", "parametrization"])
@pytest.mark.parametrize("steps", [1, 3])
def test_spectral_norm(kind, args, shape, form, steps):
    ours, theirs = twins(kind, *args)
    for m, module in ((gt, ours), (torch, theirs)):
        utils = m.nn.utils if form == "hook" else m.nn.utils.parametrizations
        utils.spectral_norm(module, n_power_iterations=steps)
    ours.load_state_dict(theirs.state_dict())
    same_state(ours, theirs)
    for _ in range(3):  # each step of training iterates
        same_step(ours, theirs, shape)
        same_state(ours, theirs)
    ours.eval(), theirs.eval()
    before = {name: value.numpy() for name, value in ours.state_dict().items()}
    same_step(ours, theirs, shape)
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    theirs.load_state_dict({n: torch.tensor(v.numpy()) for n, v in ours.state_dict().items()})
    for m, module in ((gt, ours), (torch, theirs)):
        if form == "hook":
            m.nn.utils.remove_spectral_norm(module)
        else:
            m.nn.utils.parametrize.remove_parametrizations(module, "weight")
    same_state(ours, theirs)


@pytest.mark.parametrize("form", ["hook", "parametrization"])
def test_spectral_norm_brings_the_largest_singular_value_to_one(form):
    layer = gt.nn.Linear(6, 5)
    utils = gt.nn.utils if form == "hook" else gt.nn.utils.parametrizations
    utils.spectral_norm(layer, n_power_iterations=30)
    loss = layer(gt.ones(1, 6)).sum() - layer(gt.zeros(1, 6)).sum()  # twice before one backward
    loss.backward()
    assert abs(np.linalg.norm(layer.weight.detach().numpy(), 2) - 1) < 1e-4


@BOTH
def test_spectral_norm_of_a_vector_and_errors(m):
    utils = m.nn.utils.parametrizations
    layer = utils.spectral_norm(m.nn.Linear(3, 4), "bias")
    assert abs((layer.bias * layer.bias).sum().item() - 1) < 1e-5
    with pytest.raises(ValueError, match="n_power_iterations to be positive"):
        utils.spectral_norm(m.nn.Linear(3, 4), n_power_iterations=0)
    with pytest.raises(IndexError, match="expected to be in range of"):
        utils.spectral_norm(m.nn.Linear(3, 4), dim=2)
    with pytest.raises(ValueError, match="has no parameter or buffer with name 'w'"):
        utils.spectral_norm(m.nn.Linear(3, 4), "w")
    layer = m.nn.utils.spectral_norm(m.nn.Linear(3, 4))
    with pytest.raises(RuntimeError, match="Cannot register two spectral_norm hooks"):
        m.nn.utils.spectral_norm(layer, "weight")


# ---- orthogonal ----


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (5, 1)])
@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("based", [True, False])
def test_orthogonal(shape, how, based):
    ours, theirs = twins("Linear", shape[1], shape[0])
    chosen = how or ("matrix_exp" if shape[0] == shape[1] else "householder")
    for m, module in ((gt, ours), (torch, theirs)):
        orthogonal = m.nn.utils.parametrizations.orthogonal
        orthogonal(module, orthogonal_map=how, use_trivialization=based)
    weight = ours.weight.detach().numpy()
    small = weight @ weight.T if shape[0] < shape[1] else weight.T @ weight
    np.testing.assert_allclose(small, np.eye(min(shape)), atol=1e-5)
    if not based and chosen == "householder":
        same_state(ours, theirs)  # no random numbers to complete the matrix
    ours.load_state_dict(theirs.state_dict())
    if based:
        ours.parametrizations.weight[0].base = gt.tensor(
            theirs.parametrizations.weight[0].base.numpy()
        )
    same_step(ours, theirs, (2, shape[1]))
    with torch.no_grad():
        theirs.parametrizations.weight.original.mul_(1.5 if chosen != "householder" else 1)
        theirs.parametrizations.weight.original.add_(numbers(torch, *shape).tril(-1))
    ours.load_state_dict(theirs.state_dict())
    same_step(ours, theirs, (2, shape[1]))
    errors = []
    for m, module in ((gt, ours), (torch, theirs)):
        target = torch.nn.init.orthogonal_(torch.empty(shape)).numpy()
        if based or chosen == "householder":
            module.weight = m.tensor(target)
            np.testing.assert_allclose(module.weight.detach().numpy(), target, atol=1e-5)
        else:
            with pytest.raises(NotImplementedError) as error:
                module.weight = m.tensor(target)
            errors.append(str(error.value))
    assert len(set(errors)) <= 1


@BOTH
def test_errors_of_orthogonal(m):
    orthogonal = m.nn.utils.parametrizations.orthogonal
    with pytest.raises(ValueError, match="Got a tensor of 1 dimensions"):
        orthogonal(m.nn.Linear(3, 4), "bias")
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        orthogonal(m.nn.Linear(3, 4), orthogonal_map="other")


# ---- parametrize ----


def symmetric(m):
    class Symmetric(m.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).t()

        def right_inverse(self, x):
            return x.triu()

    return Symmetric()


def other(m, change, inverse=None):
    class Other(m.nn.Module):
        def forward(self, *x):
            return change(*x)

    if inverse is not None:
        Other.right_inverse = lambda self, x: inverse(x)
    return Other()


def test_a_chain_of_parametrizations():
    ours, theirs = twins("Linear", 4, 4)
    for m, module in ((gt, ours), (torch, theirs)):
        parametrize = m.nn.utils.parametrize
        before = module.weight
        assert not parametrize.is_parametrized(module)
        parametrize.register_parametrization(module, "weight", symmetric(m))
        parametrize.register_parametrization(module, "weight", other(m, lambda x: x * 2))
        assert parametrize.is_parametrized(module, "weight")
        assert not parametrize.is_parametrized(module, "bias")
        assert type(module).__name__ == "ParametrizedLinear"
        assert parametrize.type_before_parametrizations(module) is m.nn.Linear
        assert module.parametrizations.weight.original is before  # which an optimizer holds
    same_state(ours, theirs)
    same_step(ours, theirs, (2, 4))
    for m, module in ((gt, ours), (torch, theirs)):
        with pytest.raises(RuntimeError, match="does not implement right_inverse"):
            module.weight = m.ones(4, 4)
    assert [line.strip() for line in repr(ours).splitlines()] == [
        line.strip() for line in repr(theirs).splitlines()
    ]
    copies = [copy.deepcopy(module) for module in (ours, theirs)]
    same_step(*copies, (2, 4))
    for m, module in ((gt, ours), (torch, theirs)):
        m.nn.utils.parametrize.remove_parametrizations(module, "weight")
        assert type(module) is m.nn.Linear
    same_state(ours, theirs)
    same_step(ours, theirs, (2, 4))


@pytest.mark.parametrize("leave", [True, False])
def test_assigning_and_removing(leave):
    ours, theirs = twins("Linear", 3, 3)
    for m, module in ((gt, ours), (torch, theirs)):
        parametrize = m.nn.utils.parametrize
        parametrize.register_parametrization(module, "weight", symmetric(m))
        parametrize.register_parametrization(module, "bias", other(m, lambda x: x + 1))
        module.weight = numbers(m, 3, 3)
        parametrize.remove_parametrizations(module, "weight", leave_parametrized=leave)
        assert parametrize.is_parametrized(module)
    same_state(ours, theirs)
    same_step(ours, theirs, (2, 3))


@BOTH
def test_several_originals_and_a_buffer(m):
    parametrize = m.nn.utils.parametrize
    layer = m.nn.Linear(2, 2)
    before = layer.weight.tolist()
    split = other(m, lambda a, b: a + b, lambda x: (x * 0.25, x * 0.75))
    parametrize.register_parametrization(layer, "weight", split)
    names = [name for name, _ in layer.named_parameters()]
    assert names == ["bias", "parametrizations.weight.original0",
                     "parametrizations.weight.original1"]  # fmt: skip
    assert layer.weight.tolist() == before
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight.tolist() == before
    assert isinstance(layer.weight, m.nn.Parameter)
    layer.register_buffer("b", m.ones(2))
    parametrize.register_parametrization(layer, "b", other(m, lambda x: x * 3))
    assert layer.b.tolist() == [3.0, 3.0]
    assert "parametrizations.b.original" in layer.state_dict()
    parametrize.remove_parametrizations(layer, "b")
    assert dict(layer.named_buffers())["b"].tolist() == [3.0, 3.0]


@BOTH
def test_cached(m):
    calls = []
    layer = m.nn.Linear(2, 2)
    counting = other(m, lambda x: calls.append(1) or x * 2)
    m.nn.utils.parametrize.register_parametrization(layer, "weight", counting, unsafe=True)
    calls.clear()
    with m.nn.utils.parametrize.cached():
        for _ in range(3):
            layer(m.ones(1, 2))
        with m.nn.utils.parametrize.cached():
            assert layer.weight is layer.weight
    assert len(calls) == 1
    assert layer.weight is not layer.weight


@BOTH
def test_transfer(m):
    parametrize = m.nn.utils.parametrize
    source, target, empty = m.nn.Linear(3, 3), m.nn.Linear(3, 3), m.nn.Identity()
    parametrize.register_parametrization(source, "weight", symmetric(m))
    m.nn.utils.parametrizations.weight_norm(source, "bias", dim=None)
    for module in (target, empty):
        assert parametrize.transfer_parametrizations_and_params(source, module) is module
        assert module.weight.tolist() == source.weight.tolist()
        assert module.bias.tolist() == source.bias.tolist()
        mine, its = module.parametrizations.weight, source.parametrizations.weight
        assert mine.original is its.original


WRONG = [
    lambda m: other(m, lambda x: x[:2]),
    lambda m: other(m, lambda x: x.double()),
    lambda m: other(m, lambda x: (x,)),
    lambda m: other(m, lambda x: x, lambda x: 3),
    lambda m: other(m, lambda x: x, lambda x: (x, 3)),
    lambda m: other(m, lambda x: x.float(), lambda x: x.double()),
]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("first", [True, False])
def test_errors_of_registering(wrong, first):
    texts = []
    for m in (gt, torch):
        layer, register = m.nn.Linear(3, 3), m.nn.utils.parametrize.register_parametrization
        if not first:
            register(layer, "weight", other(m, lambda x: x * 1))
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the texts are compared
            register(layer, "weight", wrong(m))
        texts.append(str(error.value).replace("gt.", "torch."))
        assert isinstance(layer.weight, m.Tensor)
    assert texts[0] == texts[1]


@BOTH
def test_other_errors_of_parametrize(m):
    parametrize = m.nn.utils.parametrize
    layer = m.nn.Linear(3, 3)
    with pytest.raises(ValueError, match="parametrized element with name 'w'"):
        parametrize.register_parametrization(layer, "w", symmetric(m))
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        parametrize.remove_parametrizations(layer, "weight")
    with pytest.raises(ValueError, match="requires one or more modules"):
        parametrize.ParametrizationList([], layer.weight)
    parametrize.register_parametrization(layer, "weight", symmetric(m))
    with pytest.raises(RuntimeError, match="Serialization of parametrized modules is only"):
        layer.__getstate__()


def test_training_with_a_parametrization_is_as_in_pytorch():
    ours, theirs = twins("Linear", 4, 4)
    for m, module in ((gt, ours), (torch, theirs)):
        m.nn.utils.parametrize.register_parametrization(module, "weight", symmetric(m))
        optimizer = m.optim.Adam(module.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            module(numbers(m, 6, 4)).square().sum().backward()
            optimizer.step()
    same_state(ours, theirs)
