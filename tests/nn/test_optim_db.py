"""torch's own list of optimizers drives them: ten steps of each configuration, and each mistake."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

import gt

STEPS = 10
SHAPES = {"Muon": [(3, 4), (5, 2)]}
OTHERWISE = [(5,), (3, 4), ()]
SPARSE = "SparseAdam"  # of sparse gradients: tests/test_sparse.py
DENSE = [info for info in optim_db if info.optim_cls.__name__ != SPARSE]
FLAGS = [{}, {"foreach": True}, {"foreach": False}, {"capturable": False, "differentiable": False}]


def configurations():
    for info in DENSE:
        known = {"foreach", "capturable", "differentiable"} & set(info.supported_impls)
        for case in info.optim_inputs_func(device="cpu"):
            for flags in FLAGS:
                if set(flags) - {"capturable", "differentiable"} <= known:
                    kept = {name: flag for name, flag in flags.items() if _takes(info, name)}
                    yield info.optim_cls.__name__, case.kwargs | kept
                    if not kept and flags:
                        break


def _takes(info, name):
    return name in info.optim_cls.__init__.__code__.co_varnames


def shown(configuration):
    name, options = configuration
    text = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{name}-{text}".replace(" ", "")


CONFIGURATIONS = list({shown(each): each for each in configurations()}.values())


def of(m, value):
    """PyTorch's tensors in a configuration as those of `m`."""
    if isinstance(value, torch.Tensor):
        return m.tensor(value.tolist(), dtype=getattr(m, str(value.dtype)[6:]))
    return tuple(of(m, x) for x in value) if isinstance(value, tuple) else value


def trained(m, name, options):
    rng = np.random.default_rng(0)
    shapes = SHAPES.get(name, OTHERWISE)
    params = [m.tensor(rng.normal(size=s), dtype=m.float64).requires_grad_() for s in shapes]
    goals = [m.tensor(rng.normal(size=s), dtype=m.float64) for s in shapes]
    optimizer = getattr(m.optim, name)(params, **{k: of(m, v) for k, v in options.items()})

    def closure():
        optimizer.zero_grad()
        losses = [((p - g) ** 4).sum() for p, g in zip(params, goals, strict=True)]
        loss = sum(losses[1:], losses[0])
        loss.backward()
        return loss

    values = []
    for _ in range(STEPS):
        if name == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        values.append([p.detach().tolist() for p in params])
    return values


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=shown)
def test_ten_steps_are_those_of_pytorch(configuration):
    ours, theirs = trained(gt, *configuration), trained(torch, *configuration)
    tolerance = {"rtol": 2e-5, "atol": 1e-7}
    for step, (mine, its) in enumerate(zip(ours, theirs, strict=True)):
        for value, expected in zip(mine, its, strict=True):
            np.testing.assert_allclose(value, expected, **tolerance, err_msg=f"step {step}")


# Mistakes that GT takes, with the reason.
TAKEN = (
    "not supported for capturable=False",  # a tensor is read: nothing is captured
    "betas must be either both floats or both Tensors",
    "Muon does not support complex parameters",
)


def mistakes():
    for info in DENSE:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = info.optim_error_inputs_func(device="cpu", dtype=torch.float32)
        for place, case in enumerate(cases):
            taken = any(text in case.error_regex.replace("\\", "") for text in TAKEN)
            if case.error_on == OptimizerErrorEnum.CONSTRUCTION_ERROR and not taken:
                name = info.optim_cls.__name__
                yield pytest.param(name, case, id=f"{name}-{place}")


def params_of(m, params):
    """Parameters of a case, in the same nesting."""
    if isinstance(params, torch.Tensor):
        ours = KEPT.setdefault(id(params), m.nn.Parameter(m.tensor(params.detach().tolist())))
        return ours if m is gt else params
    if isinstance(params, dict):
        return {key: params_of(m, value) for key, value in params.items()}
    if isinstance(params, (list, set)):
        return type(params)(params_of(m, value) for value in params)
    if isinstance(params, tuple):
        return tuple(params_of(m, value) for value in params)
    return params


KEPT = {}  # the same parameter where a case has it twice


@pytest.mark.parametrize(("name", "case"), list(mistakes()))
def test_a_mistake_is_told_as_pytorch_tells_it(name, case):
    KEPT.clear()
    given = case.optimizer_error_input
    options = {key: of(gt, value) for key, value in given.kwargs.items()}
    refused = pytest.warns if issubclass(case.error_type, Warning) else pytest.raises
    with refused(case.error_type, match=case.error_regex):
        getattr(gt.optim, name)(params_of(gt, given.params), **options)


def test_all_dense_optimizers_are_driven():
    driven = {name for name, _ in CONFIGURATIONS}
    listed = {name for name in gt.optim.__all__ if name[0].isupper()} - {"Optimizer", SPARSE}
    assert driven == listed == {info.optim_cls.__name__ for info in optim_db} - {SPARSE}
    assert len(CONFIGURATIONS) >= len(
        list(itertools.chain(*(info.optim_inputs_func(device="cpu") for info in DENSE)))
    )
