"""Hooks of optimizers, averaged models and cyclic schedules: step by step as torch's."""

import importlib

import numpy as np
import pytest
import torch

import gt

BOTH = pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])


def weights(m, count=2):
    return [m.nn.Parameter(m.tensor([1.0, 2.0]) * (i + 1)) for i in range(count)]


def backward(params):
    for place, p in enumerate(params):
        p.grad = None
        ((p * p).sum() * (place + 1)).backward()


def stepped(m, make):
    """Calls of hooks around steps, and the weights after them."""
    params = weights(m)
    optimizer = make(m, params)
    seen = []

    def before(opt, args, kwargs):
        seen.append(("before", opt is optimizer, len(args), sorted(kwargs), params[0].tolist()))

    def after(opt, args, kwargs):
        seen.append(("after", opt is args[0], len(args), sorted(kwargs), params[0].tolist()))

    first = optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)

    def closure():
        backward(params)
        return (params[0] * 2).sum()

    for call in (lambda: optimizer.step(closure), lambda: optimizer.step(closure=closure)):
        call()
    first.remove()
    optimizer.step(closure)
    return seen, [p.tolist() for p in params]


def sgd(m, params):
    return m.optim.SGD(params, lr=0.25)


def lbfgs(m, params):
    return m.optim.LBFGS(params, lr=0.5, max_iter=2)


@pytest.mark.parametrize("make", [sgd, lbfgs])
def test_hooks_of_steps(make):
    ours, theirs = stepped(gt, make), stepped(torch, make)
    assert [x[:4] for x in ours[0]] == [x[:4] for x in theirs[0]]
    for mine, its in zip(ours[0], theirs[0], strict=True):
        assert mine[4] == pytest.approx(its[4], rel=1e-5, abs=1e-6)
    for mine, its in zip(ours[1], theirs[1], strict=True):
        assert mine == pytest.approx(its, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("make", [sgd, lbfgs])
def test_hooks_of_every_optimizer_s_steps(make):
    orders = []
    for m in (gt, torch):
        order, params = [], weights(m)
        optimizer = make(m, params)
        module = importlib.import_module(f"{m.__name__}.optim.optimizer")
        optimizer.register_step_pre_hook(lambda *_, order=order: order.append("own before"))
        optimizer.register_step_post_hook(lambda *_, order=order: order.append("own after"))
        handles = [
            module.register_optimizer_step_pre_hook(
                lambda opt, args, _, order=order: order.append(("before", opt is args[0]))
            ),
            module.register_optimizer_step_post_hook(
                lambda opt, args, _, order=order: order.append(("after", opt is args[0]))
            ),
        ]

        def closure(params=params):
            backward(params)
            return (params[0] * 2).sum()

        optimizer.step(closure)
        for handle in handles:
            handle.remove()
        optimizer.step(closure)
        orders.append(order)
    assert orders[0] == orders[1]
    assert len(orders[0]) == 6


def test_a_step_of_a_base_class_calls_no_hooks_again():
    class Own(gt.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    seen, optimizer = [], Own(weights(gt), lr=0.25)
    optimizer.register_step_post_hook(lambda *args: seen.append(len(args)))
    optimizer.step()
    optimizer.step()
    assert seen == [3, 3]


@BOTH
def test_a_hook_may_change_the_arguments(m):
    params = weights(m)
    optimizer, called = sgd(m, params), []
    closure = lambda: called.append(1) or params[0].sum()  # noqa: E731
    optimizer.register_step_pre_hook(lambda opt, args, kwargs: ((opt, closure), {}))
    assert optimizer.step().item() == 3.0
    assert called == [1]
    optimizer.register_step_pre_hook(lambda *given: "x")
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args"):
        optimizer.step()


@BOTH
def test_hooks_of_saving_and_loading(m):
    params, seen = weights(m), []
    optimizer = m.optim.SGD(params, lr=0.25, momentum=0.5)
    optimizer.register_state_dict_pre_hook(lambda opt: seen.append(("save", opt is optimizer)))
    optimizer.register_state_dict_post_hook(lambda opt, state: {**state, "more": 1})
    optimizer.register_state_dict_post_hook(lambda opt, state: seen.append(sorted(state)))
    saved = optimizer.state_dict()
    assert saved["more"] == 1
    optimizer.register_load_state_dict_post_hook(lambda opt: seen.append(opt.param_groups[0]["lr"]))

    def before(opt, state):
        seen.append(("load", opt is optimizer))
        state["param_groups"][0] = {**state["param_groups"][0], "lr": 0.125}
        return state

    optimizer.register_load_state_dict_pre_hook(before)
    optimizer.load_state_dict(saved)
    assert seen == [("save", True), ["more", "param_groups", "state"], ("load", True), 0.125]


# ---- schedules ----

CYCLES = [
    {"step_size_up": 3},
    {"step_size_up": 3, "step_size_down": 5, "mode": "triangular2"},
    {"step_size_up": 4, "mode": "exp_range", "gamma": 0.9},
    {"step_size_up": 3, "scale_fn": lambda x: 0.5**x, "scale_mode": "iterations"},
    {"step_size_up": 2, "cycle_momentum": False},
    {"step_size_up": 2, "base_momentum": 0.3, "max_momentum": 0.7},
]


def rates(m, make, steps=25):
    optimizer = m.optim.SGD(
        [{"params": [p], "lr": 0.3 / (i + 1)} for i, p in enumerate(weights(m))],
        lr=0.1, momentum=0.4,
    )  # fmt: skip
    schedule, seen = make(m, optimizer), []
    for _ in range(steps):
        seen.append([(g["lr"], g["momentum"]) for g in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    return [pair for step in seen for pair in step], schedule, optimizer


def check(make):
    (ours, schedule, _), (theirs, _, _) = rates(gt, make), rates(torch, make)
    for mine, its in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(its, rel=1e-9)
    return schedule


@pytest.mark.parametrize("options", CYCLES)
@pytest.mark.parametrize("base", [0.1, [0.1, 0.2]])
def test_cyclic_rates(options, base):
    check(lambda m, opt: m.optim.lr_scheduler.CyclicLR(opt, base, 0.5, **options))


def test_cyclic_rates_with_adam():
    for m in (gt, torch):
        optimizer = m.optim.Adam(weights(m))
        schedule = m.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, 2)
        betas = []
        for _ in range(4):
            betas.append(optimizer.param_groups[0]["betas"])
            optimizer.step()
            schedule.step()
        assert [b[0] for b in betas] == pytest.approx([0.9, 0.85, 0.8, 0.85])


@BOTH
def test_cyclic_errors(m):
    def make(cls=m.optim.SGD, **options):
        optimizer = cls(weights(m), lr=0.1)
        return m.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, **options)

    with pytest.raises(ValueError, match="mode is invalid and scale_fn is None"):
        make(mode="x")
    with pytest.raises(ValueError, match="optimizer must support momentum or beta1"):
        make(m.optim.Adagrad)
    with pytest.raises(TypeError, match="int is not an Optimizer"):
        m.optim.lr_scheduler.CyclicLR(3, 0.1, 0.5)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 7])
