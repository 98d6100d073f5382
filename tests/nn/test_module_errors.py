"""Errors of modules about foreign values, beside PyTorch and for values of PyTorch."""

import pytest
import torch

import gt

WRONG = {
    "a class in Sequential": (TypeError, lambda m: m.nn.Sequential(m.nn.ReLU)),
    "a class as a child": (TypeError, lambda m: m.nn.Module().add_module("a", m.nn.ReLU)),
    "a number in Sequential": (TypeError, lambda m: m.nn.Sequential(1)),
    "sizes that do not multiply up": (
        RuntimeError,
        lambda m: m.nn.Unflatten(1, (3, 3))(m.ones(2, 4)),
    ),
}
THEIRS = {
    "gt.from_torch": [
        lambda: gt.nn.Module().register_buffer("a", torch.ones(1)),
        lambda: gt.nn.Module().register_parameter("a", torch.nn.Parameter(torch.ones(1))),
        lambda: setattr(gt.nn.Linear(1, 1), "weight", torch.ones(1, 1)),
    ],
    "takes its state_dict": [
        lambda: gt.nn.Sequential(gt.nn.ReLU(), torch.nn.ReLU()),
        lambda: gt.nn.ModuleList([torch.nn.Linear(1, 1)]),
        lambda: setattr(gt.nn.Sequential(gt.nn.ReLU()), "0", torch.nn.ReLU()),
    ],
}


@pytest.mark.parametrize("name", WRONG)
def test_the_errors_are_pytorchs(name):
    kind, call = WRONG[name]
    texts = []
    for m in (torch, gt):
        with pytest.raises(kind) as caught:
            call(m)
        texts.append(str(caught.value).replace("torch.nn.modules", "gt.nn"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("hint", "call"), [(hint, call) for hint, calls in THEIRS.items() for call in calls]
)
def test_pytorchs_own_is_told_from_gts(hint, call):
    with pytest.raises(TypeError, match=hint):
        call()
