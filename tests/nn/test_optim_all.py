"""Every dense optimizer of torch.optim against PyTorch: ten steps, state, flags and mistakes."""

import numpy as np
import pytest
import torch

import gt

LIBRARIES = (gt, torch)
STEPS = 10
OPTIMIZERS = {
    "Adadelta": [
        {},
        {"lr": 0.5, "rho": 0.7, "eps": 1e-4},
        {"weight_decay": 0.1, "maximize": True, "foreach": True},
    ],
    "Adafactor": [
        {},
        {"lr": 0.3, "beta2_decay": -0.5, "weight_decay": 0.1},
        {"eps": (1e-3, 1e-2), "d": 1.5, "maximize": True},
        {"lr": 0.9, "foreach": False},
    ],
    "Adagrad": [{}, {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1}, {"maximize": True}],
    "Adam": [{}, {"amsgrad": True, "weight_decay": 0.1}, {"betas": (0.5, 0.6), "foreach": True}],
    "AdamW": [{}, {"amsgrad": True}, {"lr": 0.1, "weight_decay": 0.3, "maximize": True}],
    "Adamax": [
        {},
        {"lr": 0.1, "betas": (0.6, 0.8), "eps": 1e-3},
        {"weight_decay": 0.1, "maximize": True, "foreach": False},
    ],
    "ASGD": [
        {},
        {"lr": 0.1, "t0": 3, "lambd": 0.02},
        {"lr": 0.1, "alpha": 0.5, "weight_decay": 0.1, "maximize": True, "t0": 1},
    ],
    "Muon": [
        {},
        {"lr": 0.02, "nesterov": False, "weight_decay": 0.0, "momentum": 0.5},
        {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3},
        {"adjust_lr_fn": "spectral_unclamped", "eps": 1e-3, "ns_coefficients": (3.0, -4.0, 2.0)},
    ],
    "NAdam": [
        {},
        {"lr": 0.05, "betas": (0.5, 0.7), "momentum_decay": 0.1, "eps": 1e-4},
        {"weight_decay": 0.1, "maximize": True},
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "foreach": False},
    ],
    "RAdam": [
        {},
        {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-4},
        {"weight_decay": 0.1, "maximize": True},
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "foreach": False},
    ],
    "RMSprop": [{}, {"centered": True, "momentum": 0.5}, {"weight_decay": 0.1, "maximize": True}],
    "Rprop": [
        {},
        {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.2)},
        {"maximize": True, "foreach": False},
    ],
    "SGD": [{}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "weight_decay": 0.1}],
}
ROWS = [(name, place) for name, rows in OPTIMIZERS.items() for place in range(len(rows))]
EXACT = {"rtol": 1e-9, "atol": 1e-12}


def model(library, *, matrices=False):
    """Two layers, a parameter whose gradient is zero and one that has none."""
    generator = np.random.default_rng(0)
    shapes = [(6, 4), (1, 6), (2, 3), (5, 2)] if matrices else [(6, 4), (6,), (1, 6), (2, 3), (3,)]
    params = [
        library.tensor(generator.standard_normal(shape), requires_grad=True) for shape in shapes
    ]
    x, y = (library.tensor(generator.standard_normal(shape)) for shape in ((8, 4), (8, 1)))

    def loss():
        hidden = x @ params[0].T if matrices else x @ params[0].T + params[1]
        error = hidden.tanh() @ params[-3].T - y
        return (error**2).mean() + (params[-2] * 0).sum()

    return params, loss


