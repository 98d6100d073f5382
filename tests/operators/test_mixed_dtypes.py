"""Operands of several dtypes, numbers beyond a dtype, integers in functions of floats: as PyTorch.

A composition whose steps run in an operand's own dtype gives wrong numbers in silence, where that
dtype does not hold what is between the steps.
"""

import pytest
import torch
from harness.compare import difference
from harness.convert import quietly

import gt

# Expressions of `m`, the library.
VALUES = [
    # alpha and value are factors in the result's dtype
    "m.tensor([1.0]).add(m.tensor([100], dtype=m.int8), alpha=2)",
    "m.tensor([1.0]).sub(m.tensor([200], dtype=m.uint8), alpha=-1)",
    "m.tensor([1e5]).add_(m.tensor([200], dtype=m.uint8), alpha=2)",
    "m.tensor([1.0], dtype=m.float64).add(m.tensor([100.0], dtype=m.float16), alpha=1000)",
    "m.tensor([1.0], dtype=m.float16).add(m.tensor([3], dtype=m.int16), alpha=0.5)",
    "m.tensor([1.0]).sub(m.tensor([-(2**63)]), alpha=-1)",
    "m.tensor([True, False]).add(m.tensor([True, True]), alpha=0)",
    "m.tensor([True, False]).add(m.tensor([True, True]), alpha=True)",
    "m.rsub(m.tensor([200], dtype=m.uint8), 2.5, alpha=2)",
    "m.rsub(m.tensor([200], dtype=m.uint8), m.tensor([1.0]), alpha=2)",
    "m.addcmul(m.tensor([1.0]), m.tensor([3], dtype=m.int8), m.tensor([100], dtype=m.int8))",
    "m.addcmul(m.tensor([1.0]), m.tensor([3, 4], dtype=m.uint8), m.tensor([5]), value=-1)",
    "m.addcmul(m.tensor([1]), m.tensor([3]), m.tensor([3]), value=1.7)",
    "m.addcdiv(m.tensor([1.0]), m.tensor([3.0], dtype=m.float16), m.tensor([1e-8]), value=3)",
    "m.addcdiv(m.tensor([1], dtype=m.int32), m.tensor([3.0]), m.tensor([2.0], dtype=m.float64))",
    # integers in functions of floats
    *(
        f"m.{name}(m.tensor([0, 1, 5, 200], dtype=m.uint8))"
        for name in ("sinh", "cosh", "asin", "acos", "atan", "acosh", "atanh")
    ),
    "m.cosh(m.tensor([-128, 127], dtype=m.int8))",
    "m.sinh(m.tensor([-(2**63), 3]))",
    "m.sinh(m.tensor([True, False]))",
    "m.tensor([-(2**63), 2**63 - 1, 5]).isclose(m.tensor([2**63 - 1, -(2**63), -(2**63)]))",
    "m.tensor([True, False]).isclose(m.tensor([False, False]))",
    "m.tensor([True]).logaddexp(m.tensor([0.5], dtype=m.float16))",
    # numbers beyond the dtype, which PyTorch wraps around or takes as floats
    "m.tensor([1, 2, 3], dtype=m.int8).div(-129, rounding_mode='trunc')",
    "m.tensor([1, 2, 3], dtype=m.int8).div(-129, rounding_mode='floor')",
    "m.tensor([-4, 127], dtype=m.int8) >> 2**40",
    "m.tensor([-4, 127], dtype=m.int8) << 2**31",
    "m.xlogy(m.tensor([1, 2], dtype=m.uint8), -129)",
    "m.tensor([1, 2], dtype=m.int8).xlogy(70000)",
    "m.xlogy(300, m.tensor([1, 2], dtype=m.int8))",
    # what is between the steps overflows, or is too small
    "m.tensor([0.0, 600.0], dtype=m.float16).std()",
    "m.tensor([0.0, 1e-4], dtype=m.float16).std(0, keepdim=True)",
    "m.tensor([0.0, 1e-25]).std(unbiased=False)",
    "m.tensor([1e30, -1e30]).std(dim=0, correction=0)",
    "m.std_mean(m.tensor([0.0, 600.0], dtype=m.float16))",
    # NaN, nothing, complex numbers
    "m.tensor([float('nan'), 0.0, 1.0]).norm(0)",
    "m.tensor([]).median()",
    "m.zeros(2, 0, 3).median(0)",
    "m.tensor([], dtype=m.int32).median()",
    "m.tensor([complex(float('nan'), 1), complex(1, float('inf'))]).nan_to_num()",
    "m.tensor([1 + 2j, 3.0]).std()",
    "m.cosh(m.tensor([complex(float('-inf'), -3.5)]))",
    *(
        f"m.tensor([[-7.5, 7.5], [3, -0.0]]).to(m.{dtype}).div({other}, rounding_mode={mode!r})"
        for dtype in ("float32", "bfloat16", "int64", "int8")
        for other in ("2", "m.tensor([-2, 3])", "m.tensor(0.4)", "-0.3")
        for mode in ("floor", "trunc")
    ),
]
# Arguments that must not be swallowed.
VALUES += [
    "m.tril_indices(3, 4, 1, dtype=m.int32)",
    "m.triu_indices(3, 4, dtype=m.int32)",
    "m.tensor([3, 1, 3], dtype=m.int16).bincount(minlength=6)",
    "m.tensor([3, 1], dtype=m.uint8).bincount(m.tensor([0.5, 2.0]))",
]
# Operators whose kernel in PyTorch ends the process for other operands.
VALUES += [
    "m.lcm(m.tensor([0, 6, -4, 0, -(2**63)]), m.tensor([0, 4, 6, 3, -(2**63)]))",
    "m.lcm(m.tensor([[6], [-128]], dtype=m.int8), m.tensor([4, 7, 100], dtype=m.int16))",
]
ERRORS = [
    "m.tensor([1.0]).lcm(m.tensor([2]))",
    "m.tensor([-1, 2**31 - 1], dtype=m.int32).bincount()",
    "m.tensor([1.0]).add(m.tensor([1.0]), alpha=True)",
    "m.tensor([1]).sub(m.tensor([1]), alpha=0.5)",
    "m.tensor([1]).frac()",
    "m.tensor([1 + 1j]).logit()",
    "m.tensor([1 + 1j]).isposinf()",
    "m.tensor([1 + 1j]).isneginf()",
    "m.tensor([1 + 1j]) << 1",
    "m.tensor([3]) >> m.tensor([1j])",
    "m.tensor([1, 2]).logaddexp(m.tensor([1, 2]))",
    "m.tensor([True, False]).median()",
    "m.tensor([True, False]).kthvalue(1)",
    "m.tensor([1j, 2]).median()",
    "m.tensor([1j, 2]).maximum(m.tensor([1, 2]))",
    "m.tensor([1, 2]).norm()",
    "m.tensor([1.0]).dist(2)",
    "m.tensor([True]).div(True, rounding_mode='floor')",
]


