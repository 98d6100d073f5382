"""Transforms that PyTorch does by a batch dimension or by forward mode: one program."""

from typing import Any, NamedTuple

import pytest
from same_program import check

import gt


class Pair(NamedTuple):
    left: Any
    right: Any


def numbers(t, *shape):
    count = 1
    for length in shape:
        count *= length
    return (t.arange(count, dtype=t.float64) * 7 % 11 / 4 - 1).reshape(shape)


def model(t):
    layers = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.BatchNorm1d(4), t.nn.Linear(4, 2))
    layers.double().eval()
    with t.no_grad():
        for place, x in enumerate([*layers.parameters(), *layers.buffers()]):
            if x.is_floating_point():
                x.copy_(numbers(t, *x.shape).abs() + 0.1 * place)
    return layers


def gradients_by_sample(t):
    """Per-sample gradients of a module's loss, as in PyTorch's tutorial."""
    layers = model(t)
    params = {name: p.detach() for name, p in layers.named_parameters()}

    def loss(params, x, y):
        logits = t.func.functional_call(layers, params, (x.unsqueeze(0),))
        return t.nn.functional.cross_entropy(logits, y.unsqueeze(0))

    x, y = numbers(t, 5, 3), t.tensor([0, 1, 1, 0, 1])
    found = t.func.vmap(t.func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
    return [found[name] for name in sorted(found)]


def an_ensemble(t):
    """Outputs of models by their stacked parameters, with one batch and with one batch each."""
    models = [model(t) for _ in range(3)]
    with t.no_grad():
        for place, each in enumerate(models):
            each[0].weight.mul_(place)
    params, buffers = t.func.stack_module_state(models)

    def run(params, buffers, x):
        return t.func.functional_call(models[0], (params, buffers), (x,))

    one = t.func.vmap(run, in_dims=(0, 0, None))(params, buffers, numbers(t, 5, 3))
    own = t.vmap(run)(params, buffers, numbers(t, 3, 5, 3))
    own.sum().backward()
    return one, own, params["0.weight"].grad, sorted(buffers), params["3.bias"].is_leaf


def models_that_differ(t):
    t.func.stack_module_state([model(t), model(t).train()])


def models_that_require_other_gradients(t):
    t.func.stack_module_state([model(t), model(t).requires_grad_(False)])


def no_models(t):
    t.func.stack_module_state([])


VMAPS = {
    "dims": lambda t, x: t.vmap(t.dot, in_dims=(1, -1))(x, x),
    "of one argument": lambda t, x: t.vmap(lambda a, b: a * b, in_dims=(0, None))(x, x[0]),
    "out_dims": lambda t, x: t.vmap(lambda a: a.outer(a), out_dims=-1)(x),
    "several results": lambda t, x: t.vmap(lambda a: (a.sum(), a * 2), out_dims=(0, 1))(x),
    "nested": lambda t, x: t.vmap(t.vmap(lambda a, b: a * b + 1))(x, x),
    "a number beside": lambda t, x: t.vmap(lambda a, b: a * b, in_dims=(0, None))(x, 3),
    "words": lambda t, x: t.vmap(lambda a, b: a - b)(x, b=x * 2),
    "trees": lambda t, x: t.vmap(lambda p, q: {"a": p["x"] + q[0], "b": [q[1]]})(
        {"x": x}, (x, x * 2)
    )["a"],
    "dims of trees": lambda t, x: t.vmap(
        lambda p, q: p["x"] + q[0] * q[1], in_dims=({"x": 1}, (1, None))
    )({"x": x}, (x, 2.5)),
    "a named tuple": lambda t, x: t.vmap(lambda p: Pair(p.right, p.left))(Pair(x, x * 2)).left,
    "chunks": lambda t, x: t.vmap(lambda a: a.sum(), chunk_size=2)(x),
    "gradients through it": lambda t, x: t.func.grad(
        lambda a: t.vmap(lambda row: row.pow(2).sum())(a).prod()
    )(x),
    "Jacobian by it": lambda t, x: t.vmap(t.func.jacrev(lambda a: a**3))(x),
    "one entry the same": lambda t, x: t.vmap(lambda a, b: b, in_dims=(0, None))(x, x[0]),
    "sizes that differ": lambda t, x: t.vmap(lambda a, b: a)(x, x[:1]),
    "no input": lambda t, x: t.vmap(lambda: x)(),
    "no dimension": lambda t, x: t.vmap(lambda a: a, in_dims=None)(x),
    "no tensor": lambda t, x: t.vmap(lambda a: a)(3),
    "dimension out of range": lambda t, x: t.vmap(lambda a: a, in_dims=2)(x),
    "nothing mapped": lambda t, x: t.vmap(lambda a: a, in_dims=(None,))(x),
    "a result that is none": lambda t, x: t.vmap(lambda a: 3)(x),
    "a draw": lambda t, x: t.vmap(lambda a: a + t.rand(()))(x),
    "randomness of no kind": lambda t, x: t.vmap(lambda a: a, randomness="any")(x),
}


def cube(x, y):
    return (x**3 * y, (x * y).sum())


def linear(value, product, x):
    return value, product(x), product(x * 2)


def twice(t, x):
    return (x, x + 1), (x * 2, x * 0 + 1)


FORWARD = {
    "jvp": lambda t, x: t.func.jvp(cube, *twice(t, x)),
    "jvp has_aux": lambda t, x: t.func.jvp(lambda a: (a.sin(), a * 2), (x,), (x,), has_aux=True),
    "jvp of jvp": lambda t, x: t.func.jvp(
        lambda a: t.func.jvp(lambda b: b**4, (a,), (x,))[1], (x,), (x * 3,)
    ),
    "jvp of a tree": lambda t, x: t.func.jvp(
        lambda p: p["a"] * p["b"], ({"a": x, "b": x + 1},), ({"a": x * 2, "b": x},)
    ),
    "jvp of a constant": lambda t, x: t.func.jvp(lambda a: a * 0 + 2, (x,), (x,)),
    "jvp of another shape": lambda t, x: t.func.jvp(lambda a: a, (x,), (x[0],)),
    "jacfwd": lambda t, x: t.func.jacfwd(cube, argnums=(0, 1))(x[0], x[1]),
    "jacfwd of jacrev": lambda t, x: t.func.jacfwd(t.func.jacrev(lambda a: (a**3).sum()))(x[0]),
    "hessian": lambda t, x: t.func.hessian(lambda a: (a**3).prod())(x[0]),
    "linearize": lambda t, x: linear(*t.func.linearize(lambda a: a.tanh() * a, x), x),
}


@pytest.mark.parametrize(
    "program",
    [
        gradients_by_sample, an_ensemble, models_that_differ, no_models,
        models_that_require_other_gradients,
    ],
    ids=lambda program: program.__name__,
)  # fmt: skip
def test_functions_of_modules(program):
    check(program, tolerance=1e-9)


@pytest.mark.parametrize("name", VMAPS)
def test_vmap(name):
    check(lambda t: VMAPS[name](t, numbers(t, 2, 2)), tolerance=1e-12)


@pytest.mark.filterwarnings("ignore")  # of what PyTorch's forward mode imports
@pytest.mark.parametrize("name", FORWARD)
def test_products_of_forward_mode(name):
    check(lambda t: FORWARD[name](t, numbers(t, 2, 3)), tolerance=1e-12)


def test_entries_draw_the_same_or_different_numbers():
    same = gt.vmap(lambda x: x + gt.rand(3), randomness="same")(gt.zeros(4, 3))
    other = gt.vmap(lambda x: x + gt.rand(3), randomness="different")(gt.zeros(4, 3))
    assert gt.equal(same[0], same[3])
    assert not gt.equal(other[0], other[3])
    assert not gt.equal(gt.rand(3), same[0])