def trained(library, name, options, *, save_at=None):
    params, loss = model(library, matrices=name == "Muon")
    optimizer = getattr(library.optim, name)(params, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        if step == save_at:
            saved = optimizer.state_dict()
            optimizer = getattr(library.optim, name)(params, lr=0.123)
            optimizer.load_state_dict(saved)
    return optimizer, [param.detach().numpy() for param in params]


def shapes(optimizer):
    """The state's entries by place, with their shapes; those of numbers are ()."""
    return {
        place: {key: tuple(np.shape(value)) for key, value in entries.items()}
        for place, entries in optimizer.state_dict()["state"].items()
    }


@pytest.mark.parametrize(("name", "place"), ROWS)
def test_ten_steps(name, place):
    optimizers, params = zip(
        *(trained(library, name, OPTIMIZERS[name][place]) for library in LIBRARIES), strict=True
    )
    for number, (ours, theirs) in enumerate(zip(*params, strict=True)):
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, **EXACT, err_msg=f"parameter {number}")
    assert shapes(optimizers[0]) == shapes(optimizers[1])
    groups = [optimizer.state_dict()["param_groups"] for optimizer in optimizers]
    assert groups[0] == groups[1]
    assert repr(optimizers[0]) == repr(optimizers[1])


@pytest.mark.parametrize(("name", "place"), ROWS)
def test_a_saved_state_goes_on_equal(name, place):
    whole, parts = (trained(gt, name, OPTIMIZERS[name][place], save_at=at)[1] for at in (None, 4))
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rate_may_be_a_tensor(name):
    options = [{"lr": library.tensor(0.25, dtype=library.float64)} for library in LIBRARIES]
    options = [{**own, "foreach": False} if name != "Muon" else own for own in options]
    ours, theirs = (
        trained(library, name, own)[1] for library, own in zip(LIBRARIES, options, strict=True)
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, **EXACT)
    for library in LIBRARIES:
        with pytest.raises(ValueError, match=r"^Tensor lr must be 1-element$"):
            getattr(library.optim, name)([library.zeros(2, 2)], lr=library.zeros(2))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pytorchs_state_loads(name):
    theirs, params = trained(torch, name, {})
    saved = theirs.state_dict()
    state = {
        place: {
            key: gt.tensor(value.numpy()) if torch.is_tensor(value) else value
            for key, value in entries.items()
        }
        for place, entries in saved["state"].items()
    }
    ours = [gt.tensor(param, requires_grad=True) for param in params]
    optimizer = getattr(gt.optim, name)(ours)
    optimizer.load_state_dict({**saved, "state": state})
    their_params = theirs.param_groups[0]["params"]
    for own, param in zip(ours, their_params, strict=True):
        own.grad = gt.full_like(own, 0.5)
        param.grad = torch.full_like(param, 0.5)
    optimizer.step()
    theirs.step()
    for own, param in zip(ours, their_params, strict=True):
        np.testing.assert_allclose(own.detach().numpy(), param.detach().numpy(), **EXACT)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_groups_have_their_own_options(name):
    results = []
    for library in LIBRARIES:
        params, loss = model(library, matrices=name == "Muon")
        groups = [{"params": params[:1], "lr": 0.3, "weight_decay": 0.2}, {"params": params[1:]}]
        optimizer = getattr(library.optim, name)(groups, lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        results.append([param.detach().numpy() for param in params])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, **EXACT)


BETAS = [{"betas": (1.0, 0.5)}, {"betas": (0.5, -0.1)}]
COMMON = [{"lr": -1.0}, {"weight_decay": -0.5}]
MISTAKES = {
    "Adam": [*BETAS, {"betas": (0, 0.9)}, {"weight_decay": -1.0}],
    "Adadelta": [*COMMON, {"rho": 1.5}, {"eps": -1.0}],
    "Adafactor": [
        *COMMON, {"beta2_decay": 0.5}, {"eps": (-1.0, 0.1)}, {"eps": (None, -0.1)}, {"d": 0.5},
    ],
    "Adamax": [*COMMON, *BETAS, {"eps": -1.0}],
    "ASGD": [*COMMON, {"lambd": -1.0}, {"alpha": -1.0}],
    "Muon": [*COMMON, {"momentum": -1.0}, {"adjust_lr_fn": "none"}, {}],
    "NAdam": [*COMMON, *BETAS, {"eps": -1.0}, {"momentum_decay": -1.0}],
    "RAdam": [*COMMON, *BETAS, {"eps": -1.0}],
    "Rprop": [{"lr": -1.0}, {"etas": (0.5, 0.9)}, {"etas": (1.5, 2.0)}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name, rows in MISTAKES.items() for place in range(len(rows))],
)
def test_mistakes_have_pytorchs_class_and_text(name, place):
    texts = []
    for library in LIBRARIES:
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the texts are compared
            getattr(library.optim, name)([library.zeros(2)], **MISTAKES[name][place])
        texts.append(str(error.value))
    assert texts[0] == texts[1]


