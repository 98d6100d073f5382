"""Every gradient formula against torch.autograd in float64: first and second derivatives, kinks.

One row: a name, the same expression for GT and for PyTorch, and the inputs. Floating inputs require
gradients; others do not.
"""

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gradient_oracle import check, normal, positive, upload, values

import gt
from gt import _core
from gt._core import call

INF, NAN = float("inf"), float("nan")
X, Y, P, Q = normal(3, 4), normal(3, 4, seed=1), positive(3, 4), positive(3, 4, seed=1)
ROW, COLUMN = normal(4, seed=2), normal(3, 1, seed=3)
TIES = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]], dtype=torch.float64)
MASK = torch.tensor([[True, False, True, False]])
BOUNDED = values(1, 1, 1, 0, 2, 1, 2, 1, 0, -1, 0.5, 2)
LOWS = values(1, 1, 0, 1, 1, 2, 2, 1, 1, 1, 1, 1)
HIGHS = values(1, 2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0)
KINKS = values(-INF, -2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, INF, NAN)

METHODS: list[tuple[str, Callable[..., object], list[torch.Tensor]]] = [
    # elementwise, one operand
    *[
        (name, lambda x, name=name: getattr(x, name)(), [x])
        for x in (X, torch.zeros(2, dtype=torch.float64))
        for name in [
            "neg",
            "abs",
            "sign",
            "exp",
            "expm1",
            "square",
            "sin",
            "cos",
            "tan",
            "tanh",
            "sigmoid",
            "erf",
            "relu",
            "floor",
            "ceil",
            "round",
            "trunc",
        ]
    ],
    *[
        (name, lambda x, name=name: getattr(x, name)(), [P])
        for name in ["log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal"]
    ],
    # elementwise, two operands
    *[
        (f"{name} {tuple(y.shape)}", lambda x, y, name=name: getattr(x, name)(y), [x, y])
        for name in ["add", "sub", "mul", "maximum", "minimum"]
        for x, y in ((X, Y), (X, ROW), (COLUMN, ROW), (TIES, TIES.flip(1)), (ROW[:1], X))
    ],
    *[
        (f"{name} {tuple(y.shape)}", lambda x, y, name=name: getattr(x, name)(y), [x, y])
        for name in ["div", "pow", "remainder", "fmod", "atan2"]
        for x, y in ((P, Q), (P, Q[0]), (Q[:, :1], P[0]))
    ],
    ("number arithmetic", lambda x: 2 - x * 3 + x / 4 + (1 - x), [X]),
    ("number over", lambda x: 2 / x, [P]),
    *[(f"pow {n}", lambda x, n=n: x**n, [X]) for n in (0, 1, 2, 3, 0.0, 2.0, -1, -2.0)],
    *[(f"{n} pow", lambda x, n=n: n**x, [P]) for n in (0.0, 0.5, 1.0, 2.0, 3.0)],
    ("where", lambda m, x, y: x.where(m, y), [MASK, X, ROW]),
    ("clamp numbers", lambda x: x.clamp(-0.5, 0.5), [X]),
    ("clamp at bounds", lambda x: x.clamp(1.0, 3.0), [TIES]),
    ("clamp min", lambda x: x.clamp(min=0.1), [X]),
    ("clamp max", lambda x: x.clamp(max=0.1), [X]),
    ("clamp tensors", lambda x, a, b: x.clamp(a, b), [X, ROW - 0.3, ROW + 0.3]),
    ("clamp tied", lambda x, a, b: x.clamp(a, b), [BOUNDED, LOWS, HIGHS]),
    ("clamp tied min", lambda x, a: x.clamp(min=a), [BOUNDED, LOWS]),
    ("clamp tied max", lambda x, a: x.clamp(max=a), [BOUNDED, LOWS]),
    ("clamp crossed", lambda x, a, b: x.clamp(a, b), [X, ROW + 0.3, ROW - 0.3]),
    ("clamp min tensor", lambda x, a: x.clamp(min=a), [X, ROW]),
    ("clamp max tensor", lambda x, a: x.clamp(max=a), [X, ROW]),
    ("masked_fill", lambda x, m: x.masked_fill(m, -INF), [X, MASK]),
    ("masked_fill tensor", lambda x, m, v: x.masked_fill(m, v), [X, MASK, values(2.0)[0]]),
    ("lerp", lambda x, y, w: x.lerp(y, w), [X, Y, ROW]),
    # contract
    *[
        (f"matmul {a} {b}", lambda x, y: x @ y, [normal(*a), normal(*b, seed=1)])
        for a, b in (
            ((3,), (3,)),
            ((2, 3), (3,)),
            ((3,), (3, 4)),
            ((2, 3), (3, 4)),
            ((5, 2, 3), (3, 4)),
            ((5, 2, 3), (5, 3, 4)),
            ((2, 3), (5, 3, 4)),
            ((6, 1, 2, 3), (5, 3, 4)),
            ((3,), (5, 3, 4)),
            ((5, 2, 3), (3,)),
            ((1, 2, 3), (5, 3, 4)),
            ((2, 5, 2, 3), (3, 4)),
            ((3,), (1, 3, 4)),
            ((0, 3), (3, 4)),
            ((2, 5, 2, 3), (1, 3, 4)),
        )
    ],
    # reduce
    *[
        (f"{name} {dim} {keepdim}", lambda x, n=name, d=dim, k=keepdim: getattr(x, n)(d, k), [x])
        for name in ["sum", "mean", "amax", "amin", "logsumexp"]
        for dim in (0, 1, -1, (0, 2), (-1, 0, 1))
        for keepdim in (False, True)
        for x in (normal(3, 4, 2),)
    ],
    *[
        (f"{name} all", lambda x, n=name: getattr(x, n)(), [x])
        for name in ["sum", "mean", "amax", "amin", "prod", "var"]
        for x in (normal(3, 4), TIES, normal(2))
    ],
    ("amax ties", lambda x: x.amax(1), [TIES]),
    ("amin ties", lambda x: x.amin(1, True), [TIES]),
    *[("sum of number", lambda x, n=n: getattr(x, n)(), [values(2.0)[0]]) for n in ("sum", "mean")],
    *[(f"prod {d}", lambda x, d=d: x.prod(d), [normal(3, 4)]) for d in (0, 1, -1)],
    ("prod keepdim", lambda x: x.prod(1, True), [normal(3, 4)]),
    ("prod one zero", lambda x: x.prod(), [values(1.0, 0.0, 3.0)]),
    ("prod two zeros", lambda x: x.prod(), [values(1.0, 0.0, 3.0, 0.0)]),
    ("prod two zeros -1", lambda x: x.prod(-1, True), [values(1.0, 0.0, 0.0, 3.0).view(1, 4)]),
    ("prod three zeros", lambda x: x.prod(0), [values(0.0, 0.0, 2.0, 0.0, 0.0, 0.0).view(3, 2)]),
    ("prod of nothing", lambda x: x.prod(0), [torch.zeros(0, 3, dtype=torch.float64)]),
    ("prod zeros", lambda x: x.prod(1), [torch.tensor([[2, 0, 3], [2, 4, 3]]).double()]),
    *[
        (f"var {d} {c}", lambda x, d=d, c=c: x.var(d, correction=c), [normal(3, 4)])
        for d in (None, 0, -1, (0, 1))
        for c in (0, 1, 2)
    ],
    ("var keepdim", lambda x: x.var(1, correction=1, keepdim=True), [normal(3, 4)]),
    ("cumsum", lambda x: x.cumsum(-1), [X]),
    # view
    ("reshape", lambda x: x.reshape(2, 6), [X]),
    ("reshape minus one", lambda x: x.reshape(-1), [X]),
    ("permute", lambda x: x.permute(2, 0, 1), [normal(2, 3, 4)]),
    ("permute negative", lambda x: x.permute(-1, 0, -2), [normal(2, 3, 4)]),
    ("expand", lambda x: x.expand(5, 3, 4), [COLUMN]),
    ("expand minus one", lambda x: x.expand(-1, 4), [COLUMN]),
    ("slice", lambda x: x[1:3, ::2], [X]),
    ("select", lambda x: x[1], [X]),
    ("select negative", lambda x: x[:, -1], [X]),
    ("new dimension", lambda x: x[:, None], [X]),
    ("diagonal", lambda x: x.diagonal(), [X]),
    ("diagonal offset", lambda x: x.diagonal(1, 0, 2), [normal(3, 2, 4)]),
    ("flip", lambda x: x.flip(0, -1), [X]),
    ("repeat", lambda x: x.repeat(2, 1, 3), [X]),
    # index
    ("gather", lambda x, i: x.gather(1, i), [X, torch.tensor([[0, 0], [3, 1]])]),
    (
        "scatter",
        lambda x, i, s: x.scatter(1, i, s),
        [X, torch.tensor([[0, 1], [3, 1]]), normal(2, 2)],
    ),
    ("scatter number", lambda x, i: x.scatter(0, i, 2.0), [X, torch.tensor([[0, 1], [2, 1]])]),
    (
        "scatter_add",
        lambda x, i, s: x.scatter_add(1, i, s),
        [X, torch.tensor([[0, 0], [3, 3]]), normal(2, 2)],
    ),
    ("index_select", lambda x, i: x.index_select(1, i), [X, torch.tensor([3, 0, 0])]),
    (
        "index_add",
        lambda x, i, s: x.index_add(0, i, s),
        [X, torch.tensor([2, 2]), normal(2, 4, seed=5)],
    ),
    ("index", lambda x, i: x[i], [X, torch.tensor([2, 0, 2])]),
    ("index two", lambda x, i, j: x[i, j], [X, torch.tensor([2, 0]), torch.tensor([1, 1])]),
    ("index absent", lambda x, i: x[:, i], [X, torch.tensor([2, 0, 2])]),
    ("tril", lambda x: x.tril(1), [X]),
    ("triu", lambda x: x.triu(-1), [X]),
    ("sort", lambda x: x.sort(0, True), [X]),
    ("sort number", lambda x: x.sort(), [values(2.0)[0]]),
    ("topk", lambda x: x.topk(2, -1), [X]),
    ("topk smallest", lambda x: x.topk(2, 0, False), [X]),
]


