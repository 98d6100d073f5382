"""GT's own kernels, called from C++, give every bit that they give when Python calls them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from test_aten_generic import attributes  # noqa: E402
from test_aten_rows import bits  # noqa: E402

from gt.aten.backward import lines, saved_results  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.own_calls import kernels_run  # noqa: E402
from gt.worker.pytorch import generic as torch_aten  # noqa: E402
from gt.worker.pytorch import kernels, own_kernels, products  # noqa: E402
from gt.worker.pytorch import own as torch_own  # noqa: E402

DRAWN = torch.Generator().manual_seed(3)
T, B, H = 5, 3, 8


def drawn(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size, generator=DRAWN).to(dtype)


def heads(queries: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Query, key and value of [2, 3, t, 16], by strides that a projection leaves."""
    packed = drawn(2, queries, 3, 3, 16, dtype=dtype)
    return list(packed.permute(2, 0, 3, 1, 4).unbind(0))


def gates(count: int) -> torch.Tensor:
    return drawn(T, B, count * H)


MASK = drawn(1, 1, 12, 12)
SEEDS = torch.arange(2 * 3 * 12).reshape(2, 3, 12)
# The text of an instruction, and its operands.
TAKEN = {
    "attention": (
        "attention",
        "_0, _1, _2, None, None, False, 0.0, 0.25",
        heads(12),
    ),
    "causal attention": ("attention", "_0, _1, _2, None, None, True, 0.0, 0.5", heads(40)),
    "attention with a mask": (
        "attention",
        "_0, _1, _2, _3, None, False, 0.0, 0.25",
        [*heads(12), MASK],
    ),
    "attention with dropout": (
        "attention",
        "_0, _1, _2, None, _3, False, 0.5, 0.25",
        [*heads(12), SEEDS],
    ),
    "an LSTM": (
        "lstm_layer",
        "_0, _1, _2, _3, False",
        [gates(4), drawn(B, H), drawn(B, H), drawn(4 * H, H)],
    ),
    "an LSTM from the end": (
        "lstm_layer",
        "_0, _1, _2, _3, True",
        [gates(4), drawn(H, B).t(), drawn(B, H), drawn(H, 4 * H).t()],
    ),
    "a GRU": (
        "gru_layer",
        "_0, _1, _2, _3, False",
        [gates(3), drawn(B, H), drawn(3 * H, H), drawn(3 * H)],
    ),
    "a GRU without a bias": (
        "gru_layer",
        "_0, _1, _2, None, True",
        [gates(3), drawn(B, H), drawn(3 * H, H)],
    ),
    "an Elman network": (
        "rnn_layer",
        "_0, _1, _2, False, False",
        [gates(1), drawn(B, H), drawn(H, H)],
    ),
    "one with relu": (
        "rnn_layer",
        "_0, _1, _2, True, True",
        [gates(1), drawn(B, H), drawn(H, H)],
    ),
}
# Calls left to Python: other dtypes, few queries, sizes that do not fit each other.
LEFT = {
    "float64": ("attention", TAKEN["attention"][1], heads(12, torch.float64)),
    "bfloat16": ("attention", TAKEN["attention"][1], heads(12, torch.bfloat16)),
    "few queries": ("attention", TAKEN["attention"][1], heads(7)),
    "three dimensions": ("attention", TAKEN["attention"][1], [x[0] for x in heads(12)]),
    "an LSTM of no steps": (
        "lstm_layer",
        TAKEN["an LSTM"][1],
        [drawn(0, B, 4 * H), drawn(B, H), drawn(B, H), drawn(4 * H, H)],
    ),
    "gates of another width": (
        "lstm_layer",
        TAKEN["an LSTM"][1],
        [gates(3), drawn(B, H), drawn(B, H), drawn(4 * H, H)],
    ),
    "a state of another batch": (
        "gru_layer",
        TAKEN["a GRU"][1],
        [gates(3), drawn(B + 1, H), drawn(3 * H, H), drawn(3 * H)],
    ),
    "a weight of float64": (
        "rnn_layer",
        TAKEN["an Elman network"][1],
        [gates(1), drawn(B, H), drawn(H, H, dtype=torch.float64)],
    ),
}


