"""Chains of elementwise operators in one pass over memory: values, broadcasting, mistakes."""

import itertools
import operator

import numpy as np
import pytest
from kernel_module import on_every_path

from gt import _kernels

FUNCTIONS = {
    "neg": lambda x: -x,
    "abs": np.abs,
    "square": lambda x: x * x,
    "reciprocal": lambda x: np.float32(1) / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "relu": lambda x: np.where(x < 0, np.float32(0), x),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "relu_backward": lambda grad, out: np.where(out <= 0, np.float32(0), grad),
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "where": np.where,
    "copy": lambda x: x,
}
UNARY, BINARY = [*list(FUNCTIONS)[:7], "copy"], list(FUNCTIONS)[7:18]
# Blocks of 2,048 elements and tasks of 16,384: below, at and beyond; rows of few elements.
SIZES = [(1,), (17,), (2048,), (2049,), (16385,), (3, 5000), (700, 33), (2, 20000), (4, 5, 64)]
POISON = np.float32(7777)

pytestmark = on_every_path


def drawn(*size, seed=0):
    made = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38], np.float32)
    flat = made.reshape(-1)
    flat[: min(len(edges), flat.size)] = edges[: flat.size]
    return made


def one_by_one(steps):
    made = None
    with np.errstate(all="ignore"):
        for name, *operands in steps:
            given = [made if one is None else one for one in operands]
            given = [np.float32(one) if isinstance(one, (int, float)) else one for one in given]
            made = FUNCTIONS[name](*given).astype(np.float32)
    return made


def check(steps, size, threads=1, over=None):
    expected = one_by_one(steps)
    room = np.full(int(np.prod(size)) + 2, POISON)
    out = room[1:-1].reshape(size) if over is None else over
    assert _kernels.fitting_chain(out, steps, len(steps), threads) == len(steps)
    assert room[0] == room[-1] == POISON
    missing = np.isnan(expected)
    assert np.array_equal(np.isnan(out), missing)
    assert np.array_equal(out.view(np.int32)[~missing], expected.view(np.int32)[~missing])


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_operator_over_every_form_of_operand(size, threads):
    x, y = drawn(*size), drawn(*size, seed=1)
    columns = [drawn(*size[:-1], 1, seed=3)] if len(size) > 1 else []
    others = [y, drawn(size[-1], seed=2), *columns, drawn(1), 0.3, -2]
    for name in UNARY:
        check([("mul", x, y), (name, None), ("sub", 1.5, None)], size, threads)
    for name, other in itertools.product(BINARY, others):
        check([("add", x, 1), (name, None, other)], size, threads)
        check([(name, other, x), ("mul", None, None)], size, threads)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_choices_and_other_elements(size):
    x, y = drawn(*size), drawn(*size, seed=1)
    masks = [drawn(*size, seed=4) > 0, drawn(size[-1], seed=5) > 0, np.array([True])]
    for mask in masks:
        for other in (y, drawn(size[-1]), 0.5):
            check([("neg", x), ("where", mask, None, other), ("add", None, 1)], size)
            check([("where", mask, other, x)], size)
        check([("mul", x, mask)], size)
        check([("where", mask, 0.25, 4), ("add", None, x)], size)
    for kind in (np.int32, np.int64):
        info = np.iinfo(kind)
        whole = np.random.default_rng(2).integers(info.min, info.max, size, kind)
        out = np.empty(size, np.float32)
        _kernels.chain(out, [("copy", whole)])
        assert np.array_equal(out, whole.astype(np.float32))
        _kernels.chain(out, [("add", whole, x)])
        with np.errstate(invalid="ignore"):
            assert np.array_equal(out, whole.astype(np.float32) + x, equal_nan=True)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_bools_as_results(size):
    x, y = drawn(*size), drawn(*size, seed=1)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        for other in (y, x, drawn(size[-1]), 0.0):
            room = np.full(int(np.prod(size)) + 2, 7, np.uint8)
            out = room[1:-1].view(bool).reshape(size)
            _kernels.chain(out, [("abs", x), (name, None, other)])
            with np.errstate(invalid="ignore"):
                assert np.array_equal(out, FUNCTIONS[name](np.abs(x), other))
            assert set(np.unique(room[1:-1])) <= {0, 1}
            assert room[0] == room[-1] == 7


def test_leading_dimensions_are_rows():
    x = drawn(6, 5, 400)
    check([("sub", x, drawn(6, 5, 1)), ("mul", None, drawn(400)), ("add", None, 2)], x.shape)
    check([("sub", x, drawn(6, 1, 1)), ("mul", None, drawn(5, 400))], x.shape)
    check([("sub", x, drawn(1, 1, 1)), ("neg", None)], x.shape)


def test_over_its_first_operand():
    x = drawn(50, 300)
    check([("mul", x, 2.0), ("relu", None), ("sub", drawn(300), None)], x.shape, over=x)


def test_how_many_steps_fit():
    x = drawn(6, 40)
    out = np.empty_like(x)

    def fitting(*steps):
        return _kernels.fitting_chain(out, [("neg", x), *steps])

    assert fitting(("add", None, drawn(6, 1)), ("add", None, drawn(40)), ("neg", None)) == 4
    # Other rows, other shapes, other memory, other elements.
    assert fitting(("neg", None), ("add", None, drawn(6, 2))) == 2
    assert fitting(("add", None, drawn(1, 6, 40))) == 1
    assert fitting(("add", None, drawn(6, 80)[:, ::2])) == 1
    assert fitting(("add", None, drawn(40, 6).T)) == 1
    assert fitting(("add", None, x.astype(np.float64))) == 1
    assert fitting(*[("neg", None)] * 20) == 16
    assert _kernels.fitting_chain(out, [("neg", None)]) == 0
    assert _kernels.fitting_chain(out.T, [("neg", x.T)]) == 0
    assert _kernels.fitting_chain(np.empty((0, 4), np.float32), [("neg", 1.0)]) == 0
    # A condition is of bools; nothing is of float16.
    assert fitting(("where", x, None, 1)) == 1
    assert fitting(("where", None, x, 1)) == 1
    assert fitting(("add", None, np.ones((6, 40), np.float16))) == 1
    assert _kernels.fitting_chain(np.empty((6, 40), np.int32), [("neg", x)]) == 0
    rows = drawn(6, 5, 40)
    long = np.empty_like(rows)
    two = [("add", rows, drawn(40)), ("add", None, drawn(5, 40))]
    assert _kernels.fitting_chain(long, two) == 1
    assert _kernels.fitting_chain(long, [("add", rows, drawn(5, 1))]) == 0


@pytest.mark.parametrize(
    ("steps", "error", "text"),
    [
        ([("sinh", drawn(4))], ValueError, "chain: it has no operator sinh"),
        ([("neg", drawn(4), 1)], ValueError, "chain: neg has 1 operands"),
        ([("add", drawn(4))], ValueError, "chain: add has 2 operands"),
        ([("neg", drawn(4)), ("add", None, drawn(5))], ValueError, "of 2 steps 1 fit"),
        ([], ValueError, "of 0 steps 0 fit"),
        ([("neg", "four")], TypeError, "an operand"),
        ([("neg", drawn(4))] * 17, ValueError, "of 17 steps 16 fit"),
    ],
)
def test_mistakes(steps, error, text):
    out = np.full(4, POISON)
    with pytest.raises(error, match=text):
        _kernels.chain(out, steps)
    assert (out == POISON).all()