@pytest.mark.parametrize("rate", [0.05, [0.05, 0.2]])
def test_swalr(strategy, epochs, rate):
    check(lambda m, opt: m.optim.swa_utils.SWALR(opt, rate, epochs, strategy))


@BOTH
def test_swalr_errors(m):
    for options in ({"anneal_strategy": "x"}, {"anneal_epochs": -1}, {"anneal_epochs": 1.5}):
        with pytest.raises(ValueError, match="must be"):
            m.optim.swa_utils.SWALR(sgd(m, weights(m)), 0.1, **options)


# ---- averages ----


def net(m):
    layers = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3), m.nn.Linear(3, 1))
    with m.no_grad():
        for place, value in enumerate(layers.parameters()):
            value.copy_(m.arange(value.numel()).reshape(value.shape) * 0.1 + place * 0.3)
    return layers.double()  # batch norm of three rows leaves few digits of float32


AVERAGES = {
    "mean": lambda u: {},
    "avg": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "ema": lambda u: {"avg_fn": u.get_ema_avg_fn(0.8)},
    "multi ema": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.8)},
    "multi mean": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "own": lambda u: {"avg_fn": lambda a, p, n: (a * n + p) / (n + 1)},
    "mean of buffers": lambda u: {"use_buffers": True},
    "buffers": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.8), "use_buffers": True},
}


def averaged(m, name):
    model = net(m)
    average = m.optim.swa_utils.AveragedModel(model, **AVERAGES[name](m.optim.swa_utils))
    optimizer = m.optim.SGD(model.parameters(), lr=0.05)
    x = m.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]], dtype=m.float64)
    for _ in range(4):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        average.update_parameters(model)
    values = [t.double().tolist() for t in average.state_dict().values()]
    m.optim.swa_utils.update_bn([x, (x * 2, None)], average)
    values += [average.module[1].running_mean.tolist(), average.module[1].running_var.tolist()]
    assert average.module[1].momentum == 0.1
    values.append(average.eval()(x).tolist())
    return list(average.state_dict()), values


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_models(name):
    ours, theirs = averaged(gt, name), averaged(torch, name)
    assert ours[0] == theirs[0]
    for mine, its in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6)


@BOTH
def test_averages_refuse_what_makes_none(m):
    u = m.optim.swa_utils
    with pytest.raises(ValueError, match=r"Invalid decay value 1\.5"):
        u.get_ema_multi_avg_fn(1.5)
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        u.AveragedModel(net(m), avg_fn=u.get_ema_avg_fn(), multi_avg_fn=u.get_ema_multi_avg_fn())
