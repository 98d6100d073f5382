"""Steps of PyTorch's optimizers on the device `mux`, in all forms, beside those on the host."""

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from front_devices import operators_of
from torch import nn, optim
from torch_session import torch_workers

import gt.torch  # noqa: F401 - names the device

STEPS = 4
TOLERANCES = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 3e-2}
Options = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


def all_of(**choices: tuple[Any, ...]) -> list[Options]:
    """Every combination."""
    return [dict(zip(choices, x, strict=True)) for x in itertools.product(*choices.values())]


ADAM = [
    *all_of(lr=(1e-2,), amsgrad=(False, True), weight_decay=(0.0, 0.1), maximize=(False, True)),
    {"lr": torch.tensor(1e-2)},
    {"lr": 1e-2, "betas": (0.5, 0.6), "eps": 1e-3},
]
SGD = [
    *all_of(lr=(1e-2,), momentum=(0.0, 0.9), weight_decay=(0.0, 0.1), maximize=(False, True)),
    *all_of(lr=(1e-2,), momentum=(0.9,), dampening=(0.2,), maximize=(False, True)),
    *all_of(lr=(1e-2,), momentum=(0.9,), nesterov=(True,), weight_decay=(0.0, 0.1)),
    {"lr": torch.tensor(1e-2), "momentum": 0.9},
]
ADAGRAD = all_of(lr=(1e-2,), lr_decay=(0.0, 0.1), weight_decay=(0.0, 0.1), maximize=(False, True))
FORMS: dict[str, tuple[Callable[..., optim.Optimizer], list[Options]]] = {
    "adam": (optim.Adam, ADAM),
    "adamw": (optim.AdamW, ADAM),
    "sgd": (optim.SGD, SGD),
    "adagrad": (optim.Adagrad, ADAGRAD),
}
WAYS: tuple[Options, ...] = ({}, {"fused": True}, {"foreach": True}, {"foreach": False})


def trained(device: str, make: Callable[[Any], optim.Optimizer], dtype: torch.dtype) -> Any:
    """Losses, parameters and what the optimizer keeps, which is read back in between."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)
    x = torch.randn(7, 6, dtype=dtype).to(device)
    model = model.to(device)
    optimizer, losses = make(model.parameters()), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        if step == 2:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer.step()
        losses.append(loss.item())
    kept = [
        [x.cpu() for x in state.values() if isinstance(x, torch.Tensor)]
        for state in optimizer.state_dict()["state"].values()
    ]
    return losses, [x.detach().cpu() for x in model.parameters()], kept


def outcome(device: str, make: Callable[[Any], optim.Optimizer], dtype: torch.dtype) -> Any:
    try:
        return trained(device, make, dtype)
    except Exception as error:  # noqa: BLE001 - whatever PyTorch raises is compared
        return type(error), str(error)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_all_forms_of_a_step_are_pytorchs(name: str, way: Options) -> None:
    kind, forms = FORMS[name]
    for options, (dtype, tolerance) in itertools.product(forms, TOLERANCES.items()):
        make = lambda x, given=options: kind(x, **given, **way)  # noqa: E731
        expected, seen = (outcome(device, make, dtype) for device in ("cpu", "mux"))
        if isinstance(expected[0], type):
            assert seen == expected, options
        else:
            assert not isinstance(seen[0], type), (options, seen)
            torch.testing.assert_close(seen, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [optim.AdamW, optim.SGD])
def test_a_scaler_skips_a_fused_step_whose_gradients_are_infinite(kind: Any) -> None:
    def program(device: str) -> Any:
        parameter = nn.Parameter(torch.tensor([1.0, 2.0], device=device))
        options = {"momentum": 0.9} if kind is optim.SGD else {}
        optimizer = kind([parameter], lr=0.1, fused=True, **options)
        scaler = torch.amp.GradScaler(device, init_scale=4.0, growth_interval=2)
        seen = []
        for factor in (1.0, float("inf"), 3.0, 2.0):
            optimizer.zero_grad()
            scaler.scale((parameter.square() * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            seen += [parameter.detach().cpu().clone(), torch.tensor(scaler.get_scale())]
        return seen

    torch.testing.assert_close(program("mux"), program("cpu"))


def test_numbers_of_steps_that_others_write_are_read_again() -> None:
    def program(device: str) -> Any:
        parameter = nn.Parameter(torch.tensor([1.0, 2.0], device=device))
        optimizer = optim.AdamW([parameter], lr=0.1, fused=True)
        seen = []
        for step in range(5):
            optimizer.zero_grad()
            parameter.square().sum().backward()
            if step == 2:
                optimizer.state[parameter]["step"].zero_()
            optimizer.step()
            number = optimizer.state[parameter]["step"].cpu().clone()
            seen += [parameter.detach().cpu().clone(), number]
        return seen

    torch.testing.assert_close(program("mux"), program("cpu"))


def test_a_step_between_the_passes_is_refused_by_autograd() -> None:
    for kind in (optim.AdamW, optim.SGD):
        weight = nn.Parameter(torch.ones(2, 2, device="mux"))
        optimizer = kind([weight], lr=0.1)
        x = torch.ones(2, 2, device="mux", requires_grad=True)
        (x @ weight).sum().backward()
        loss = (x @ weight).sum()
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_parameters_of_several_kinds_in_one_group() -> None:
    def program(device: str) -> Any:
        torch.manual_seed(0)
        parameters = [
            nn.Parameter(torch.randn(3, dtype=dtype).to(device))
            for dtype in (torch.float32, torch.float64, torch.bfloat16)
        ]
        parameters.append(nn.Parameter(torch.ones(2, device=device)))  # without a gradient
        kept = []
        for kind, options in ((optim.AdamW, {}), (optim.SGD, {"momentum": 0.9})):
            optimizer = kind(parameters, lr=0.1, **options)
            for _ in range(3):
                optimizer.zero_grad()
                sum(x.abs().square().sum().double() for x in parameters[:3]).backward()
                optimizer.step()
            kept += [x.detach().cpu().clone() for x in parameters]
        return kept

    torch.testing.assert_close(program("mux"), program("cpu"), rtol=2e-2, atol=1e-3)


def test_a_step_is_no_operator_of_torchs() -> None:
    parameters = [nn.Parameter(torch.ones(3, device="mux")) for _ in range(5)]
    sum(x.square().sum() for x in parameters).backward()
    seen: Counter[str] = Counter()
    for kind, options in ((optim.AdamW, {}), (optim.AdamW, {"fused": True}), (optim.SGD, {})):
        optimizer = kind(parameters, lr=0.1, **options)
        optimizer.step()
        seen += operators_of(optimizer.step)
    assert set(seen) <= {"_foreach_add_.Scalar"}, seen
