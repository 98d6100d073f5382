"""Steps of optimizers with differentiable=True: values and gradients beside PyTorch's."""

import numpy as np
import pytest
import torch

import gt

STEPS = 4
SHAPE = (3, 4)

# The options, by optimizer.
CASES = {
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"momentum": 0.5, "dampening": 0.3, "maximize": True}],
    "Adam": [{}, {"weight_decay": 0.1}, {"amsgrad": True}, {"maximize": True, "amsgrad": True},
             {"decoupled_weight_decay": True, "weight_decay": 0.1}],
    "AdamW": [{}, {"amsgrad": True, "weight_decay": 0.2}],
    "Adadelta": [{}, {"weight_decay": 0.1, "rho": 0.7}],
    "Adagrad": [{}, {"weight_decay": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}],
    "Adamax": [{}, {"weight_decay": 0.1, "maximize": True}],
    "ASGD": [{}, {"weight_decay": 0.1, "t0": 1}],
    "NAdam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}],
    "RAdam": [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True},
              {"betas": (0.9, 0.6)}],
    "RMSprop": [{}, {"momentum": 0.9}, {"centered": True, "momentum": 0.5, "weight_decay": 0.1}],
    "Rprop": [{}, {"etas": (0.4, 1.3), "maximize": True}],
}  # fmt: skip
ROWS = [(name, options) for name, rows in CASES.items() for options in rows]


@pytest.fixture(autouse=True)
def _float64():
    """The default dtype is that of the numbers that optimizers hold."""
    for library in (gt, torch):
        library.set_default_dtype(library.float64)
    yield
    for library in (gt, torch):
        library.set_default_dtype(library.float32)


def numbers(seed, *shape):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=torch.float64).add(0.5).tolist()


def leaf(library, data):
    return library.tensor(data, dtype=library.float64, requires_grad=True)


def reached(library, name, options, inputs, *, recorded):
    """A sum of the parameter after some steps, by [start, gradients] and options of inputs."""
    arrays, hyper = inputs
    start, *grads = arrays
    given = dict(hyper)
    if "beta2" in given:
        given["betas"] = (given.pop("beta1"), given.pop("beta2"))
    given |= {"differentiable": True} if recorded else {}
    param = start.clone()
    optimizer = getattr(library.optim, name)([param], **options, **given)
    for step, grad in enumerate(grads):
        # Signs change, as Rprop looks at them.
        param.grad = grad * (-1) ** (step // 2) + 0.01 * start
        optimizer.step()
    weight = library.tensor(numbers(99, *SHAPE), dtype=library.float64)
    return (param * weight).sum()


def starts():
    return [numbers(seed, *SHAPE) for seed in range(STEPS + 1)]


def by_autograd(library, name, options, hyper):
    """The sum, and its gradients, by library's differentiable steps."""
    arrays = [leaf(library, data) for data in starts()]
    asked = {key: leaf(library, value) for key, value in hyper.items()}
    result = reached(library, name, options, (arrays, asked), recorded=True)
    leaves = [*arrays, *asked.values()]
    found = library.autograd.grad(result, leaves, allow_unused=True)
    assert found[0] is not None
    pairs = zip(found, leaves, strict=True)
    lists = [0 * np.array(of.tolist()) if x is None else x.tolist() for x, of in pairs]
    return result.item(), np.concatenate([np.ravel(x) for x in lists])


def by_differences(name, options, hyper):
    """Gradients by differences: PyTorch's unrecorded steps with each input slightly changed."""
    flat = np.concatenate([np.ravel(starts()), list(hyper.values())])

    def at(place, change):
        moved = flat.copy()
        moved[place] += change
        arrays = torch.from_numpy(moved[: flat.size - len(hyper)]).reshape(-1, *SHAPE)
        options_of = dict(zip(hyper, moved[flat.size - len(hyper) :].tolist(), strict=True))
        inputs = list(arrays), options_of
        return reached(torch, name, options, inputs, recorded=False).item()

    slopes = [(at(place, 1e-6) - at(place, -1e-6)) / 2e-6 for place in range(flat.size)]
    return at(0, 0.0), np.array(slopes)


def check(name, options, hyper):
    value, gradients = by_autograd(gt, name, options, hyper)
    expected, slopes = by_differences(name, options, hyper)
    assert value == pytest.approx(expected, rel=1e-12)
    if not options.get("momentum") or name != "SGD":  # whose first momentum has no gradient
        np.testing.assert_allclose(gradients, slopes, rtol=1e-6, atol=1e-7)
    try:  # some of PyTorch's overwrite what a gradient reads
        _, theirs = by_autograd(torch, name, options, hyper)
    except (RuntimeError, TypeError):
        return
    known = theirs != 0  # by its rate ASGD gives none
    np.testing.assert_allclose(gradients[known], theirs[known], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), ROWS, ids=lambda x: x if isinstance(x, str) else None)
