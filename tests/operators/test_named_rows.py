"""Special functions, orders, scans and combining writes as rows, and what is composed of rows: each
beside PyTorch, edges and mistakes too; no worker is asked what results.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness.compare import difference
from harness.convert import quietly
from spread_session import workers

import gt
from gt.aten.call import queries

nan, inf = math.nan, math.inf
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")
REDUCES = ("sum", "prod", "mean", "amax", "amin")

# Expressions of `m`, the library, and `T`, its `tensor`. They run without a question.
ROWS = [
    "m.hypot(T([1]), T([2.0])), T([1.0, 2.0]).hypot_(T([3.0, 4.0]))",
    "m.hypot(T([1.0]).half(), T([1.0]).half()), m.hypot(T([3e38]), T([3e38]))",
    "m.fmax(T([True]), T([False])), m.fmax(T([1, 2]), T([2.5]).half())",
    "m.fmax(T([nan, 1.0, nan]), T([2.0, nan, nan])), m.fmin(T([nan, 1.0]), T([2.0, nan]))",
    "m.copysign(T([1]), T([-2])), m.copysign(T([1]), -2), m.copysign(T([True]), -2)",
    "m.copysign(T([1], dtype=m.uint8), -2), m.copysign(T([1.0, -2.0]).half(), 1e9)",
    "m.copysign(T([1.0, -2.0]), -nan), m.copysign(T([1.0]).half(), T([-1.0]).bfloat16())",
    "T([1.0, 2]).copysign_(T([-1.0])), T([1.0, 2]).copysign_(-1)",
    "m.nextafter(T([1.0, 0.0]).half(), T([-2.0, 1.0]).half())",
    "m.nextafter(T([1.0, 0.0]).bfloat16(), T([-2.0, -1.0]).bfloat16())",
    "m.nextafter(T([1.0]).double(), T([-2.0])), m.nextafter(T([1.0]), T([-2]))",
    "m.ldexp(T([True]), T([1.0]).half()), m.ldexp(T([1]), T([1])), m.ldexp(T([1]), T([True]))",
    "m.ldexp(T([1.0]).half(), T([1])), m.ldexp(T([2**-14]).half(), T([20]))",
    "m.ldexp(T([1e-30]), T([140])), m.ldexp(T([1]), T([2.0]).double())",
    "m.ldexp(T([1.0]).double(), T([3.0]).half()), m.ldexp(T([1.0]).bfloat16(), T([3]))",
    "m.erfc(T([1])), m.erfc(T(True)), m.erfc(T([30.0, -inf, nan]))",
    "m.lgamma(T([0.0, -0.0, -1.0, -0.5, inf, -inf, nan])), m.lgamma(T([3]))",
    "m.digamma(T([0.0, -0.0, -1.0, -0.5, inf, -inf, nan])), m.digamma(T([3]))",
    "m.erfinv(T([1.0, -1.0, 2.0, 0.5])), m.erfinv(T([0, 1]))",
    "m.polygamma(2, T([1])), m.polygamma(1, T([1.0]).half()), m.polygamma(0, T([1.0]).bfloat16())",
    "m.polygamma(3, T([0.0, -1.0, -0.5, inf])), m.polygamma(n=1, input=T([1.0]))",
    "T([1.0, 2.0]).polygamma(1), T([1.0, 2.0]).polygamma_(1), T([1.0, 2.0]).polygamma(n=1)",
    "T([1.0, 2.0]).erfc_(), T([1.0, 2.0]).lgamma_(), T([1.0, 2.0]).digamma_(), T([0.1]).erfinv_()",
    "m.special.erf(T([1.0])), m.special.gammaln(T([1.5])), m.special.psi(T([1.5]))",
    "m.special.expit(T([1])), m.special.softmax(T([1, 2]), 0, dtype=m.float32)",
    "m.special.polygamma(1, T([1.0])), m.special.logit(T([0.2]), eps=1e-3)",
    "m.special.round(T([0.257]), decimals=1), m.special.logsumexp(T([0.2, 1.0]), 0)",
    "m.special.xlogy(2, T([3.0])), m.special.log_softmax(T([1.0, 2.0]), 0, dtype=m.float64)",
    "m.cummax(T(1.0), 0), m.cummax(T([True, False]), 0), m.cummax(m.zeros(0, 3), 0)",
    "m.cummax(T([1.0, nan, 3.0, nan]), 0), m.cummin(T([1.0, 1.0, 0, 0]).half(), dim=0)",
    "m.cummax(T([3, 1, 2]), 0).indices, T([3, 1, 2]).cummin(-1).values",
    "m.logcumsumexp(T([1.0]).half(), 0), m.logcumsumexp(T(1.0), 0)",
    "m.logcumsumexp(T([-inf, -inf, 1.0, inf, 2.0]), 0)",
    "m.mode(T([True, False])), m.mode(T(1.0)), m.mode(m.zeros(0, 3), 1)",
    "m.mode(T([1.0, 1.0, 2, 2]).half(), 0), m.mode(T([[1, 1, 2], [3, 2, 2]]), 1, True)",
    "m.nanmedian(T([[1.0, nan], [nan, nan]]), 1), m.nanmedian(T([[1.0, nan], [3.0, 2.0]]))",
    "m.nanmedian(T([nan, nan])), m.median(T([1.0, nan])), m.median(T([4, 2, 1, 3]))",
    "m.median(T([[1.0, nan, 0.0], [3.0, 2.0, 1.0]]), 1), m.median(T([[1.0, 0.0]]), 0, True)",
    "m.median(T(3.0), 0), m.median(T(3.0)), m.nanmedian(T([4, 2, 1, 3]))",
    "m.nanmean(T([[1.0, nan], [nan, nan]])), m.nanmean(T([[1.0, nan], [nan, nan]]), 1)",
    "m.nanmean(T([[1.0, nan]]), (0, 1), True), m.nanmean(T([1.0]).half(), dtype=m.float64)",
    "m.nanmean(m.zeros(0)), m.nanmean(m.zeros(0, 2), 0)",
    "m.renorm(T([[1.0, 2.0], [0.1, 0.2]]), 2, 0, 1.0), T([[1.0, 2.0]]).renorm_(2, 0, 1.0)",
    "m.renorm(T([[1.0, 2.0], [0.1, 0.2]]), 1, -1, 0.5), m.renorm(m.ones(2, 2), inf, 1, 0.5)",
    "[m.rot90(T([[1.0, 2.0, 3.0], [4.0, 5.0, 6]]), k, d) for k in range(-5, 6) for d in DIMS]",
    "m.fliplr(T([[1.0, 2.0]])), m.flipud(T([1, 2]))",
    "m.trapezoid(T([1, 2])), m.trapezoid(T([1, 2, 4]), T([0, 1, 3]))",
    "m.trapz(T([1.0, 2.0]), dx=0.5)",
    "m.trapezoid(T([[1.0, 2.0], [3.0, 5.0]]), dx=2.0, dim=0), m.trapezoid(m.ones(2, 1))",
    "m.trapezoid(T([[1.0, 2.0], [3.0, 5.0]]), T([0.0, 3.0]), dim=0)",
    "m.cumulative_trapezoid(T([1, 2])), m.cumulative_trapezoid(T([1, 2, 4]), T([0, 1, 3]))",
    "m.cumulative_trapezoid(T([[1.0, 2.0], [3.0, 5.0]]), T([[0.0, 3.0], [1.0, 1.0]]), dim=0)",
    "m.kron(T(2.0), T([1, 2])), m.kron(T([[1.0, 2.0], [3.0, 4.0]]), T([1, 2]))",
    "m.kron(T([1, 2]), T([[1.0, 2.0], [3.0, 4.0]])), m.kron(m.zeros(0), T([1.0, 2.0]))",
    "[m.diag_embed(T([[1, 2], [3, 4]]), o, *d) for o in (-1, 0, 2) for d in [*DIMS, (2, 1)]]",
    *(
        f"[m.{name}(T([[1.0, 5.0, 2.0], [3.0, nan, {last}]]), q, {dim}, k, interpolation=i) "
        "for q in (0, 0.3, 0.5, 1) for k in (False, True) for i in INTERPOLATIONS]"
        for name, last in (("quantile", 4.0), ("nanquantile", nan))
        for dim in (None, 0, 1, -1)
    ),
    "m.quantile(T(2.0), 0.3), m.quantile(T(2.0), 0.3, 0), m.quantile(T(2.0), 0.3, 0, True)",
    *(
        f"[T([1, 2, 3], dtype=m.{dtype}).scatter_reduce(0, T([0, 0, 2, 0]), "
        f"T([0, 3, 4, -5], dtype=m.{dtype}), r, include_self=i) for r in REDUCES "
        "for i in (False, True)]"
        for dtype in ("float32", "bfloat16", "int64", "int8")
    ),
    "m.scatter_reduce(T([1.0, 2.0]), 0, T([0]), T([1.0]), reduce='sum')",
    "T([1.0, 2.0]).scatter_reduce_(0, T([0]), T([5.0]), 'amax', include_self=False)",
    "T(1.0).scatter_reduce(0, T(0), T(3.0), 'sum')",
    "m.ones(2).scatter_reduce(0, T([0]), T([5.0]), 'max')",
    *(
        f"[T([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).index_reduce({dim}, T([0, 1, 0]), "
        f"T([[1.0, 2.0, 3.0], [4.0, -5.0, 6.0], [7.0, 8.0, 9.0]])[:{rows}], r, include_self=i) "
        "for r in REDUCES[1:] for i in (False, True)]"
        for dim, rows in ((0, 3), (1, 2))
    ),
    "T([1.0, 2.0]).index_reduce_(0, T([0]), T([3.0]), 'amax')",
    "m.pow(T([0.5, 1.0, 2.0]), 1e40), m.pow(T([0.5, 1.0, 2.0]), -1e40), T([2.0]).pow_(1e40)",
    "m.pow(1e40, T([0.5, 2.0])), m.pow(T([2]), 1e40), m.pow(300, T([1, 2], dtype=m.uint8))",
    "m.pow(2, T([1, 2])), m.pow(input=T([2.0]), exponent=3)",
    "T(1.0).mT, T(1.0).mH, T([[1.0, 2.0]]).mT, ~T([1]), ~T([True])",
]

ERRORS = [
    "m.hypot(T([1]), T([2]))",
    "m.hypot(T([True]), T([True]))",
    "m.hypot(T([1.0]), 2.0)",
    "m.hypot(T([1.0 + 1j]), T([1.0]))",
    "m.ones(2, 3).hypot_(m.ones(3, 2, 3))",
    "m.fmax(T([1.0]), 2.0)",
    "m.fmax(T([1.0 + 1j]), T([1.0]))",
    "m.copysign(T([1.0 + 1j]), T([1.0]))",
    "T([1, 2]).copysign_(T([-1.0]))",
    "m.nextafter(T([1]), T([-2]))",
    "m.nextafter(T([1.0]), 2.0)",
    "m.nextafter(T([1j]), T([1j]))",
    "m.ldexp(T([1.0]), 2)",
    "m.erfc(T([1j]))",
    "m.lgamma(T([1j]))",
    "T([1, 2]).erfc_()",
    "m.polygamma(-1, T([1.0]))",
    "m.polygamma(1, T([1j]))",
    "m.polygamma(1.0, T([1.0]))",
    "m.polygamma(True, T([1.0]))",
    "m.polygamma(1, 2.0)",
    "m.cummax(T([1j]), 0)",
    "m.cummax(m.zeros(3), 1)",
    "m.logcumsumexp(T([1]), 0)",
    "m.logcumsumexp(T(1.0), 1)",
    "m.mode(T([1j, 2j]))",
    "m.mode(m.zeros(0, 3), 0)",
    "m.mode(m.zeros(3), dim=5)",
    "m.nanmedian(m.zeros(0, 3), 0)",
    "m.nanmedian(T([True]))",
    "m.median(T([True]), 0)",
    "m.nanmean(T([1]))",
    "m.renorm(T([1.0]), 2, 0, 1.0)",
    "m.renorm(m.ones(2, 2), -2, 0, 1.0)",
    "m.renorm(m.ones(2, 2), 2, 0, -1.0)",
    "m.rot90(T([1.0]))",
    "m.rot90(m.ones(2, 2), 1, (0, 0))",
    "m.rot90(m.ones(2, 2), 1, (0,))",
    "m.rot90(m.ones(2, 2), 1, (0, 3))",
    "m.fliplr(T([1.0]))",
    "m.flipud(T(1.0))",
    "m.trapezoid(T(1.0))",
    "m.trapezoid(T([1.0]), T([1.0, 2.0]))",
    "m.trapezoid(T([True, False]))",
    "m.kron(T([1.0]), 2.0)",
    "m.diag_embed(T(1.0))",
    "m.diag_embed(m.ones(2), 0, 0, 0)",
    "m.diag_embed(m.ones(2), 0, 0, 5)",
    "m.quantile(T([1.0]), 1.5)",
    "m.quantile(T([1]), 0.5)",
    "m.quantile(T([1.0]), 0.5, interpolation='x')",
    "m.quantile(T([1.0]), 0.5, 3)",
    "m.quantile(m.zeros(0), 0.5)",
    "T([1.0, 2.0]).scatter_reduce(0, T([0]), T([1.0]), 'mul')",
    "T([1.0, 2.0]).scatter_reduce(0, T([0]), T([1]), 'amax')",
    "T([1.0, 2.0]).scatter_reduce(0, T([0.0]), T([1.0]), 'amax')",
    "T([1.0, 2.0]).scatter_reduce(0, T([[0]]), T([1.0]), 'amax')",
    "T([1.0, 2.0]).scatter_reduce(1, T([0]), T([1.0]), 'amax')",
    "T([1.0, 2.0]).index_reduce(0, T([0]), T([1.0]), 'sum')",
    "m.pow(T([0.5]).half(), 1e6)",
    "m.pow(T([0.5]).bfloat16(), 1e40)",
    "m.pow(2, 3)",
    "T([[True]]) @ T([[True]])",
    "T([True]) @ T([True])",
    "m.bmm(T([[[True]]]), T([[[True]]]))",
    "m.mv(T([[True]]), T([True]))",
    "m.nn.functional.linear(T([[True]]), T([[True]]))",
    "m.aminmax(T([1j]))",
    "~T([1.0])",
    "~T([1j])",
    "m.bitwise_not(T([1.0]))",
    "T([1.0]).mT",
    "T([1.0]).mH",
]

# Functions of leaves `x` and `y`, and the leaves.
GRADIENTS = [
    ("m.erfc(x) + m.lgamma(y)", [0.1, -2.0], [0.1, 2.0]),
    ("m.digamma(x) + m.polygamma(2, x) + y.erfinv()", [0.1, 2.0], [0.1, 0.5]),
    ("m.fmax(x, y)", [1.0, nan, nan, 2.0, 3.0], [1.0, 1.0, nan, nan, 4.0]),
    ("m.fmin(x, y)", [1.0, nan, nan, 2.0, 3.0], [1.0, 1.0, nan, nan, 4.0]),
    ("m.hypot(x, y)", [[1.0], [2.0]], [3.0, 4.0]),
    ("m.copysign(x, y)", [1.0, 0.0, -2.0, inf, nan], [-1.0, 2.0, nan, 1.0, -1.0]),
    ("m.nextafter(x, y)", [1.0, 1.0, 2.0, nan, 0.0], [2.0, 1.0, 1.0, 1.0, nan]),
    ("m.ldexp(x, y) + m.ldexp(x, T([3, 4]))", [1.0, 2.0], [3.0, 4.0]),
    ("m.logaddexp(x, y)", [inf, -inf, inf, 1.0], [inf, -inf, -inf, 1.0]),
    ("x.cummax(0)[0] + y.cummin(0)[0]", [1.0, 3.0, 3.0, 2.0], [3.0, 1.0, 1.0, 2.0]),
    ("x.logcumsumexp(0) * y", [1.0, 3.0, 3.0, 2.0], [1.0, -2.0, 0.5, 3.0]),
    ("x.logcumsumexp(1) + y", [[-inf, 1.0], [2.0, -inf]], 0.0),
    ("x.mode(1)[0] + y.mode(0)[0]", [[1.0, 1.0, 2.0], [3.0, 2.0, 2.0]], [[1.0, 2.0]]),
    ("x.nanmedian(1)[0] + y.nanmedian()", [[1.0, nan, 2.0]], [[1.0, nan, 2.0], [2.0, 4.0, 2.0]]),
    ("x.median(0)[0] + y", [[1.0, nan, 2.0], [3.0, 2.0, 2.5]], 0.0),
    ("x.median() + y", [1.0, 2.0, 2.0, 3.0], 0.0),
    ("x.nanmedian() + y.median()", [nan, nan], [1.0, nan, nan, 3.0]),
    ("x.nanmean(1) + y.nanmean()", [[1.0, nan, 2.0]], [1.0, 2.0]),
    ("x.renorm(2, 0, 1.0) + x.renorm(1, 0, 1.0) + y", [[1.0, 2.0], [0.1, 0.2]], 0.0),
    ("m.kron(x, y)", [1.0, 2.0], [[3.0, 4.0]]),
    ("m.diag_embed(x) + m.rot90(y).sum()", [1.0, 2.0], [[1.0, 2.0]]),
    ("m.trapezoid(x, y) + m.cumulative_trapezoid(x, y)", [1.0, 2.0, 5.0], [1.0, 2.0, 4.0]),
    ("x.quantile(0.3, 0) + y.nanquantile(0.3)", [1.0, 5.0, 2.0], [1.0, nan, 2.0]),
    ("m.pow(x, 1e40) + y", [0.5, 2.0], 0.0),
    *(
        ((f"x.scatter_reduce(0, T([0, 0, 2, 0, 1]), y, '{reduce}', include_self={counts}) "
         "* T([1.0, 2.0, 3.0])"), [0.5, 2.0, 3.0], [0.25, 3.0, 3.0, 5.0, 1.5])
        for reduce in REDUCES for counts in (False, True)
    ),
    *(
        (f"x.scatter_reduce(0, T([0, 0, 2, 0, 1]), y, 'prod', include_self={counts})",
         [1.0, 2.0, 3.0], zeros)
        for counts in (False, True)
        for zeros in ([0.0, 3.0, 3.0, 5.0, 0.0], [4.0, 3.0, 0.0, 5.0, 1.0])
    ),
    *(
        (f"x.index_reduce(0, T([0, 0, 2]), y, '{reduce}', include_self={counts})",
         [[1.0], [2.0], [3.0]], [[0.5], [3.0], [3.0]])
        for reduce in REDUCES[1:] for counts in (False, True)
    ),
]  # fmt: skip


def evaluated(expression: str, library: Any, **leaves: object) -> Any:
    names = {"m": library, "T": library.tensor, "nan": nan, "inf": inf, "REDUCES": REDUCES}
    names |= {"DIMS": [(0, 1), (1, 0), [-1, -2]], "INTERPOLATIONS": INTERPOLATIONS, **leaves}
    return quietly(lambda: eval(expression, names))


@pytest.mark.parametrize("expression", ROWS)
def test_values_are_pytorchs_and_no_worker_is_asked(expression: str) -> None:
    before = queries()
    ours, theirs = evaluated(expression, gt), evaluated(expression, torch)
    assert queries() == before
    what = difference(ours, theirs, values=True)
    assert what is None, what


@pytest.mark.parametrize("expression", ERRORS)
def test_errors_are_pytorchs(expression: str) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011 - PyTorch says which
        evaluated(expression, torch)
    kinds = [kind for kind in type(expected.value).__mro__ if kind.__module__ == "builtins"]
    with pytest.raises(kinds[0]) as found:
        evaluated(expression, gt)
    text = str(expected.value).split("\n")[0].strip(" .")
    assert text.split(" (position")[0] in str(found.value)


@pytest.mark.parametrize(("expression", "x", "y"), GRADIENTS)
def test_gradients_of_both_orders_are_pytorchs(expression: str, x: object, y: object) -> None:
    ours, theirs = (orders(library, expression, x, y) for library in (gt, torch))
    for one, other in zip(ours, theirs, strict=True):
        if one is None or other is None:
            assert one is None or not one.any()
            assert other is None or not other.any()
            continue
        what = difference(one, other, values=True, looser=10)
        assert what is None, what


def orders(library: Any, expression: str, *values: object) -> list[Any]:
    """The first gradients of both leaves, and the second ones where all numbers are finite."""
    leaves = [library.tensor(value, requires_grad=True) for value in values]
    out = evaluated(expression, library, x=leaves[0], y=leaves[1])
    firsts = list(library.autograd.grad((out * out).sum(), leaves, create_graph=True))
    found = [first.detach() for first in firsts]
    if not math.isfinite(sum(first.sum() for first in found).item()):
        return found
    total = sum((first * first).sum() for first in firsts)
    if total.requires_grad:
        found += library.autograd.grad(total, leaves, allow_unused=True)
    return found


@pytest.mark.parametrize("value", [1.0, inf])
def test_a_sum_of_nothing_stays_zero_beside_infinite_factors(value: float) -> None:
    one = gt.tensor([inf, 1.0], requires_grad=True)
    other = gt.tensor([[inf, 2.0]], requires_grad=True)
    gt.addcmul(gt.zeros(0, 2), one, other, value=value).sum().backward()
    assert one.grad.tolist() == [0.0, 0.0]
    assert other.grad.tolist() == [[0.0, 0.0]]


KEPT: list[tuple[str, Callable[[Any, Any], Any], int]] = [
    ("cummax", lambda m, x: x.cummax(1)[0], 0),
    ("logcumsumexp", lambda m, x: x.logcumsumexp(1), 0),
    ("mode", lambda m, x: x.mode(1)[0], 0),
    ("nanmedian", lambda m, x: x.nanmedian(0)[0], 1),
    ("quantile", lambda m, x: x.quantile(0.3, 1), 0),
    ("fmax", lambda m, x: m.fmax(x, x.flip(1)), 0),
    ("lgamma", lambda m, x: (x.abs() + 1).lgamma() + x.erfc() + m.polygamma(1, x.abs() + 1), 1),
    ("nanmean", lambda m, x: x.nanmean(0), 0),
    ("fliplr", lambda m, x: x.fliplr(), 0),
    ("scatter_reduce", lambda m, x: x.scatter_reduce(1, m.zeros(4, 6).long(), x, "amax"), 0),
    ("trapezoid", lambda m, x: m.trapezoid(x, dim=1), 0),
]


@pytest.mark.parametrize(("name", "function", "dim"), KEPT)
def test_a_cut_of_another_dimension_is_kept(
    name: str, function: Callable[[Any, Any], Any], dim: int
) -> None:
    values = [[math.sin(7.0 * n + k) for k in range(6)] for n in range(4)]
    whole = torch.tensor(values, requires_grad=True)
    expected = function(torch, whole)
    (expected * expected).sum().backward()
    with workers(2):
        leaf = gt.tensor(values, requires_grad=True)
        cut = gt.distribute(leaf, dim=dim)
        before = gt.debug.stats()["gathered"]
        out = function(gt, cut)
        (out * out).sum().backward()
        assert gt.debug.stats()["gathered"] == before, name
        for ours, theirs in ((out, expected), (leaf.grad, whole.grad)):
            what = difference(ours.detach(), theirs.detach(), values=True, looser=10)
            assert what is None, what


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("unknown", [False, True])
def test_a_quantile_in_double_precision_is_one(name: str, unknown: bool) -> None:
    values = torch.linspace(-1, 1, 21, dtype=torch.float64).reshape(3, 7).sin()
    if unknown:
        values[1, 2] = math.nan
    for share in (0.0, 0.3, 1 / 3, 0.7, 1.0):
        leaves = [values.clone().requires_grad_(), gt.from_numpy(values.numpy()).requires_grad_()]
        found = [getattr(m, name)(x, share, 1) for m, x in zip((torch, gt), leaves, strict=True)]
        for result in found:
            result.sum().backward()
        for one, other in zip(found, leaves, strict=True):
            assert one.dtype == other.dtype
        torch.testing.assert_close(
            torch.from_numpy(found[1].detach().numpy()), found[0].detach(), rtol=1e-14, atol=1e-14,
            equal_nan=True,
        )  # fmt: skip
        torch.testing.assert_close(
            torch.from_numpy(leaves[1].grad.numpy()), leaves[0].grad, rtol=1e-13, atol=1e-13
        )


@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_a_median_of_what_is_expanded_reads_nothing_beside_it(name: str) -> None:
    """PyTorch's own kernel does: the oracle is the median of a copy."""
    column = torch.arange(4.0).reshape(4, 1) + 1
    for count in (3, 7):
        found = getattr(gt.from_numpy(column.numpy()).expand(4, count), name)(1)
        assert found[0].tolist() == column[:, 0].tolist()
