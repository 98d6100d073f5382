"""Operators over lists of tensors, `_foreach_*`: values, writes, gradients and errors beside torch.

A row is a name and its arguments after the list, as text: `L` is another list of the same shapes,
`S` a list of numbers, `T` a tensor of them.
"""

import re

import pytest
import torch

import gt
from gt import foreach

NUMBERS = ["2", "2.5", "S", "L", "L[:1]", "S[:1]", "'x'", "None", "[L[0], 1]"]
SCALED = [*NUMBERS, "T[0]", "T", "L, alpha=3"]
FACTORS = ["L, L", "L, L, 2", "L, L, value=2.5", "L, L, S", "L, L, T", "L, L, T[:1]", "L, L[:1]",
           "L, L, T[0]", "L, L, value=T[0]", "L, L, S[:1]", "L"]  # fmt: skip
EXTREMES = [*NUMBERS, "T[0]"]
NORMS = ["", "1", "3.0", "float('inf')", "0", "dtype=m.float64", "2, m.float64", "'x'"]
FORMS = {
    **dict.fromkeys(("sub", "mul", "div"), SCALED),
    "add": [*SCALED, "2, alpha=3", "T[0], alpha=2"],
    **dict.fromkeys(("clamp_max", "clamp_min", "maximum", "minimum", "pow"), EXTREMES),
    **dict.fromkeys(("addcdiv", "addcmul"), FACTORS),
    "lerp": ["L, 0.5", "L, S", "L, L", "L[:1], 0.5", "L, S[:1]", "L, T[0]", "L"],
    **dict.fromkeys(("norm", "powsum"), NORMS),
    "mm": ["L", "[x.mT for x in L]", "L[:1]"],
    "clone": ["", "memory_format=m.preserve_format"],
    "copy": ["L", "L[:1]", "L, True", "[x.double() for x in L]"],
}  # fmt: skip
ALWAYS = ["", "1, 2, 3"]
DTYPES = ["float32", "float64", "int64", "bool", "complex64"]
NAMES = [name for name in dir(torch) if name.startswith("_foreach_")]


def lists(m, dtype, shift):
    values = [[[0.5 + shift, -1.5], [2.0, 3.25]], [[1.25], [shift]]]
    return [m.tensor(value).to(getattr(m, dtype)) for value in values]


def outcome(m, name, form, dtype, *, grad=False):
    """Result, contents of the list, and gradients of a call; or class and text of its error."""
    leaves = [x.requires_grad_(grad) for x in lists(m, dtype, 0.25)]
    x = [leaf * 1 for leaf in leaves] if grad and name.endswith("_") else leaves
    names = {
        "m": m, "x": x, "L": lists(m, dtype, 1.5), "S": [2, 0.5], "T": m.tensor([2.0, 0.5]),
    }  # fmt: skip
    try:
        returned = eval(f"m.{name}(x, {form})", names)
        kept = returned is x, type(returned), values(returned), values(x)
        if grad and all(y.requires_grad for y in returned):
            sum(y.abs().sum() for y in returned).backward()
            kept += (values([leaf.grad for leaf in leaves]),)
    except Exception as error:  # noqa: BLE001 - whichever it is, it is compared
        kind = next(c for c in type(error).__mro__ if c.__module__ == "builtins").__name__
        return kind, told(error)
    return kept


def told(error):
    """The text but for the list of signatures and the operands that GT names behind it."""
    return re.split(r"expected one of:|; | The historic", str(error))[0].casefold()


def values(tensors):
    return [x if x is None else (str(x.dtype)[-5:], x.detach().tolist()) for x in tensors]


def assert_same(ours, theirs, title):
    if isinstance(ours, float | complex) and isinstance(theirs, float | complex):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6, nan_ok=True), title
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs), (title, ours, theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other, title)
    else:
        assert ours == theirs, title


def test_every_name_is_there():
    assert sorted(foreach.NAMES) == NAMES
    assert not hasattr(gt, "_foreach_zzz")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")  # of complex casts
@pytest.mark.parametrize("name", NAMES)
def test_values_writes_and_errors(name):
    forms = FORMS.get(name.removeprefix("_foreach_").removesuffix("_"), [""])
    for form in [*forms, *ALWAYS]:
        for dtype in DTYPES:
            title = f"{name}({form}) of {dtype}"
            assert_same(outcome(gt, name, form, dtype), outcome(torch, name, form, dtype), title)


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name):
    forms = FORMS.get(name.removeprefix("_foreach_").removesuffix("_"), [""])
    for form in [form for form in forms if form != "0"]:  # of a norm: None there, here zeros
        theirs = outcome(torch, name, form, "float64", grad=True)
        if "derivative for" in str(theirs):  # GT has it: each operator of the loop has one
            continue
        assert_same(outcome(gt, name, form, "float64", grad=True), theirs, f"{name}({form})")


@pytest.mark.parametrize("arguments", ["", "[]", "[1]", "m.ones(2)", "1", "[m.ones(0)]"])
@pytest.mark.parametrize("name", ["abs", "abs_", "add_", "max", "norm", "zero_", "mm"])
def test_lists_that_are_none(name, arguments):
    def said(m):
        try:
            return values(eval(f"m._foreach_{name}({arguments})", {"m": m}))
        except (TypeError, RuntimeError) as error:
            return told(error)

    assert said(gt) == said(torch)


def test_a_leaf_refuses_before_anything_is_written():
    tensors = [gt.ones(2), gt.ones(2, requires_grad=True)]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        gt._foreach_add_(tensors, 1)
    assert tensors[0].tolist() == [1, 1]
    with gt.no_grad():
        gt._foreach_add_(tensors, 1)
    assert tensors[1].tolist() == [2, 2]


def test_numbers_before_a_list():
    for m in (gt, torch):
        assert [x.tolist() for x in m._foreach_pow(2, [m.tensor([1.0, 3.0])])] == [[2, 8]]