@pytest.mark.parametrize(("name", "function", "inputs"), METHODS, ids=[row[0] for row in METHODS])
def test_method(name: str, function: Callable[..., object], inputs: list[torch.Tensor]) -> None:
    check(function, function, inputs)


AT_KINKS: list[tuple[str, Callable[..., object], list[torch.Tensor]]] = [
    *[
        (name, lambda x, name=name: getattr(x, name)(), [KINKS])
        for name in [
            "abs",
            "sign",
            "exp",
            "log",
            "log1p",
            "sqrt",
            "rsqrt",
            "reciprocal",
            "relu",
            "tanh",
            "sigmoid",
            "square",
        ]
    ],
    *[(f"pow {n}", lambda x, n=n: x**n, [KINKS]) for n in (0, 1, 2, 0.5, -1, 0.0)],
    *[(f"{n} pow", lambda x, n=n: n**x, [KINKS]) for n in (0, 1, 2.0, -1.0)],
    ("tensor pow", lambda x, y: x**y, [values(0, 0, 0, 2, -2, 0), values(0, 1, -1, 0, 2, 0.5)]),
    *[
        (name, lambda x, y, n=name: getattr(x, n)(y), [KINKS, KINKS.flip(0)])
        for name in ["maximum", "minimum", "div", "atan2"]
    ],
    (
        "atan2 of zeros",
        lambda x, y: x.atan2(y),
        [values(0.0, -0.0, 0.0, 1e-200, 1.0), values(0.0, 0.0, -0.0, 1e-200, 0.0)],
    ),
    ("clamp", lambda x: x.clamp(-1.0, 1.0), [KINKS]),
    ("clamp min", lambda x: x.clamp(min=-1.0), [KINKS]),
    ("logit eps", lambda x: x.logit(0.1), [values(0.1, 0.9, 0.05, 0.95, 0.5, NAN)]),
    ("logit_ eps", lambda x: (x * 1).logit_(0.2), [values(0.2, 0.8, 0.1, 1.0, 0.5, NAN)]),
    ("masked_fill", lambda x: (1 / x).masked_fill(x == 0, 0.0), [values(0.0, 1.0)]),
    ("where", lambda x: x.log().where(x > 0, x), [values(0.0, 1.0, -1.0)]),
    ("logsumexp", lambda x: x.logsumexp(0), [values(-INF, -INF)]),
    ("logsumexp half", lambda x: x.logsumexp(0), [values(-INF, 1.0)]),
    ("logsumexp inf", lambda x: x.logsumexp(0), [values(INF, 1.0)]),
    ("amax nan", lambda x: x.amax(0), [values(NAN, 1.0)]),
    ("softmax -inf", lambda x: x.softmax(0), [values(-INF, 1.0)]),
    ("prod two zeros", lambda x: x.prod(0), [values(0.0, 0.0, 2.0)]),
    *[
        (f"norm {p}", lambda x, p=p: x.norm(p, 0), [values(1, 0, 0, 2, 0, 3).view(2, 3)])
        for p in (0.5, 1.0, -1.0)
    ],
    ("remainder", lambda x, y: x % y, [values(1.0, -1.0), values(0.1, 0.3)]),
    ("sum of nothing", lambda x: x.sum(), [torch.zeros(0, 3, dtype=torch.float64)]),
    ("mean of nothing", lambda x: x.mean(0), [torch.zeros(0, 3, dtype=torch.float64)]),
    ("var short", lambda x: x.var(0, correction=1), [values(3.0)]),
    ("var shorter", lambda x: x.var(0, correction=3), [values(3.0, 4.0)]),
]


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize(("name", "function", "inputs"), AT_KINKS, ids=[row[0] for row in AT_KINKS])
def test_kink(name: str, function: Callable[..., object], inputs: list[torch.Tensor]) -> None:
    check(function, function, inputs, second=False)