def test_steps_have_pytorchs_values_and_gradients(name, options):
    check(name, options, {})


@pytest.mark.parametrize(
    ("name", "options", "hyper"),
    [
        ("SGD", {}, {"lr": 0.1}),
        ("SGD", {}, {"lr": 0.1, "weight_decay": 0.2}),
        ("Adam", {}, {"lr": 0.1}),
        ("Adam", {"amsgrad": True}, {"lr": 0.1, "weight_decay": 0.2}),
        ("Adam", {}, {"beta1": 0.8, "beta2": 0.9, "lr": 0.1}),
        ("AdamW", {}, {"lr": 0.1, "weight_decay": 0.2, "beta1": 0.8, "beta2": 0.9}),
        ("NAdam", {}, {"lr": 0.1}),
        ("RAdam", {}, {"lr": 0.1}),
        ("ASGD", {"t0": 1}, {"lr": 0.1}),
        ("Adadelta", {}, {"lr": 0.1}),
        ("Adagrad", {"lr_decay": 0.1}, {"lr": 0.1}),
        ("Adamax", {}, {"lr": 0.1}),
        ("RMSprop", {"momentum": 0.5}, {"lr": 0.1}),
        ("RMSprop", {"centered": True}, {"lr": 0.1}),
        ("Rprop", {}, {"lr": 0.1}),
    ],
)
def test_gradients_reach_options(name, options, hyper):
    check(name, options, hyper)


@pytest.mark.parametrize("library", [gt, torch])
def test_a_rate_is_learned_through_two_steps(library):
    weight, rate = leaf(library, [1.0, -2.0]), leaf(library, 0.1)
    fast = weight.clone()
    optimizer = library.optim.SGD([fast], lr=rate, differentiable=True)
    for _ in range(2):
        fast.grad = 2 * fast.detach()
        optimizer.step()
    loss = fast.square().sum()
    loss.backward()
    # The weight is multiplied by 1 - 2 * rate twice.
    assert rate.grad.item() == pytest.approx(2 * 0.64 * -3.6 * 5)


def test_a_leaf_is_refused_by_the_step_and_a_result_by_a_step_that_is_not_recorded():
    for library in (gt, torch):
        param = leaf(library, [1.0, 2.0])
        param.grad = library.ones_like(param)
        optimizer = library.optim.SGD([param], differentiable=True)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
            optimizer.step()
        with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
            library.optim.SGD([param * 2])
        kept = param * 2
        kept.retain_grad()
        library.optim.SGD([kept])


@pytest.mark.parametrize("name", ["Adagrad", "Adam", "AdamW", "SGD"])
@pytest.mark.parametrize("other", ["differentiable", "foreach"])
def test_a_fused_step_is_nothing_else(name, other):
    texts = []
    for library in (gt, torch):
        with pytest.raises(RuntimeError, match=r"^`fused`") as error:
            getattr(library.optim, name)([library.ones(2)], fused=True, **{other: True})
        texts.append(str(error.value))
    assert texts[0] == texts[1]
