"""gt.optim against torch.optim: the same parameters after twenty steps, texts and rates."""

import math

import numpy as np
import pytest
import torch

import gt

LIBRARIES = (gt, torch)
STEPS = 20

OPTIMIZERS = {
    "SGD": [
        {},
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.3},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.005, "momentum": 0.9, "weight_decay": 0.1, "maximize": True},
        {"lr": 0.1, "weight_decay": 0.2},
    ],
    "Adam": [
        {},
        {"lr": 0.02, "betas": (0.5, 0.6), "eps": 1e-4},
        {"lr": 0.02, "weight_decay": 0.1},
        {"lr": 0.02, "amsgrad": True, "maximize": True},
        {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True},
    ],
    "AdamW": [
        {},
        {"lr": 0.02, "weight_decay": 0.3},
        {"lr": 0.02, "weight_decay": 0.0, "amsgrad": True},
        {"lr": 0.02, "maximize": True, "eps": 1e-3},
    ],
    "RMSprop": [
        {},
        {"lr": 0.02, "alpha": 0.8, "eps": 1e-4},
        {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1},
        {"lr": 0.01, "centered": True, "maximize": True},
        {"lr": 0.01, "centered": True, "momentum": 0.5},
    ],
    "Adagrad": [
        {},
        {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1},
        {"lr": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-3, "maximize": True},
    ],
}
ROWS = [(name, place) for name, rows in OPTIMIZERS.items() for place in range(len(rows))]


def drawn(seed, *shapes):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape) for shape in shapes]


def model(library, dtype):
    """Two layers with values of their own, and one parameter that never has a gradient."""
    weights = drawn(0, (6, 4), (6,), (1, 6), (3,))
    parameters = [library.tensor(w.astype(dtype), requires_grad=True) for w in weights]
    inputs, targets = (library.tensor(x.astype(dtype)) for x in drawn(1, (8, 4), (8, 1)))

    def loss():
        hidden = (inputs @ parameters[0].T + parameters[1]).tanh()
        return ((hidden @ parameters[2].T - targets) ** 2).mean()

    return parameters, loss


def trained(library, dtype, make, steps=STEPS, *, every_step=None):
    """The parameters after some steps, as arrays."""
    params, loss = model(library, dtype)
    optimizer = make(library, params)
    for step in range(steps):
        optimizer.zero_grad()
        loss().backward()
        if step == 3:  # a parameter without a gradient is left out for a step
            params[1].grad = None
        optimizer.step()
        if every_step:
            every_step(optimizer)
    return [param.detach().numpy() for param in params]


def check(make, *, every_step=None):
    """GT's parameters equal those of PyTorch's single-tensor path to rounding."""
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-12)):
        ours, theirs = (
            trained(library, dtype, make, every_step=every_step) for library in LIBRARIES
        )
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(
                a, b, rtol=tolerance, atol=tolerance, err_msg=f"{dtype} parameter {place}"
            )


@pytest.mark.parametrize(("name", "place"), ROWS)
def test_twenty_steps(name, place):
    options = OPTIMIZERS[name][place]
    check(lambda library, params: getattr(library.optim, name)(params, **options))


def test_groups_have_their_own_options():
    def make(library, params):
        groups = [{"params": params[:2], "lr": 0.3}, {"params": params[2:], "momentum": 0.9}]
        return library.optim.SGD(groups, lr=0.1)

    check(make)


def test_a_group_added_later_and_a_changed_rate():
    def make(library, params):
        optimizer = library.optim.AdamW(params[:2], lr=0.05)
        optimizer.add_param_group({"params": params[2], "lr": 0.01, "weight_decay": 0.5})
        return optimizer

    def slower(optimizer):
        optimizer.param_groups[0]["lr"] *= 0.9

    check(make, every_step=slower)


