"""gt.autograd.functional, gt.func and gradcheck: values are PyTorch's."""

import pytest
import torch
import torch.func
from same_program import check

import gt


def points(t):
    return t.tensor([0.5, -1.0, 2.0]), t.tensor([1.5, 0.25, -0.5])


def product(x, y):
    return (x * y).exp().sum() + (x**3).sum()


def pair(x, y):
    return x * y, (x + y * y).sum()


def functional(t):
    layer = t.nn.Linear(3, 2)
    weights = {"weight": t.ones(2, 3), "bias": t.tensor([1.0, 2.0])}
    call = t.func.functional_call

    def loss(p, x):
        return call(layer, p, (x,)).pow(2).sum()

    found = t.func.grad(loss)(weights, points(t)[0])
    return call(layer, weights, points(t)[0]), found["weight"], found["bias"]


CALLS = {
    "vjp": lambda t: t.autograd.functional.vjp(pair, points(t), (t.ones(3), t.tensor(2.0))),
    "vjp of one": lambda t: t.autograd.functional.vjp(lambda x: x.pow(2).sum(), points(t)[0]),
    "jvp": lambda t: t.autograd.functional.jvp(pair, points(t), (t.ones(3), points(t)[0])),
    "jacobian": lambda t: t.autograd.functional.jacobian(pair, points(t)),
    "jacobian of one": lambda t: t.autograd.functional.jacobian(lambda x: x * x, points(t)[0]),
    "jacobian of a constant": lambda t: t.autograd.functional.jacobian(
        lambda x: t.ones(2), points(t)[0]
    ),
    "hessian": lambda t: t.autograd.functional.hessian(product, points(t)),
    "hessian of one": lambda t: t.autograd.functional.hessian(
        lambda x: x.pow(3).sum(), points(t)[0]
    ),
    "hvp": lambda t: t.autograd.functional.hvp(product, points(t), points(t)),
    "vhp": lambda t: t.autograd.functional.vhp(product, points(t), points(t)),
    "jacobian to differentiate": lambda t: t.autograd.functional.jacobian(
        lambda x: x**3, points(t)[0].requires_grad_(), create_graph=True
    ),
    "wrong v": lambda t: t.autograd.functional.vjp(pair, points(t), t.ones(3)),
    "hessian of several": lambda t: t.autograd.functional.hessian(lambda x: x * x, points(t)[0]),
    "func.grad": lambda t: t.func.grad(product)(*points(t)),
    "func.grad of several": lambda t: t.func.grad(product, argnums=(0, 1))(*points(t)),
    "func.grad of grad": lambda t: t.func.grad(t.func.grad(lambda x: x**3))(t.tensor(2.0)),
    "func.grad_and_value": lambda t: t.func.grad_and_value(product, argnums=1)(*points(t)),
    "func.grad with more": lambda t: t.func.grad(lambda x: (x.pow(2).sum(), x * 3), has_aux=True)(
        points(t)[0]
    ),
    "func.vjp": lambda t: t.func.vjp(pair, *points(t))[1]((t.ones(3), t.tensor(2.0))),
    "func.jacrev": lambda t: t.func.jacrev(lambda x: x * x)(points(t)[0]),
    "func.jacrev of several": lambda t: t.func.jacrev(pair, argnums=(0, 1))(*points(t)),
    "func.hessian": lambda t: (
        t.func.hessian if t is gt else lambda f: torch.func.jacrev(torch.func.jacrev(f))
    )(lambda x: x.pow(3).sum())(points(t)[0]),
    "func.grad of a dict": lambda t: list(
        t.func.grad(lambda p: (p["a"] * p["b"]).sum())(
            dict(zip("ab", points(t), strict=True))
        ).values()
    ),
    "func.functional_call": functional,
}


@pytest.mark.parametrize("name", CALLS)
def test_derivatives_of_functions_are_pytorch_s(name):
    check(CALLS[name], tolerance=1e-5)


class Wrong(gt.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 3 * ctx.saved_tensors[0] * g


def doubles(*values):
    return gt.tensor(values, dtype=gt.float64, requires_grad=True)


def test_gradcheck_finds_what_is_wrong_and_passes_what_is_right():
    x = doubles(0.5, -1.0, 2.0)
    assert gt.autograd.gradcheck(lambda x, y: ((x * y).exp(), x.sin()), (x, doubles(1.0, 2.0, 0.1)))
    assert gt.autograd.gradgradcheck(lambda x: x**3, x)
    with pytest.raises(
        RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"
    ):
        gt.autograd.gradcheck(Wrong.apply, x)
    assert not gt.autograd.gradcheck(Wrong.apply, x, raise_exception=False)
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gt.autograd.gradcheck(lambda x: x, gt.ones(2))


def test_gradgradcheck_finds_a_backward_that_is_wrong_when_differentiated():
    class Once(gt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x.detach() ** 2 * g

    x = doubles(0.5, 2.0)
    assert gt.autograd.gradcheck(Once.apply, x)
    assert not gt.autograd.gradgradcheck(Once.apply, x, raise_exception=False)


def test_strict_names_what_is_independent():
    with pytest.raises(RuntimeError, match="independent"):
        gt.autograd.functional.jacobian(lambda x: gt.ones(2), gt.ones(2), strict=True)
    assert torch.autograd is not gt.autograd
