"""Whole numbers where PyTorch takes one: bools are none, 64 bits end, and no kernel traps."""

import pytest
import torch
from test_refusals import value

import gt

X = "x = m.arange(6.0).view(2, 3); "
INTEGERS = [
    *(f"{X}x.{method}(#)" for method in [
        "sum", "mean", "max", "min", "amax", "argmax", "all", "any", "logsumexp", "softmax",
        "log_softmax", "cumsum", "cumprod", "cummax", "sort", "unbind", "flatten", "unsqueeze",
        "squeeze", "size", "stride", "chunk", "split", "roll", "diff", "rot90", "topk",
        "kthvalue", "diagonal", "tril", "triu", "tensor_split",
    ]),
    *(f"{X}{call}" for call in [
        "m.cat([x, x], #)", "m.stack([x, x], #)", "x.chunk(2, #)", "x.split(1, #)",
        "x.transpose(#, 0)", "x.narrow(#, 0, 1)", "x.narrow(0, #, 1)",
        "x.narrow(0, 0, #)", "x.select(#, 0)", "x.unfold(#, 1, 1)", "x.movedim(#, 0)",
        "x.index_select(#, m.tensor([0]))", "x.gather(#, m.tensor([[0]]))",
        "x.unflatten(#, (1, 2))", "x.repeat_interleave(2, #)",
        "m.nn.functional.softmax(x, #)",
        "m.nn.functional.avg_pool1d(x, #)", "m.cross(x, x, dim=#)", "m.special.polygamma(#, x)",
        "x.median(#)", "x.quantile(0.5, #)",
    ]),
]  # fmt: skip
NO_INTEGERS = ["True", "2**63", "-2**63 - 1", "2**64", "10**30"]
# PyTorch decides the kind of a list by its first element.
LISTS = [f"{X}{call}" for call in [
    "x.norm(2, #)", "x.flip(#)", "x.sum((#, 0))", "x.permute(#, 0)", "x.amax((#, 0))",
    "m.nn.functional.normalize(x, 2.0, #)", "x.roll(1, (#,))", "x.view(#, 6)", "x.repeat(#, 1)",
]]  # fmt: skip
FITS = [
    *(f"{X}x[{index}]" for index in [
        "True:", ":True", "::True", "2**63:", ":2**70", "-10**30:", "True", "False", "2**63",
        "0, 2**63", "-2**63 - 1",
    ]),
    *(f"m.broadcast_shapes({shapes})" for shapes in [
        "(-1,)", "(2, -1)", "-3", "(1,), (-1,)", "(0,), (1,)", "(2, 0), (2, 1)", "(2,), (3,)",
    ]),
    *(f"m.arange({arguments})" for arguments in ["True", "5, True, -1", "-2**63, -2**63 + 2"]),
    *(f"{X}m.nn.functional.hardshrink(x, {number})" for number in ["2**63", "2**64 - 1", "2**64"]),
    *(f"{X}m.addbmm(x[:, :2], x[None, :, :2], x[None, :, :2], alpha={number})"
      for number in ["2**63", "-2**63 - 1", "2**64"]),
    "m.nn.functional.threshold(m.tensor([1, 2]), 2**63, 0)",
    *(f"{X}m.round(x * 1.23456, decimals={n})" for n in [3, 22, 38, 400, 2**31, -1, -400]),
    *(f"m.{name}(m.tensor([250, 10, 200], dtype=m.{dtype}){dx})"
      for name in ("trapezoid", "cumulative_trapezoid")
      for dtype in ("uint8", "int64", "float32")
      for dx in ("", ", dx=2", ", dx=-1", ", dx=0.5", ", m.tensor([0, 1, 3])")),
    *(f"i = m.tensor([250, 10, 200]); m.nn.functional.{call}" for call in [
        "pairwise_distance(i, i, eps=1)", "pairwise_distance(i, i)",
        "margin_ranking_loss(i, i, i, 1, reduction='none')",
        "margin_ranking_loss(i, i, i, True, reduction='sum')",
        "cosine_embedding_loss(m.ones(2, 3), m.ones(2, 3), m.tensor([1, -1]), True)",
        "hinge_embedding_loss(m.ones(2), m.tensor([1, -1]), True)",
    ]),
]  # fmt: skip
# PyTorch's own processor kernel ends the process here.
LOWEST = [("int8", -(2**7)), ("int16", -(2**15)), ("int32", -(2**31)), ("int64", -(2**63))]
DIVISORS = ["-1", "m.tensor([-1], dtype=x.dtype)", "m.tensor(-1)", "x.new_tensor([-1, 2, -2, -1])"]
DIVISIONS = ["x.div({})", "x.div_({})", "x.divide({})", "m.ops.aten.div(x, {})"]


def outcome(m, row):
    """Result of a row, or its error's class; with its text for rows on 64-bit integers."""
    *statements, last = row.split("; ")
    names = {"m": m}
    try:
        exec("; ".join(statements), names)
        return str(value(eval(last, names))).replace("gt.Size", "torch.Size")
    except Exception as error:  # noqa: BLE001 - whichever it is, it is compared
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins").__name__
        text = str(error).split("\n")[0]
        return (kind, text) if "verflow" in text or "too big" in text else kind


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", INTEGERS)
def test_what_is_no_integer(row):
    for number in NO_INTEGERS:
        made = row.replace("#", number)
        assert outcome(gt, made) == outcome(torch, made), number


@pytest.mark.parametrize("row", LISTS)
def test_a_bool_in_a_list(row):
    assert outcome(gt, row.replace("#", "True")) == outcome(torch, row.replace("#", "True"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", FITS)
def test_what_fits(row):
    assert outcome(gt, row) == outcome(torch, row)


@pytest.mark.parametrize(("dtype", "lowest"), LOWEST)
def test_the_lowest_integer_by_minus_one(dtype, lowest):
    numbers = [lowest, 7, -7, 0]
    for divisor in DIVISORS:
        by = [-1, 2, -2, -1] if "2" in divisor else [-1] * 4
        quotients = [
            abs(a) // abs(b) * (1 if a * b > 0 else -1) for a, b in zip(numbers, by, strict=True)
        ]
        quotients = [lowest if q == -lowest else q for q in quotients]
        for division in DIVISIONS:
            call = division.format(f"{divisor}, rounding_mode='trunc'")
            made = eval(call, {"m": gt, "x": gt.tensor(numbers, dtype=getattr(gt, dtype))})
            assert made.tolist() == quotients, call