@pytest.mark.parametrize(("name", "place"), ROWS)
def test_a_saved_state_goes_on_equal(name, place):
    options = OPTIMIZERS[name][place]
    params, loss = model(gt, "float32")
    whole = trained(gt, "float32", lambda t, p: getattr(t.optim, name)(p, **options), 8)
    optimizer = getattr(gt.optim, name)(params, **options)
    for step in range(8):
        optimizer.zero_grad()
        loss().backward()
        if step == 3:
            params[1].grad = None
        optimizer.step()
        if step == 4:
            state = optimizer.state_dict()
            optimizer = getattr(gt.optim, name)(params, lr=123.0)
            optimizer.load_state_dict(state)
    for a, b in zip(whole, params, strict=True):
        np.testing.assert_array_equal(a, b.detach().numpy())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pytorchs_state_loads(name):
    options = {"lr": 0.01, **({"momentum": 0.9} if name == "SGD" else {})}
    theirs, their_loss = model(torch, "float64")
    ours, our_loss = model(gt, "float64")
    their_optimizer = getattr(torch.optim, name)(theirs, **options)
    for _ in range(5):
        their_optimizer.zero_grad()
        their_loss().backward()
        their_optimizer.step()
    saved = their_optimizer.state_dict()
    state = {"param_groups": saved["param_groups"], "state": {}}
    for place, entries in saved["state"].items():
        state["state"][place] = {
            key: gt.tensor(value.numpy()) if torch.is_tensor(value) else value
            for key, value in entries.items()
        }
    our_optimizer = getattr(gt.optim, name)(ours)
    our_optimizer.load_state_dict(state)
    with gt.no_grad():
        for a, b in zip(ours, theirs, strict=True):
            a.copy_(gt.tensor(b.detach().numpy()))
    for optimizer, loss in ((their_optimizer, their_loss), (our_optimizer, our_loss)):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)


def test_state_dict_has_pytorchs_form():
    forms = []
    for library in LIBRARIES:
        params, loss = model(library, "float32")
        optimizer = library.optim.AdamW([{"params": params[:2]}, {"params": params[2:], "lr": 0.5}])
        loss().backward()
        optimizer.step()
        state = optimizer.state_dict()
        forms.append(
            (
                {place: sorted(entries) for place, entries in state["state"].items()},
                [
                    {k: v for k, v in group.items() if k != "params"} | {"params": group["params"]}
                    for group in state["param_groups"]
                ],
            )
        )
    assert forms[0] == forms[1]
    texts = [repr(t.optim.AdamW([t.zeros(1, requires_grad=True)])) for t in LIBRARIES]
    assert texts[0] == texts[1]


def test_closure_is_evaluated_with_gradients():
    params, loss = model(gt, "float32")
    optimizer = gt.optim.SGD(params, lr=0.1)

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    with gt.no_grad():
        first = optimizer.step(closure)
    assert optimizer.step(closure).item() < first.item()


def test_zero_grad():
    params, loss = model(gt, "float32")
    optimizer = gt.optim.SGD(params)
    loss().backward()
    optimizer.zero_grad(set_to_none=False)
    assert params[1].grad.tolist() == [0.0] * 6
    optimizer.zero_grad()
    assert params[1].grad is None


def test_a_step_keeps_the_parameters_identity_and_their_grad():
    layer = gt.nn.Linear(2, 2)
    weight = layer.weight
    (layer(gt.ones(1, 2))).sum().backward()
    before, grad = weight.tolist(), weight.grad
    gt.optim.SGD(layer.parameters(), lr=0.5).step()
    assert layer.weight is weight
    assert weight.grad is grad
    assert weight.requires_grad
    assert weight.is_leaf
    np.testing.assert_allclose(weight.tolist(), np.array(before) - 0.5, rtol=1e-6)


