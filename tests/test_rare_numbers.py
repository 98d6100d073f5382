"""Numbers that programs hardly ever have, each beside PyTorch: the values or the error's class."""

import numpy as np
import pytest
import torch

import gt

X = "T.arange(12.).reshape(3, 4)"
PAST_64_BITS = ("2**63", "-2**63 - 1", "2**64", "2**100")
BOUNDS = [
    f"T.nn.functional.{function}"
    for function in (
        *(f"hardtanh(x, {low}, {high})" for low in ("nan", "-1", "inf") for high in ("nan", "1")),
        "hardtanh(x.half(), nan, 1)",
        "hardtanh(x, -1, inf)",
        *(f"huber_loss(x, x + 1, delta={delta})" for delta in ("nan", "inf", "0", "-1")),
        *(f"smooth_l1_loss(x, x + 1, beta={beta})" for beta in ("nan", "0", "-1")),
        *(f"rrelu(x, {lower}, 1)" for lower in ("nan", "-inf", "2")),
        *(f"rrelu(x, 0, {upper})" for upper in ("nan", "inf", "-1")),
        "rrelu(x - 5, 0, inf, training=True)",
    )
]
LISTS = [
    form.format(number)
    for number in PAST_64_BITS
    for form in (
        "T.tensor([{}])",
        "T.tensor([1, {}])",
        "T.tensor([[1, {}]])",
        "T.tensor([[{}], [True]])",
        "T.tensor([1, {}], dtype=T.int64)",
        "T.tensor([1, {}], dtype=T.bool)",
        "T.tensor([1, {}], dtype=T.float64)",
        "T.tensor([1.5, {}])",
        "T.tensor([1j, {}])",
        "T.as_tensor([1, {}])",
        "x.new_tensor([1, {}])",
        "T.LongTensor([1, {}])",
        "T.FloatTensor([1, {}])",
    )
]
NORMAL = [
    form.format(mean, std)
    for mean, std in (("inf", 1), ("-inf", 1), ("nan", 1), ("inf", 0), ("1e300", 1), ("0", "nan"))
    for form in (
        "x.clone().normal_({}, {})",
        "x.double().normal_({}, {}).isfinite()",
        "x.half().normal_({}, {})",
        "T.normal({}, {}, (2,))",
        "x.clone().log_normal_({}, {}).isnan()",
        "T.nn.init.normal_(x.clone(), {}, {})",
    )
] + ["x.clone().normal_(0, inf).isinf()", "x.clone().normal_(inf, -1)"]
PADS = [
    f"T.nn.functional.pad(x, ({before}, {after}), mode='replicate')"
    for before, after in (("2**63 - 1", 0), (0, "2**62"), ("2**62", "2**62"), (70_000, 3), (2, -1))
]


def seen(library, expression):
    names = {"T": library, "inf": float("inf"), "nan": float("nan")}
    names["x"] = eval(X, names)
    try:
        value = eval(expression, names)
        return str(value.dtype).split(".")[-1], value.detach().numpy()
    except Exception as error:  # noqa: BLE001 - whichever it is
        return error


@pytest.mark.parametrize("expression", [*BOUNDS, *LISTS, *NORMAL, *PADS])
@pytest.mark.filterwarnings("ignore")
def test_as_pytorch(expression):
    ours, theirs = seen(gt, expression), seen(torch, expression)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (ours, theirs)
        return
    assert isinstance(ours, tuple), ours
    assert ours[0] == theirs[0]
    np.testing.assert_array_equal(ours[1], theirs[1])
