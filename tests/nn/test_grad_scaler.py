"""gt.GradScaler: scale, parameters and state of PyTorch's over a run in which infinities occur."""

import copy

import numpy as np
import pytest
import torch
from same_program import check

import gt

STEPS = 14
BAD = {0: "inf", 5: "nan", 6: "inf", 11: "-inf"}
OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "SGD with momentum": {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01, "amsgrad": True},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "Adagrad": {"lr": 0.05},
    "NAdam": {"lr": 0.01},
    "ASGD": {"lr": 0.05},
}


def run(t, name, clip=False, several=False):
    """Parameters, state and scale after every step of a run."""
    w = (t.arange(6.0).reshape(2, 3) / 5 - 0.5).requires_grad_()
    b = t.zeros(3).requires_grad_()
    make = getattr(t.optim, name.split()[0])
    optimizers = [make([w, b], **OPTIMIZERS[name])]
    if several:
        optimizers = [make([w], **OPTIMIZERS[name]), t.optim.SGD([b], lr=0.1)]
    scaler = t.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    x = t.tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)).to(w.dtype)
    found = []
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        factor = float(BAD.get(step, 1.0))
        loss = ((x @ w + b) * factor).pow(2).mean() if step in BAD else (x @ w + b).pow(2).mean()
        scaler.scale(loss).backward()
        for optimizer in optimizers:
            if clip:
                scaler.unscale_(optimizer)
                t.nn.utils.clip_grad_norm_([w, b], 0.3)
            scaler.step(optimizer)
        scaler.update()
        found += [w.detach().clone(), b.detach().clone(), scaler.get_scale()]
    state = [
        (key, value if isinstance(value, t.Tensor) and value.ndim else float(value))
        for optimizer in optimizers
        for entries in optimizer.state_dict()["state"].values()
        for key, value in sorted(entries.items())
        if value is not None
    ]
    return found, state, scaler.state_dict()["_growth_tracker"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_with_infinities_is_pytorchs(name):
    check(lambda t: run(t, name), tolerance=2e-5, by_double=True)


def test_clipping_between_and_two_optimizers_are_pytorchs():
    check(lambda t: run(t, "Adam", clip=True), tolerance=2e-5)
    check(lambda t: run(t, "SGD with momentum", several=True), tolerance=2e-5)


def a_step(optimizer, scaler, w):
    scaler.scale((w * 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda w: gt.optim.SGD([w], lr=0.1), 0),
        (lambda w: gt.optim.SGD([w], lr=0.1, momentum=0.9), 0),
        (lambda w: gt.optim.Adam([w], lr=0.1), 1),
    ],
)
def test_nothing_is_read_unless_steps_are_counted(make, expected, monkeypatch):
    w = gt.ones(3).requires_grad_()
    optimizer, scaler = make(w), gt.GradScaler()
    a_step(optimizer, scaler, w)  # makes the state
    count = 0
    item = gt.Tensor.item

    def counted(self):
        nonlocal count
        count += 1
        return item(self)

    monkeypatch.setattr(gt.Tensor, "item", counted)
    a_step(optimizer, scaler, w)
    assert count == expected


def test_state_goes_to_another_and_to_pytorch():
    scaler = gt.amp.GradScaler(init_scale=8.0, growth_interval=2)
    w = gt.ones(2).requires_grad_()
    optimizer = gt.optim.SGD([w], lr=0.1)
    for _ in range(3):
        a_step(optimizer, scaler, w)
    saved = scaler.state_dict()
    theirs = torch.amp.GradScaler("cpu")
    theirs.load_state_dict(saved)
    theirs.scale(torch.ones(1))
    assert theirs.state_dict() == saved
    other = gt.amp.GradScaler()
    other.load_state_dict(copy.deepcopy(saved))
    assert other.state_dict() == saved
    a_step(optimizer, other, w)
    assert other.get_scale() == 32.0


def loss_of(t):
    w = t.ones(2).requires_grad_()
    return w, t.optim.SGD([w], lr=0.1), (w * 2).sum()


def unscaled_twice(t):
    _, optimizer, loss = loss_of(t)
    scaler = t.amp.GradScaler("cpu")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def stepped_twice(t):
    _, optimizer, loss = loss_of(t)
    scaler = t.amp.GradScaler("cpu")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.step(optimizer)


def of_float16(t):
    w = t.ones(2, dtype=t.float16).requires_grad_()
    scaler = t.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale((w * 2).sum()).backward()
    scaler.step(t.optim.SGD([w], lr=0.1))


def not_enabled(t):
    w, optimizer, loss = loss_of(t)
    scaler = t.amp.GradScaler("cpu", enabled=False)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return w, scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()


def scaled_several(t):
    w, _, loss = loss_of(t)
    scaler = t.amp.GradScaler("cpu", init_scale=4.0)
    return scaler.scale([loss, (w, loss)]), scaler.get_growth_interval()


@pytest.mark.parametrize(
    "program",
    [
        unscaled_twice,
        stepped_twice,
        of_float16,
        not_enabled,
        scaled_several,
        lambda t: t.amp.GradScaler("cpu").step(loss_of(t)[1]),
        lambda t: t.amp.GradScaler("cpu").update(),
        lambda t: t.amp.GradScaler("cpu").step(loss_of(t)[1], closure=lambda: None),
        lambda t: t.amp.GradScaler("cpu").load_state_dict({}),
        lambda t: t.amp.GradScaler("cpu").scale(3),
    ],
)
def test_mistakes_and_answers_are_pytorchs(program):
    check(program)