def evaluated(expression: str, library: object) -> object:
    return quietly(lambda: eval(expression, {"m": library}))


@pytest.mark.parametrize("expression", VALUES)
def test_values_are_pytorchs(expression: str) -> None:
    ours, theirs = evaluated(expression, gt), evaluated(expression, torch)
    what = difference(ours, theirs, values=True)
    assert what is None, what


@pytest.mark.parametrize("expression", ERRORS)
def test_errors_are_pytorchs(expression: str) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011 - PyTorch says which
        evaluated(expression, torch)
    base = next(kind for kind in type(expected.value).__mro__ if kind.__module__ == "builtins")
    base = RuntimeError if base is NotImplementedError else base
    with pytest.raises(base) as found:
        evaluated(expression, gt)
    text = str(expected.value).split("\n")[0].strip(" .")
    assert text.split(" (position")[0] in str(found.value)


GRADIENTS = [
    "x.std()",
    "x.std(0).square().sum()",
    "(x * 0 + 2).std(1, correction=0).sum() + x.std(dim=(0, 1), keepdim=True).sum()",
    "x.div(m.tensor(0.4, dtype=m.float64), rounding_mode='floor').sum() + x.sum()",
    "m.tensor([2.0], dtype=m.float64).div(x, rounding_mode='trunc').sum()",
    "x.sinh().sum() * x.cosh().mean()",
    "(x.tanh() * 0.9).asin().sum() + (x.tanh() * 0.9).acos().square().sum()",
    "x.atan().sum() + (x.square() + 1.5).acosh().sum() + (x.tanh() * 0.9).atanh().sum()",
    "x.norm(0).sum() + x.logaddexp(x.detach().float()).sum()",
    "m.tensor([[1]]).add(x, alpha=3).square().sum()",
    "m.addcmul(m.ones(3, 1), x, x.detach().float(), value=2).sum()",
]


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradients_of_both_orders_are_pytorchs(expression: str) -> None:
    values = [[0.5, -1.25, 2.0], [1.5, 0.25, -0.75], [-2.5, 0.125, 1.0]]
    found = []
    for library in (gt, torch):
        x = library.tensor(values, dtype=library.float64, requires_grad=True)
        loss = eval(expression, {"m": library, "x": x})
        (first,) = library.autograd.grad(loss, x, create_graph=True)
        second = None
        if first.requires_grad:
            (second,) = library.autograd.grad(
                (first * first).sum(), x, allow_unused=True, retain_graph=True
            )
        found.append((loss, first, second))
    for ours, theirs in zip(*found, strict=True):
        if ours is None or theirs is None:
            assert ours is None or not ours.any()
            assert theirs is None or not theirs.any()
            continue
        what = difference(ours.detach(), theirs.detach(), values=True)
        assert what is None, what


def test_an_overflow_of_lcm_leaves_the_worker_alive() -> None:
    gt.lcm(gt.tensor([-(2**63)]), gt.tensor([2**63 - 1])).tolist()
    assert (gt.ones(2) + 1).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "expression",
    [
        "m.addmm(x, x, x.T)",
        "m.addmm(x, x, x, beta=-4.775, alpha=2.0315)",
        "m.addmm(x[0], x, x, alpha=0.5)",
        "m.addmv(x[1], x, x[2])",
        "m.baddbmm(x.expand(2, 8, 8), x.expand(2, 8, 8), x.T.expand(2, 8, 8), beta=3.4445)",
    ],
)
def test_half_precision_rounds_a_product_once_with_what_is_added(
    expression: str, dtype: str
) -> None:
    ours, theirs = (
        eval(
            expression,
            {"m": m, "x": (m.arange(64).reshape(8, 8) * 37 % 64 / 7 - 4).to(getattr(m, dtype))},
        )
        for m in (gt, torch)
    )
    assert ours.tolist() == theirs.tolist()