@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
def test_dropout(p: float) -> None:
    x = upload(X)
    out, mask = call("dropout", x, p=p, seed=3, draw=5)
    out.backward(upload(torch.ones(3, 4, dtype=torch.float64)).detach())
    scale = 1 / (1 - p) if p < 1 else 0.0
    np.testing.assert_allclose(x.grad.numpy(), mask.numpy() * scale)


def test_floor_divide_refuses() -> None:
    x = upload(P)
    with pytest.raises(RuntimeError, match="derivative for aten::floor_divide is not implemented"):
        (x // 2.0).sum().backward()


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum", "softmax", "log_softmax"])
def test_dtype_argument(name: str) -> None:
    """The gradient comes back in the operand's dtype."""
    x = _core.from_numpy_copy(P.float().numpy(), _core.float32, True)
    getattr(x, name)(1, dtype=_core.float64).sum().backward()
    other = P.float().requires_grad_()
    getattr(other, name)(1, dtype=torch.float64).sum().backward()
    assert x.grad.dtype == _core.float32
    np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_comparisons_require_no_gradient() -> None:
    x = upload(X)
    results = [x == 1, x < 2, x.argmax(), x.any(), x.isnan(), x.logical_not()]
    assert not any(result.requires_grad for result in results)


def test_backward_of_formulas_runs_no_python() -> None:
    x, w, b = upload(X), upload(normal(5, 4)), upload(normal(5))
    table, rows = (
        upload(normal(6, 5)),
        _core.from_numpy_copy(np.array([1, 5, 1]), _core.int64, False),
    )
    hidden = call("linear", x, w, b).relu() * 2 + call("embedding", table, rows)
    normed = call("layer_norm", hidden, b, None, normalized_shape=(5,), eps=1e-5)[0]
    loss = (normed.softmax(-1).transpose(0, 1) @ x).square().sum(0, keepdim=True).mean()
    frames: list[str] = []
    sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_filename))
    try:
        loss.backward()
    finally:
        sys.setprofile(None)
    assert not [name for name in frames if name != __file__]
    assert all(leaf.grad is not None for leaf in (x, w, b, table))


@pytest.mark.parametrize(
    "inputs",
    [lambda a, b, h: [b], lambda a, b, h: h, lambda a, b, h: iter((a, h)), lambda a, b, h: [a, a]],
    ids=["a list", "no leaf", "an iterator", "twice"],
)
def test_backward_fills_the_gradients_of_its_inputs_alone(inputs):
    grads = []
    for library in (gt, torch):
        a = library.tensor([1.0, 2.0], requires_grad=True)
        b = library.tensor([3.0, 4.0], requires_grad=True)
        h = a * b
        h.retain_grad()
        (h * h).sum().backward(inputs=inputs(a, b, h))
        grads.append([None if x.grad is None else x.grad.tolist() for x in (a, b, h)])
    assert grads[0] == grads[1]


def test_backward_for_no_inputs_is_an_error():
    with pytest.raises(RuntimeError, match=r"`inputs` argument to `backward\(\)` cannot be empty"):
        gt.ones(1, requires_grad=True).sum().backward(inputs=[])