def test_a_users_own_optimizer():
    # NAMES G6b: stores what parameters() gave and loops over it in each step
    layer = gt.nn.Linear(2, 1)
    parameters = layer.parameters()
    x, y = gt.ones(4, 2), gt.zeros(4, 1)
    losses = []
    for _ in range(3):
        loss = gt.nn.mse_loss(layer(x), y)
        layer.zero_grad()
        loss.backward()
        with gt.no_grad():
            for p in parameters:
                p -= 0.1 * p.grad  # noqa: PLW2901 (in place: NAMES G6c)
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2]


def test_training_fits_a_function():
    gt.manual_seed(0)
    net = gt.nn.Sequential(gt.nn.Linear(1, 32), gt.nn.Tanh(), gt.nn.Linear(32, 1))
    optimizer = gt.optim.AdamW(net.parameters(), lr=0.02)
    x = gt.linspace(-2, 2, 64).reshape(64, 1)
    y = (2 * x).sin()
    for _ in range(300):
        loss = gt.nn.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 5e-3


MISTAKES = [
    lambda t: t.optim.SGD([], lr=0.1),
    lambda t: t.optim.SGD([t.zeros(1)], lr=-1.0),
    lambda t: t.optim.SGD([t.zeros(1)], momentum=-1.0),
    lambda t: t.optim.SGD([t.zeros(1)], weight_decay=-1.0),
    lambda t: t.optim.SGD([t.zeros(1)], nesterov=True),
    lambda t: t.optim.Adam([t.zeros(1)], lr=-1.0),
    lambda t: t.optim.Adam([t.zeros(1)], eps=-1.0),
    lambda t: t.optim.Adam([t.zeros(1)], betas=(1.0, 0.5)),
    lambda t: t.optim.AdamW([t.zeros(1)], betas=(0.5, -0.5)),
    lambda t: t.optim.AdamW([t.zeros(1)], weight_decay=-1.0),
    lambda t: t.optim.SGD([3]),
    lambda t: t.optim.SGD([{"params": {1}}]),
    lambda t: t.optim.SGD([t.zeros(1, requires_grad=True) * 2]),
    lambda t: t.optim.SGD([{"params": p} for p in [t.zeros(1)] * 2]),
    lambda t: t.optim.SGD([("a", t.zeros(1)), t.zeros(1)]),
    lambda t: t.optim.SGD([t.zeros(1)]).load_state_dict({"state": {}, "param_groups": []}),
    lambda t: t.optim.SGD([t.zeros(1)]).load_state_dict(
        {"state": {}, "param_groups": [{"params": [0, 1]}]}
    ),
]


@pytest.mark.parametrize("place", range(len(MISTAKES)))
def test_mistakes_have_pytorchs_class_and_text(place):
    caught = []
    for library in LIBRARIES:
        with pytest.raises((ValueError, TypeError)) as error:
            MISTAKES[place](library)
        caught.append(error)
    assert str(caught[0].value) == str(caught[1].value)
    assert issubclass(caught[0].type, caught[1].type)


