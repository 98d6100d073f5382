"""The kernels of recurrent layers: values and gradients on every path, for odd sizes too."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from kernel_module import on_every_path  # noqa: E402

import gt  # noqa: E402
from gt.worker.own_calls import kernels_run  # noqa: E402
from gt.worker.pytorch import own_kernels, recurrent  # noqa: E402

kernels = pytest.importorskip("gt._kernels")

KINDS = ("lstm", "gru", "tanh", "relu")
# Steps, rows and units: of one vector and beside it, blocks of rows and what is left.
SIZES = [(1, 1, 1), (3, 2, 7), (64, 1, 33), (5, 15, 16), (64, 3, 65), (2, 9, 32)]
GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that a kernel does not write are NaN."""

    def nan(like: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
        return torch.full(size, float("nan"), dtype=like.dtype)

    monkeypatch.setattr(torch.Tensor, "new_empty", nan)
    monkeypatch.setattr(torch, "empty_like", lambda value: nan(value, value.shape))


def _numbers(*size: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.from_numpy(np.random.Generator(np.random.PCG64(seed)).uniform(-1, 1, size)) * scale


def _layer(kind: str, given: list[torch.Tensor], reverse: bool) -> tuple[torch.Tensor, ...]:
    """Result of the worker's function; `given` is gates, hidden, weight, cell and bias."""
    gates, hidden, weight, cell, bias = given
    if kind == "lstm":
        return recurrent.lstm_layer(gates, hidden, cell, weight, reverse)
    if kind == "gru":
        return recurrent.gru_layer(gates, hidden, weight, bias, reverse)
    return (recurrent.rnn_layer(gates, hidden, weight, kind == "relu", reverse),)


def _layer_backward(
    kind: str,
    given: list[torch.Tensor],
    made: tuple[torch.Tensor, ...],
    grads: list[torch.Tensor],
    reverse: bool,
) -> tuple[torch.Tensor, ...]:
    _, hidden, weight, cell, _ = given
    if kind == "lstm":
        return recurrent.lstm_layer_backward(*grads, hidden, cell, weight, *made, reverse)
    if kind == "gru":
        return recurrent.gru_layer_backward(grads[0], hidden, weight, *made, reverse)
    is_relu = kind == "relu"
    return recurrent.rnn_layer_backward(grads[0], hidden, weight, *made, is_relu, reverse)


@functools.cache
def _given(kind: str, size: tuple[int, int, int]) -> list[torch.Tensor]:
    t, b, h = size
    n = GATES[kind]
    return [
        _numbers(t, b, n * h, seed=1, scale=3),
        _numbers(b, h, seed=2),
        _numbers(n * h, h, seed=3, scale=h**-0.5),
        _numbers(b, h, seed=4),
        _numbers(n * h, seed=5),
    ]


def _run(
    kind: str, given: list[torch.Tensor], grads: list[torch.Tensor], reverse: bool
) -> list[torch.Tensor]:
    with torch.inference_mode():
        made = _layer(kind, given, reverse)
        return [*made, *_layer_backward(kind, given, made, grads, reverse)]


def _single(values: list[torch.Tensor]) -> list[torch.Tensor]:
    return [x.float() for x in values]


def _close(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=3e-6 * float(b.abs().max()))


@pytest.mark.usefixtures("kernel_path", "poisoned")
@pytest.mark.parametrize(
    ("kind", "size", "reverse"), list(itertools.product(KINDS, SIZES, (False, True)))
)
def test_values_and_gradients(kind: str, size: tuple[int, int, int], reverse: bool) -> None:
    """Against the operators of torch in float64, which the kernels do not take."""
    given = _given(kind, size)
    grads = [_numbers(*size, seed=6), _numbers(*size, seed=7)]
    before = kernels_run()
    expected = _run(kind, given, grads, reverse)
    assert kernels_run() == before
    found = _run(kind, _single(given), _single(grads), reverse)
    assert kernels_run() == before + 2
    _close(found, expected)


@on_every_path
def test_sigmoid_and_tanh() -> None:
    """A GRU of one step and no state is both: within a few units of the last place, everywhere."""
    size = 4099
    x = torch.cat([_numbers(size - 5, seed=1, scale=30) ** 3 / 900, torch.zeros(5)])
    x[-5:] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    gates = x.float().repeat(3).reshape(1, 1, 3 * size)
    x = gates[0, 0, :size].double()
    weight = torch.zeros(3 * size, 1).expand(3 * size, size)
    with torch.inference_mode():
        _, made = recurrent.gru_layer(gates, torch.zeros(1, size), weight, None, False)
    for got, expected in (
        (made[0, 0, :size], x.sigmoid()),
        (made[0, 0, 2 * size : -size], x.tanh()),
    ):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=5e-7, atol=1e-37)


@on_every_path
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_the_batch(kind: str) -> None:
    """Bits: a cut of the batch, and its place among the others, changes nothing."""
    size = (6, 11, 21)
    given, grads = _single(_given(kind, size)), _single([_numbers(*size, seed=s) for s in (6, 7)])

    def rows(value: torch.Tensor, begin: int, end: int) -> torch.Tensor:
        return value[..., begin:end, :].clone()

    def run(begin: int, end: int) -> list[torch.Tensor]:
        gates, hidden, weight, cell, bias = given
        part = [rows(gates, begin, end), rows(hidden, begin, end), weight, rows(cell, begin, end)]
        return _run(kind, [*part, bias], [rows(g, begin, end) for g in grads], False)

    whole = run(0, 11)
    for begin, end in ((0, 1), (1, 4), (4, 11)):
        for got, all_rows in zip(run(begin, end), whole, strict=True):
            if got.shape[-2:-1] == (end - begin,):
                assert torch.equal(got, rows(all_rows, begin, end))


@on_every_path
@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_no_bit(kind: str) -> None:
    size = (40, 13, 130)
    given, grads = _single(_given(kind, size)), _single([_numbers(*size, seed=s) for s in (6, 7)])
    before = torch.get_num_threads()
    made = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        made.append(_run(kind, given, grads, False))
    torch.set_num_threads(before)
    for one, three in zip(*made, strict=True):
        assert torch.equal(one, three)


@pytest.mark.skipif("avx512" not in kernels.paths(), reason="no AVX-512")
@pytest.mark.parametrize("kind", KINDS)
def test_paths_that_fuse_give_the_same_bits(kind: str) -> None:
    size = (6, 11, 21)
    given, grads = _single(_given(kind, size)), _single([_numbers(*size, seed=s) for s in (6, 7)])
    made = []
    for name in ("avx2", "avx512"):
        kernels.set_path(name)
        made.append(_run(kind, given, grads, False))
    kernels.set_path("auto")
    assert all(torch.equal(one, other) for one, other in zip(*made, strict=True))


def test_arrays_that_are_not_contiguous() -> None:
    size = (4, 3, 5)
    for kind in KINDS:
        given, grads = _given(kind, size), [_numbers(*size, seed=6), _numbers(*size, seed=7)]
        strange = [x.float().mT.contiguous().mT if x.ndim > 1 else x.float() for x in given]
        expanded = [g[:, :1].expand(size) for g in grads]
        _close(_run(kind, strange, _single(expanded), True), _run(kind, given, expanded, True))


def test_what_the_kernels_do_not_take() -> None:
    gates, hidden, weight = torch.zeros(2, 3, 4), torch.zeros(3, 4), torch.zeros(4, 4)

    def takes(gates: object, hidden: object) -> bool:
        return own_kernels.run("rnn_layer", gates, hidden, weight, False, False) is not None

    assert takes(gates, hidden)
    assert not takes(gates, torch.zeros(3, 4, requires_grad=True))
    for other in (hidden.double(), hidden.bfloat16(), hidden.to("meta"), hidden[:0], hidden[0]):
        assert not takes(gates, other)
    for other in (gates.double(), gates[:0], gates[:, :2], gates[..., :3], None, 1, (2, 3)):
        assert not takes(other, hidden)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", range(5))
def test_operands_that_do_not_fit(kind: str, place: int) -> None:
    """No kernel reads beyond an operand that is too small: torch's operators refuse it."""
    given = _single(_given(kind, (3, 4, 5)))
    grads = [torch.ones(3, 4, 5), torch.ones(3, 4, 5)]
    made = _layer(kind, given, False)
    if (place == 3 and kind != "lstm") or (place == 4 and kind != "gru"):
        return  # has none
    cut = [x[..., :-1].contiguous() if place == at else x for at, x in enumerate(given)]
    with torch.inference_mode(), pytest.raises(RuntimeError, match=r"must match|size|shape"):
        _layer(kind, cut, False)
    if place in {1, 2, 3}:
        with torch.inference_mode(), pytest.raises(RuntimeError, match=r"match|cat|size|shape"):
            _layer_backward(kind, cut, made, grads, False)


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="'sse9' is not available here"):
        kernels.set_path("sse9")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("size", [(0, 1, 2), (0, 2)])
def test_no_steps(kind: str, size: tuple[int, ...]) -> None:
    words = "Expected sequence length to be larger than 0 in RNN"
    for library in (torch, gt):
        with pytest.raises(RuntimeError, match=words):
            getattr(library.nn, kind)(2, 3)(library.zeros(*size))