def in_python(overload: str, text: str, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    build, _ = torch_aten.arguments.parse(text, torch_aten.dtype_named)
    given, named = build(list(operands))
    results = torch_own.FORWARD[overload](*given, **named)
    return [results] if isinstance(results, torch.Tensor) else list(results)


def run(
    trial: Trial, row: str, operands: Sequence[torch.Tensor | None], with_attributes: list[object]
) -> list[torch.Tensor] | None:
    """Result of the helper; its kernels must have run, unless there is no result."""
    before = kernels_run()
    results = trial.run(row, [list(operands)], with_attributes)
    assert (kernels_run() > before) == (results is not None)
    return None if results is None else list(results)


@pytest.mark.parametrize("name", TAKEN)
def test_results_have_the_bits_of_python(aten_helper: Trial, name: str) -> None:  # noqa: F811
    overload, text, operands = TAKEN[name]
    with torch.inference_mode():
        expected = in_python(overload, text, operands)
        ours = run(aten_helper, "aten", operands, attributes(overload, text, [], expected))
    assert ours is not None
    assert [bits(x) for x in ours] == [bits(x) for x in expected]


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("has_all", [True, False])
def test_gradients_have_the_bits_of_python(
    aten_helper: Trial,  # noqa: F811
    name: str,
    has_all: bool,
) -> None:
    overload, text, operands = TAKEN[name]
    with torch.inference_mode():
        results = in_python(overload, text, operands)
        kept = [results[place] for place in saved_results(overload)]
        given = [torch.ones_like(results[0]), *([None] * (len(results) - 1))]
        if has_all and overload == "lstm_layer":
            given[1] = drawn(*results[1].shape)
        places = range(len(operands)) if has_all else range(1)
        wanted = [place for place in places if place < 3 or overload != "attention"]
        made = [operands[place] for place in wanted]
        stated = attributes(overload, text, [*wanted, torch_aten.END], made)
        every = [*operands, *given, *kept]
        ours = run(aten_helper, "aten_vjp", every, stated)
        expected = kernels.TORCH["aten_vjp"](every, *stated)
    assert overload in lines()
    assert ours is not None
    assert [bits(x) for x in ours] == [bits(x) for x in expected]


@pytest.mark.parametrize("name", LEFT)
def test_others_are_left_to_python(aten_helper: Trial, name: str) -> None:  # noqa: F811
    overload, text, operands = LEFT[name]
    with torch.inference_mode():
        results = [torch.empty(0)] * {"rnn_layer": 1, "lstm_layer": 3}.get(overload, 2)
        given = attributes(overload, text, [], results)
        assert run(aten_helper, "aten", operands, given) is None


PRODUCTS = {
    "matrices": (drawn(64, 64), drawn(64, 64)),
    "transposed": (drawn(100, 72).t(), drawn(192, 100).t()),
    "a batch by a matrix": (drawn(3, 40, 70), drawn(70, 80)),
    "of other strides": (drawn(3, 70, 40).transpose(1, 2), drawn(70, 160)[:, ::2]),
    "a row": (drawn(1, 512), drawn(512, 600)),
    "a narrow one": (drawn(600, 512), drawn(512, 3)),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("has_bias", [None, False, True])
def test_products_have_the_bits_of_python(
    aten_helper: Trial,  # noqa: F811
    name: str,
    has_bias: bool | None,
) -> None:
    """Products as `matmul`, and as `linear` without and with a bias."""
    left, right = PRODUCTS[name]
    bias = drawn(right.shape[1]) if has_bias else None
    before = kernels_run()
    with torch.inference_mode():
        if has_bias is None:
            expected = products.matmul(left, right)
            ours = aten_helper.run("matmul", [left, right], [])
        else:
            expected = products.linear(left, right.t(), bias)
            ours = aten_helper.run("linear", [left, right.t(), bias], [])
    assert kernels_run() == before + 2  # of Python and of the helper
    assert ours is not None
    assert bits(ours[0]) == bits(expected)
    exact = left.double() @ right.double() + (0 if bias is None else bias.double())
    torch.testing.assert_close(ours[0].double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (drawn(63, 64), drawn(64, 64)),
        (drawn(64, 64), drawn(3, 64, 64)),
        (drawn(512), drawn(512, 600)),
        (drawn(80, 80, dtype=torch.float64), drawn(80, 80, dtype=torch.float64)),
        (drawn(80, 0), drawn(0, 80)),
    ],
)
def test_other_products_are_pytorchs(
    aten_helper: Trial,  # noqa: F811
    left: torch.Tensor,
    right: torch.Tensor,
) -> None:
    before = kernels_run()
    with torch.inference_mode():
        ours = aten_helper.run("matmul", [left, right], [])
        assert ours is not None
        assert bits(ours[0]) == bits(left @ right) == bits(products.matmul(left, right))
    assert kernels_run() == before


# Input and weight of an RMS norm over the weight's dimensions, or the last one.
NORMS = {
    "rows": (drawn(6, 40), drawn(40)),
    "without a weight": (drawn(6, 40), None),
    "rows of several tasks": (drawn(150, 200), drawn(200)),
    "two dimensions": (drawn(3, 4, 5), drawn(4, 5)),
    "of other strides": (drawn(40, 6).t(), drawn(80)[::2]),
    "a row": (drawn(40), drawn(40)),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_have_the_bits_of_python(aten_helper: Trial, name: str) -> None:  # noqa: F811
    """Values and gradients, by GT's kernels in both, beside float64."""
    x, weight = NORMS[name]
    size = tuple(x.shape[-1:] if weight is None else weight.shape)
    grad, before = drawn(*x.shape[::-1]).permute(*range(x.dim() - 1, -1, -1)), kernels_run()
    with torch.inference_mode():
        out, rstd = kernels.TORCH["rms_norm"](x, weight, size, 1e-6)
        ours = aten_helper.run("rms_norm", [x, weight], [size, 1e-6])
        assert ours is not None
        saved = [grad, x, rstd, weight]
        gradients = kernels.TORCH["rms_norm_backward"](*saved, size)
        ours_of_gradients = aten_helper.run("rms_norm_backward", saved, [size])
        assert ours_of_gradients is not None
    assert kernels_run() == before + 4
    assert bits(ours) == bits((out, rstd))
    assert bits(ours_of_gradients) == bits(gradients)
    leaves = [one.double().requires_grad_() for one in (x, weight) if one is not None]
    wide = torch.nn.functional.rms_norm(leaves[0], size, *leaves[1:], eps=1e-6)
    exact = torch.autograd.grad(wide, leaves, grad.double())
    for found, one in zip((out, *gradients), (wide.detach(), *exact), strict=False):
        assert (found.double() - one).abs().max() <= 1e-6 * one.abs().max()


@pytest.mark.parametrize(
    "x",
    [drawn(6, 40).double(), drawn(6, 40).bfloat16(), drawn(0, 40), drawn(6, 0)],
    ids=["float64", "bfloat16", "no rows", "no columns"],
)
def test_other_norms_are_pytorchs(aten_helper: Trial, x: torch.Tensor) -> None:  # noqa: F811
    """ATen has no gradient on a CPU: that is left to Python."""
    size, before = x.shape[-1:], kernels_run()
    with torch.inference_mode():
        ours = aten_helper.run("rms_norm", [x, None], [tuple(size), 1e-6])
        theirs = torch.ops.aten._fused_rms_norm(x, size, None, 1e-6)
        assert ours is not None
        assert bits(ours) == bits(theirs)
        assert aten_helper.run("rms_norm_backward", [x, x, ours[1], None], [tuple(size)]) is None
    assert kernels_run() == before


def test_without_kernels_norms_are_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GT_KERNELS", "off")
    x, grad, weight = drawn(6, 40), drawn(6, 40), drawn(40)
    before = kernels_run()
    with torch.inference_mode():
        out, rstd = kernels.TORCH["rms_norm"](x, weight, (40,), 1e-6)
        gradients = kernels.TORCH["rms_norm_backward"](grad, x, rstd, weight, (40,))
    assert kernels_run() == before
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    theirs = torch.nn.functional.rms_norm(leaves[0], (40,), leaves[1], 1e-6)
    assert bits((out,)) == bits((theirs.detach(),))
    for ours, one in zip(gradients, torch.autograd.grad(theirs, leaves, grad), strict=True):
        torch.testing.assert_close(ours, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("over", "decoupled", "maximize"),
    [(0b01101, True, False), (0b01101, False, True), (0, True, True)],
)
@pytest.mark.parametrize("count", [2**17, 2**17 - 1])
def test_a_step_of_adam(
    aten_helper: Trial,  # noqa: F811
    over: int,
    decoupled: bool,
    maximize: bool,
    count: int,
) -> None:
    """Bits as Python's, values as PyTorch's; of a large parameter by GT's kernel."""
    state = [drawn(count), drawn(count), drawn(count) * 0.1, drawn(count) ** 2 * 0.01]
    numbers = [1e-3, 0.9, 0.999, 1e-8, 0.01, 7, decoupled, maximize]
    before = kernels_run()
    with torch.inference_mode():
        results = []
        for call in (aten_helper.run, None):
            given = [x.clone() for x in state]
            if call is not None:
                made = call("adamw", [*given, None], numbers, over)
                assert made is not None
            else:
                run_row = {row[0]: row[1] for row in kernels.IN_PLACE["adamw"]}
                kernel = run_row[over] if over else kernels.TORCH["adamw"]
                made = kernel(*given, None, *numbers)
            results.append([bits(x) for x in made[:3]])
            if over:
                assert made[0].data_ptr() == given[0].data_ptr()
        update = torch._fused_adamw_ if decoupled else torch._fused_adam_
        theirs = [x.clone() for x in state]
        rates = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
        lists = ([x] for x in theirs)
        step = [torch.tensor(7.0)]
        update(*lists, [], step, **rates, amsgrad=False, maximize=maximize)
        for ours, other in zip(made[:3], (theirs[0], *theirs[2:]), strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-7)
    assert results[0] == results[1]
    assert kernels_run() - before == 2 * (count >= 2**17)


@pytest.mark.parametrize("name", ["attention", "an LSTM"])
def test_a_host_may_have_more_threads_than_a_kernel_takes(
    aten_helper: Trial,  # noqa: F811
    name: str,
) -> None:
    overload, text, operands = TAKEN[name]
    before = torch.get_num_threads()
    with torch.inference_mode():
        expected = in_python(overload, text, operands)
        torch.set_num_threads(300)
        try:
            ours = run(aten_helper, "aten", operands, attributes(overload, text, [], expected))
        finally:
            torch.set_num_threads(before)
    assert ours is not None
    assert [bits(x) for x in ours] == [bits(x) for x in expected]


def test_kernels_say_from_which_size_on_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GT_KERNELS", "auto")
    with torch.inference_mode():
        left, right = torch.ones(64**3, 1), torch.ones(1, 1)
        assert own_kernels.run("matmul", left, right, None, None) is not None
        assert own_kernels.run("matmul", left[1:], right, None, None) is None
        state = [torch.ones(2**17) for _ in range(4)]
        numbers = (1e-3, 0.9, 0.999, 1e-8, 0.0, 1, True, False)
        assert own_kernels.run("adam", *state, *numbers) == ()
        assert own_kernels.run("adam", *(x[1:] for x in state), *numbers) is None