SCHEDULES = {
    "step": lambda t, o: t.optim.lr_scheduler.StepLR(o, 3, gamma=0.5),
    "exponential": lambda t, o: t.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "lambda": lambda t, o: t.optim.lr_scheduler.LambdaLR(o, lambda epoch: 1 / (epoch + 1)),
    "lambda each": lambda t, o: t.optim.lr_scheduler.LambdaLR(
        o, [lambda epoch: 0.95**epoch, lambda epoch: min(1.0, epoch / 4)]
    ),
    "cosine": lambda t, o: t.optim.lr_scheduler.CosineAnnealingLR(o, T_max=5, eta_min=0.01),
    "linear": lambda t, o: t.optim.lr_scheduler.LinearLR(o, 0.25, 1.0, total_iters=6),
    "milestones": lambda t, o: t.optim.lr_scheduler.MultiStepLR(o, [7, 2, 7], gamma=0.3),
    "milestone at once": lambda t, o: t.optim.lr_scheduler.MultiStepLR(o, [0, 4]),
    "constant": lambda t, o: t.optim.lr_scheduler.ConstantLR(o, 0.25, total_iters=3),
    "polynomial": lambda t, o: t.optim.lr_scheduler.PolynomialLR(o, 8, power=1.7),
    "restarts": lambda t, o: t.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        o, T_0=3, T_mult=2, eta_min=0.02
    ),
    "one cycle": lambda t, o: t.optim.lr_scheduler.OneCycleLR(o, 0.7, total_steps=18),
    "one cycle each": lambda t, o: t.optim.lr_scheduler.OneCycleLR(
        o, [0.7, 0.2], epochs=6, steps_per_epoch=3, anneal_strategy="linear", three_phase=True
    ),
    "warm-up and decay": lambda t, o: t.optim.lr_scheduler.SequentialLR(
        o,
        [
            t.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=4),
            t.optim.lr_scheduler.CosineAnnealingLR(o, T_max=9),
        ],
        milestones=[4],
    ),
    "three of them": lambda t, o: t.optim.lr_scheduler.SequentialLR(
        o,
        [
            t.optim.lr_scheduler.ConstantLR(o, 0.1, total_iters=2),
            t.optim.lr_scheduler.LambdaLR(o, lambda epoch: 1 / (epoch + 2)),
            t.optim.lr_scheduler.MultiStepLR(o, [0, 3], gamma=0.5),
        ],
        milestones=[3, 8],
    ),
    "restarts after a warm-up": lambda t, o: t.optim.lr_scheduler.SequentialLR(
        o,
        [
            t.optim.lr_scheduler.LinearLR(o, 0.5, total_iters=3),
            t.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=4),
        ],
        milestones=[3],
    ),
}


def rates(library, make, steps):
    params = [library.zeros(1, requires_grad=True) for _ in range(2)]
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.4}]
    optimizer = library.optim.SGD(groups, lr=0.1)
    schedule = make(library, optimizer)
    seen = [schedule.get_last_lr()]
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        assert schedule.get_last_lr() == [group["lr"] for group in optimizer.param_groups]
        seen.append(schedule.get_last_lr())
    return seen, optimizer, schedule


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name):
    ours, theirs = (rates(library, SCHEDULES[name], 17)[0] for library in LIBRARIES)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


WHOLE = [name for name in SCHEDULES if " and " not in name and "a warm-up" not in name]


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("name", [name for name in WHOLE if name != "three of them"])
def test_a_schedule_goes_to_an_epoch(name):
    found = []
    for library in LIBRARIES:
        seen, _, schedule = rates(library, SCHEDULES[name], 2)
        for epoch in (6, 7, 3, 0, 12):
            schedule.step(epoch)
            seen.append(schedule.get_last_lr())
            schedule.step()
            seen.append(schedule.get_last_lr())
        found.append(seen)
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_an_epoch_given_is_deprecated():
    *_, schedule = rates(gt, SCHEDULES["step"], 1)
    with pytest.warns(UserWarning, match="epoch parameter in `scheduler.step\\(\\)` was not"):
        schedule.step(4)


@pytest.mark.parametrize("rounds", [1, 2])
def test_restarts_follow_each_batch(rounds):
    found = []
    for library in LIBRARIES:
        make = library.optim.lr_scheduler.CosineAnnealingWarmRestarts
        optimizer = library.optim.SGD([library.zeros(1, requires_grad=True)], lr=0.1)
        schedule, seen = make(optimizer, T_0=3, T_mult=rounds), []
        optimizer.step()
        for batch in range(40):
            schedule.step(batch / 4)
            seen.append(schedule.get_last_lr())
        schedule.step()
        seen.append(schedule.get_last_lr())
        with pytest.raises(ValueError, match="Expected non-negative epoch, but got -1"):
            schedule.step(-1)
        found.append(seen)
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_saved_schedule_goes_on_equal(name):
    whole = rates(gt, SCHEDULES[name], 9)[0]
    _, optimizer, schedule = rates(gt, SCHEDULES[name], 5)
    _, other, resumed = rates(gt, SCHEDULES[name], 0)
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    for expected in whole[6:]:
        other.step()
        resumed.step()
        np.testing.assert_allclose(resumed.get_last_lr(), expected, rtol=1e-12)