LBFGS = [
    {},
    {"lr": 0.3, "history_size": 2, "max_iter": 7},
    {"line_search_fn": "strong_wolfe", "max_iter": 6},
    {"line_search_fn": "strong_wolfe", "lr": 3.0, "history_size": 3, "max_eval": 40},
    {"line_search_fn": "strong_wolfe", "lr": 1e-3, "max_iter": 4},
    {"lr": 0.2, "max_iter": 1},
    {"maximize": True, "lr": 0.2, "max_iter": 5},
]


def fitted(library, options, steps=4, *, save_at=None):
    """The losses that the steps gave, the parameters, and the optimizer."""
    params, loss = model(library)
    sign = -1 if options.get("maximize") else 1
    optimizer = library.optim.LBFGS(params, **options)

    def closure():
        optimizer.zero_grad()
        value = loss() * sign
        value.backward()
        return value

    losses = []
    for step in range(steps):
        losses.append(optimizer.step(closure).item())
        if step == save_at:
            saved = optimizer.state_dict()
            optimizer = library.optim.LBFGS(params)
            optimizer.load_state_dict(saved)
    return losses, [param.detach().numpy() for param in params], optimizer


@pytest.mark.parametrize("place", range(len(LBFGS)))
def test_lbfgs(place):
    # Rounding grows along the search for the least loss: both end at the same losses.
    ours, theirs = (fitted(library, LBFGS[place]) for library in LIBRARIES)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-7, atol=1e-10)
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    states = [optimizer.state_dict()["state"][0] for _, _, optimizer in (ours, theirs)]
    assert states[0].keys() == states[1].keys()
    for name in ("n_iter", "func_evals"):
        assert states[0][name] == states[1][name]
    again = fitted(gt, LBFGS[place], save_at=1)
    assert again[0] == ours[0]


def test_lbfgs_refuses_what_pytorch_refuses():
    for library in LIBRARIES:
        groups = [{"params": [library.zeros(2)]}, {"params": [library.zeros(2)]}]
        with pytest.raises(ValueError, match=r"^LBFGS doesn't support per-parameter options"):
            library.optim.LBFGS(groups)
        with pytest.raises(ValueError, match=r"^Invalid learning rate: -1\.0$"):
            library.optim.LBFGS([library.zeros(2)], lr=-1.0)
        with pytest.raises(TypeError, match="'closure'"):
            library.optim.LBFGS([library.zeros(2)]).step()


def test_a_rate_that_is_multiplied_again_and_again():
    rates = []
    for library in LIBRARIES:
        optimizer = library.optim.SGD([library.zeros(1, requires_grad=True)], lr=0.5)
        schedule = library.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda n: 1 / (n + 1))
        own = []
        for _ in range(5):
            own.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
        rates.append(own)
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)


def test_schedules_at_once():
    rates = []
    for library in LIBRARIES:
        kinds = library.optim.lr_scheduler
        optimizer = library.optim.SGD([library.zeros(1, requires_grad=True)], lr=0.5)

        def chained(kinds=kinds, optimizer=optimizer):
            parts = [kinds.ConstantLR(optimizer, 0.1, 2), kinds.ExponentialLR(optimizer, 0.9)]
            return kinds.ChainedScheduler(parts)

        schedule, own = chained(), []
        for step in range(6):
            own.append(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()
            if step == 3:
                saved, rate = schedule.state_dict(), optimizer.param_groups[0]["lr"]
                schedule = chained()
                schedule.load_state_dict(saved)
                optimizer.param_groups[0]["lr"] = rate
        rates.append(own)
        with pytest.raises(ValueError, match=r"^ChainedScheduler expects at least one scheduler"):
            kinds.ChainedScheduler([])
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)
