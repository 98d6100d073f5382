"""Numbers that programs hardly ever have, each beside PyTorch: the values or the error's class."""

import numpy as np
import pytest
import torch

import gt

X = "T.arange(12.).reshape(3, 4)"
PAST_64_BITS = ("2**63", "-2**63 - 1", "2**64", "2**100")
INDICES = (
    *(f"[{number}]" for number in (*PAST_64_BITS, "2**64 - 1", "nan", "-inf", "1e30", "1j", "1.5")),
    *("[-1.9]", "[0, 1.7]", "[[1.5, 0]]", "[True, 0.0, 1.0]", "[0, 2**63]", "[2**63, 1.5]"),
    *("[object()]", "[np.float32(1.5)]", "[np.uint64(2**63)]", "[np.uint8(1), 0]", "[np.int32(1)]"),
    *(
        "np.array([1.5])",
        "np.array([1j])",
        "np.array([[0, 2]], dtype='uint16')",
        "np.uint64(2**63)",
    ),
    *("np.array([2**63], dtype='uint64')", "[[True, 1.0]]", "[True, False, True]", "[]", "[[]]"),
)
LOOKUPS = [
    f"{x}[{places.format(index)}]"
    for x, places in (("T.arange(3.)", "{}"), ("x", ":2, {}"), ("x", "..., {}, None"))
    for index in INDICES
] + [f"put(T.zeros(3), {index})" for index in INDICES]
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


OF_FLOATS = [
    "x + {}", "{} + x", "x - {}", "{} - x", "x * {}", "x / {}", "{} / (x + 1)", "x // {}", "x % {}",
    "x ** {}", "{} ** x", "x == {}", "x != {}", "x < {}", "{} <= x", "x > {}", "x >= {}",
    "T.clamp(x, {})", "x.clamp(max={})", "T.where(x > 1, x, {})", "T.where(x > 1, {}, x)",
    "x.masked_fill(x > 1, {})", "x.clone().fill_({})", "x.clone().add_({})", "x.clone().mul_({})",
    "T.add(x, 1, alpha={})", "T.add(x, {}, alpha=2)", "T.fmod(x, {})",
    "T.remainder(x, {})", "T.eq(x, {})", "T.lerp(x, x, {})", "T.addcmul(x, x, x, value={})",
    "T.full((2,), {}, dtype=x.dtype)", "T.full_like(x, {})", "x.new_full((2,), {})",
    "T.full((2,), {})", "x.long().fill_({})", "T.full_like(x.long(), {})", "x[0].fill_({})",
    "x.clone().__setitem__(0, {})", "T.linspace(0, {}, 3)", "T.floor_divide(x, {})",
    "T.nn.functional.layer_norm(x, (4,), eps={})", "T.nn.functional.normalize(x, eps={})",
    "T.nn.functional.cosine_similarity(x, x, eps={})", "T.nn.functional.leaky_relu(x, {})",
    "T.nn.functional.huber_loss(x, x + 1, delta={})", "T.isclose(x, x, rtol={})",
    "T.addmm(x[:, :3], x[:, :3], x[:, :3], beta={})", "x.double() + {}", "(x * 1j) * {}",
]  # fmt: skip
DIMS = [
    f"x.{function}({name}={dims})"
    for dims in ("(0, True)", "(True, 0)", "[1, False]", "(0, 2**63)", "(0, -(2**63))", "2**63")
    for function, name in (
        (f, "dim") for f in ("sum", "mean", "amax", "any", "all", "logsumexp", "nansum")
    )
] + ["x.view(2**63, -1)", "x.expand(2**63, 3, 4)", "x.permute(1, False)", "x.reshape(4, True, 3)"]


def put(x, index):
    x[index] = 1.0
    return x


def seen(library, expression):
    names = {"T": library, "np": np, "put": put, "inf": float("inf"), "nan": float("nan")}
    names["x"] = eval(X, names)
    try:
        value = eval(expression, names)
        return str(value.dtype).split(".")[-1], value.detach().numpy()
    except Exception as error:  # noqa: BLE001 - whichever it is
        return error


@pytest.mark.parametrize("expression", [*BOUNDS, *LISTS, *NORMAL, *PADS, *DIMS, *LOOKUPS])
@pytest.mark.filterwarnings("ignore")
def test_as_pytorch(expression):
    ours, theirs = seen(gt, expression), seen(torch, expression)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (ours, theirs)
        return
    assert isinstance(ours, tuple), ours
    assert ours[0] == theirs[0]
    np.testing.assert_array_equal(ours[1], theirs[1])


@pytest.mark.parametrize("number", ["2**63", "2**63 + 1025", "2**64 - 1", "2**63 - 1"])
@pytest.mark.parametrize("expression", OF_FLOATS)
@pytest.mark.filterwarnings("ignore")
def test_a_large_integer_beside_floats(expression, number):
    expression = expression.format(f"({number})")
    ours, theirs = seen(gt, expression), seen(torch, expression)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (ours, theirs)
        return
    assert isinstance(ours, tuple), ours
    assert ours[0] == theirs[0]
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)


def test_gradients_beside_a_large_integer():
    grads = []
    for library in (gt, torch):
        x = library.tensor([1.0, 2.0], requires_grad=True)
        (x * 2**63 + 2**63 / x - x / 2**63).sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-6)


def test_integers_refuse_a_number_that_they_do_not_hold():
    """PyTorch wraps it around."""
    x = gt.arange(3)
    for expression in ("x + 2**63", "x < 2**64 - 1", "2**63 * x", "x.clamp(max=2**63)"):
        with pytest.raises(RuntimeError, match="type int64_t without overflow"):
            eval(expression, {"x": x})