@pytest.mark.parametrize("adam", [False, True])
def test_a_cycle_of_the_momentum(adam):
    seen = []
    for library in LIBRARIES:
        params = [library.zeros(1, requires_grad=True)]
        make = library.optim.Adam if adam else library.optim.SGD
        optimizer = make(params, lr=0.1, **({} if adam else {"momentum": 0.5}))
        schedule = library.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=10)
        for _ in range(9):
            optimizer.step()
            schedule.step()
            group = optimizer.param_groups[0]
            seen.append((group["lr"], group["betas"][0] if adam else group["momentum"]))
    np.testing.assert_allclose(seen[:9], seen[9:], rtol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1},
        {"mode": "max", "patience": 0, "factor": 0.5, "cooldown": 2, "min_lr": [0.03, 0.2]},
        {"threshold": 0.3, "threshold_mode": "abs", "patience": 1, "eps": 0.02},
    ],
)
def test_a_rate_that_follows_a_metric(options):
    seen = []
    for library in LIBRARIES:
        groups = [{"params": [library.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.4)]
        optimizer = library.optim.SGD(groups)
        schedule = library.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        for metric in (3.0, 2.0, 2.5, 1.9, 1.95, 1.9, 1.89, 4.0, 4.0, 4.0, 4.0, 1.0, 1.0, 1.0):
            optimizer.step()
            schedule.step(library.tensor(metric))
            seen.append(schedule.get_last_lr())
    np.testing.assert_allclose(seen[:14], seen[14:], rtol=1e-12)


def test_what_schedules_refuse():
    optimizer = gt.optim.SGD([gt.zeros(1)], lr=0.1)
    schedules = gt.optim.lr_scheduler
    with pytest.raises(ValueError, match="must define either total_steps OR"):
        schedules.OneCycleLR(optimizer, 0.1, epochs=3)
    with pytest.raises(ValueError, match="one more than the number of milestone points"):
        schedules.SequentialLR(optimizer, [schedules.ConstantLR(optimizer)], [3])
    with pytest.raises(ValueError, match="Factor should be <"):
        schedules.ReduceLROnPlateau(optimizer, factor=1.0)


def test_resuming_by_last_epoch_needs_initial_rates():
    optimizer = gt.optim.SGD([gt.zeros(1)], lr=0.1)
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified"):
        gt.optim.lr_scheduler.StepLR(optimizer, 3, last_epoch=4)
    assert math.isclose(optimizer.param_groups[0]["lr"], 0.1)


class Warmup:
    """A schedule's function with a state of its own."""

    def __init__(self, slope):
        self.slope = slope

    def __call__(self, epoch):
        return self.slope * (epoch + 1)


@pytest.mark.parametrize("name", ["LambdaLR", "MultiplicativeLR"])
def test_a_schedules_state_has_that_of_its_callable_objects(name):
    ends = []
    for t in (gt, torch):

        def schedule(*functions, t=t):
            groups = [{"params": [t.ones(1)]}, {"params": [t.ones(1)]}]
            return getattr(t.optim.lr_scheduler, name)(t.optim.SGD(groups, lr=1.0), functions)

        saved = schedule(Warmup(0.5), lambda epoch: 0.25).state_dict()
        restored = schedule(Warmup(0.1), lambda epoch: 0.125)
        restored.load_state_dict(saved)
        restored.optimizer.step()
        restored.step()
        ends.append((saved["lr_lambdas"], restored.get_last_lr()))
    assert ends[0] == ends[1]
    assert ends[0][0] == [{"slope": 0.5}, None]
