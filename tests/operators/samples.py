"""Sample arguments for every row of ops.toml that computes: rows of (operands, attributes).

Operands stand in the row's order: `Given` for a tensor, a number, None for an absent one, a list
for a list. Attributes stand in the row's order, dtypes by name. Nothing here depends on torch or on
numpy's dtypes: whoever uses a sample makes its own tensors of it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

Number = int | float | bool
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
# The whole tensor, and a box of a larger one: its shape and the box's first index.
BOXES = ((None, None), ((7, 11), (4, 6)))


@dataclasses.dataclass(frozen=True)
class Given:
    """A tensor: its elements in full precision, and the dtype that they are rounded to."""

    values: np.ndarray
    dtype: str


Operand = Given | Number | list["Given | None"] | None


@dataclasses.dataclass(frozen=True)
class Sample:
    operands: tuple[Operand, ...] = ()
    attrs: tuple[object, ...] = ()


def given(
    *size: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0, seed: int = 0
) -> Given:
    """Even values that differ from each other: a shuffled grid from low to high."""
    count = math.prod(size)
    generator = np.random.Generator(np.random.PCG64(count * 31 + len(size) + 1000 * seed))
    grid = low + (high - low) * (generator.permutation(count) + 0.5) / max(count, 1)
    if dtype == "bool":
        grid = grid > (low + high) / 2
    elif dtype not in FLOATS:
        grid = np.floor(grid)
    return Given(np.asarray(grid).reshape(size), dtype)


def indexes(*size: int, below: int, seed: int = 0, dtype: str = "int64") -> Given:
    return given(*size, dtype=dtype, low=0, high=below, seed=seed)


def exact(values: object, dtype: str) -> Given:
    return Given(np.asarray(values), dtype)


def _unary(names: str, dtypes: tuple[str, ...], low: float, high: float) -> dict[str, list[Sample]]:
    sizes: tuple[tuple[int, ...], ...] = ((3, 4), (), (0, 3))
    rows = [
        Sample((given(*size, dtype=dtype, low=low, high=high),))
        for dtype in dtypes
        for size in sizes[: 3 if dtype == dtypes[0] else 1]
    ]
    return dict.fromkeys(names.split(), rows)


def _pairs(dtypes: tuple[str, ...], low: float, high: float) -> list[Sample]:
    rows = [
        Sample(
            (
                given(2, 3, dtype=d, low=low, high=high),
                given(2, 3, dtype=d, low=1, high=high, seed=1),
            )
        )
        for d in dtypes
    ]
    first = dtypes[0]
    a, b = given(2, 1, 4, dtype=first, low=low, high=high), given(3, 1, dtype=first, low=1, high=4)
    rows += [Sample((a, b)), Sample((a, 3)), Sample((3, b)), Sample((a, given(dtype=first, low=1)))]
    if first in FLOATS:
        mixed = [
            ("float32", "float16"),
            ("float16", "bfloat16"),
            ("float32", "int64"),
            ("uint8", "float16"),
        ]
        rows += [
            Sample((given(4, dtype=x, low=1, high=5), given(4, dtype=y, low=1, high=5, seed=2)))
            for x, y in mixed
        ]
        rows += [
            Sample((given(3, dtype="int32", low=1, high=5), 2.5)),
            Sample((a, 2.5)),
            Sample((2.5, b)),
        ]
    return rows


_ANY = (*FLOATS, *INTEGERS)
_WHOLE = (*INTEGERS, "bool")
_SPECIAL = exact([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0], "float32")


def _elementwise() -> dict[str, list[Sample]]:
    table = {
        **_unary("neg abs sign square relu floor ceil round trunc", (*FLOATS, "int64"), -3, 3),
        **_unary(
            "exp expm1 sin cos tan tanh sigmoid erf asinh sinh cosh atan",
            (*FLOATS, "int64"),
            -1.4,
            1.4,
        ),
        **_unary("asin acos atanh", FLOATS, -0.9, 0.9),
        **_unary("acosh log log1p log2 log10 sqrt rsqrt reciprocal", (*FLOATS, "int32"), 1, 9),
        **_unary("logical_not", ("float32", *_WHOLE), -1, 2),
        **_unary("bitwise_not", _WHOLE, 0, 3),
        **_unary("silu", FLOATS, -3, 3),
        **{name: [Sample((_SPECIAL,))] for name in ("isnan", "isinf", "isfinite")},
        "gelu": [
            Sample((given(3, 4, dtype=d),), (approximate,))
            for d in FLOATS
            for approximate in ("none", "tanh")
        ],
        "leaky_relu": [Sample((given(3, 4, dtype=d),), (0.1,)) for d in FLOATS],
        "elu": [Sample((given(3, 4, dtype=d),), (1.5,)) for d in FLOATS],
        "softplus": [Sample((given(3, 4, dtype=d),), (2.0, 3.0)) for d in FLOATS],
        "cast": [
            Sample((given(3, 4, dtype=x, low=-3 if x != "uint8" else 0, high=3),), (y,))
            for x, y in itertools.product((*_ANY, "bool"), (*FLOATS, "int64", "int8", "bool"))
        ],
        "sinc": [Sample((given(3, 4, dtype=d, seed=0),)) for d in (*FLOATS, "int64")]
        + [Sample((exact([0.0, -0.0, 1.0, 2.5], "float32"),))],
        "xlogy": [
            *_pairs((*FLOATS, "int64"), -3, 4),
            Sample(
                (
                    exact([0.0, 0.0, -0.0, 2.0], "float32"),
                    exact([0.0, -1.0, math.nan, 0.0], "float32"),
                )
            ),
        ],
        "binary_cross_entropy": [
            Sample(
                (
                    given(3, 4, dtype=d, low=0.0, high=1.0),
                    given(3, 4, dtype=d, low=0.0, high=1.0, seed=1),
                )
            )
            for d in FLOATS
        ],
    }
    for name in ["add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]:
        table[name] = _pairs(_ANY, -3, 4)
    for name in ["div", "floor_divide", "remainder", "fmod"]:
        table[name] = _pairs(_ANY, 1, 9)
    table["pow"] = _pairs(_ANY, 1, 3)
    table["atan2"] = _pairs((*FLOATS, "int64"), -3, 4)
    for name in ["logical_and", "logical_or", "logical_xor"]:
        table[name] = _pairs(("float32", *_WHOLE), -1, 2)
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
        table[name] = _pairs(_WHOLE, 0, 3)
    return table | _rounded() | _special() | _ternary() | _gradients()


def _rounded() -> dict[str, list[Sample]]:
    return {
        "div_rounded": [
            Sample((given(3, 4, dtype=d, low=-9, high=9), other), (mode,))
            for d in (*FLOATS, "int64", "int8")
            for other in (given(3, 4, dtype=d, low=1, high=4, seed=1), 3, -2)
            for mode in ("floor", "trunc")
        ],
        "logaddexp": [
            Sample((given(3, 4, dtype=d, seed=0), given(3, 4, dtype=d, seed=1))) for d in FLOATS
        ],
    }


def _special() -> dict[str, list[Sample]]:
    # No -0.0, nor a sign of what is no number: a sum of contributions has lost them.
    edges = exact([0.0, 2.0, math.inf, -math.inf, math.nan, 1.0, -1.0], "float32")
    others = exact([-1.0, 1.0, math.nan, 2.0, 3.0, math.nan, -math.inf], "float32")
    table = {
        **_unary("erfc", (*FLOATS, "int64"), -2, 2),
        **_unary("lgamma digamma", (*FLOATS, "int64"), 1, 9),
        **_unary("erfinv", (*FLOATS, "int64"), -0.9, 0.9),
        "polygamma": [
            Sample((given(3, 4, dtype=d, low=1, high=5),), (n,))
            for d in ("float32", "float64", "int64")
            for n in (0, 1, 2, 5)
            if (n, d) != (1, "float64")  # of which PyTorch has nine digits
        ],
        **{name: _pairs(_ANY, -3, 4) for name in ("fmax", "fmin")},
        "hypot": _pairs(FLOATS, -3, 4),
        "copysign": _pairs(_ANY, -3, 4),
        "ldexp": _pairs((*FLOATS, "int64"), 1, 4),
        "nextafter": [
            Sample((given(3, 4, dtype=x, seed=0), given(3, 4, dtype=y, seed=1)))
            for x, y in (*zip(FLOATS, FLOATS, strict=True), ("float32", "int64"))
        ],
    }
    negative = exact([-0.5, -1.5, -2.25, -1.0], "float64")
    for name in ("lgamma", "digamma"):
        table[name] = [*table[name], Sample((edges,)), Sample((negative,))]
    for name in ("erfc", "erfinv"):
        table[name] = [*table[name], Sample((edges,))]
    for name in ("fmax", "fmin", "hypot", "nextafter"):
        halves = [Given(x.values, "bfloat16") for x in (edges, others)]
        table[name] = [*table[name], Sample((edges, others)), Sample((halves[0], halves[1]))]
    return table


def _ternary() -> dict[str, list[Sample]]:
    x, y = given(2, 3), given(2, 3, seed=1)
    mask = given(2, 3, dtype="bool")
    return {
        "where": [
            Sample((mask, x, y)),
            Sample((mask, x, 2)),
            Sample((mask, 1.5, given(3, dtype="float16"))),
            Sample((given(3, dtype="bool"), given(2, 1, dtype="int32"), y)),
        ],
        "clamp": [
            Sample((x, -0.5, 0.5)),
            Sample((x, None, 0.5)),
            Sample((x, -0.5, None)),
            Sample((x, given(3, low=-1, high=0), 1)),
            Sample((given(3, dtype="int64", low=-9, high=9), -2, 3)),
            Sample((given(4, dtype="bfloat16"), given(4, dtype="bfloat16", low=-1, high=0), None)),
        ],
        "masked_fill": [Sample((given(2, 3, dtype=d), mask, 2)) for d in (*FLOATS, "int64")]
        + [Sample((x, given(3, dtype="bool"), given(seed=3)))],
        "lerp": [
            Sample((x, y, 0.25)),
            Sample((x, y, given(2, 3, low=0, high=1, seed=2))),
            Sample((given(3, dtype="float64"), given(3, dtype="float64", seed=1), 0.75)),
        ],
    }


def _gradients() -> dict[str, list[Sample]]:
    pairs = [(given(3, 4, dtype=d, seed=1), given(3, 4, dtype=d)) for d in FLOATS]
    outs = [(given(3, 4, dtype=d, seed=1), given(3, 4, dtype=d, low=0.1, high=0.9)) for d in FLOATS]
    return {
        "tanh_backward": [Sample(pair) for pair in outs],
        "sigmoid_backward": [Sample(pair) for pair in outs],
        "relu_backward": [Sample(pair) for pair in pairs],
        "gelu_backward": [
            Sample(pair, (approximate,)) for pair in pairs for approximate in ("none", "tanh")
        ],
        "silu_backward": [Sample(pair) for pair in pairs],
        "leaky_relu_backward": [Sample(pair, (0.1,)) for pair in pairs],
        "elu_backward": [Sample(pair, (1.5,)) for pair in pairs],
        "softplus_backward": [Sample(pair, (2.0, 3.0)) for pair in pairs],
    }


def _creation() -> dict[str, list[Sample]]:
    every = (*_ANY, "bool")
    return {
        "full_like": [Sample((given(2, 3),), ((2, 3), 1, d)) for d in every]
        + [Sample((given(4),), ((), 2.5, "float32"))],
        "full": [Sample((), ((2, 3), 1, d)) for d in every] + [Sample((), ((), 2.5, "float32"))],
        "arange": [
            Sample((), (0, 5, 1, "int64")),
            Sample((), (5, -5, -3, "int32")),
            Sample((), (0.0, 1.0, 0.1, "float64")),
            Sample((), (1, 2.5, 0.5, "bfloat16")),
        ],
        "eye": [Sample((), (3, 4, d)) for d in every],
        "linspace": [Sample((), (0, 1.0, 5, d)) for d in FLOATS]
        + [Sample((), (2, 2, 1, "float32"))],
        "uniform": [
            Sample((), ((3, 5), d, -1.0, 2.0, 7, 3, *box)) for d in FLOATS for box in BOXES
        ],
        "normal": [Sample((), ((3, 5), d, 0.5, 2.0, -7, 3, *box)) for d in FLOATS for box in BOXES],
        "randint": [
            Sample((), ((3, 5), d, 0, 100, 7, 3, *box))
            for d in (*INTEGERS, "float32")
            for box in BOXES
        ],
        "bernoulli": [Sample((), ((3, 5), d, 0.4, 7, 3, *box)) for d in every for box in BOXES],
        "random_like": [
            Sample((given(3, 5),), ((3, 5), d, kind, *parameters, 7, 3, *box))
            for kind, parameters, dtypes in (
                ("uniform", (-1.0, 2.0), FLOATS),
                ("normal", (0.5, 2.0), FLOATS),
                ("randint", (0, 100), (*INTEGERS, "float32")),
                ("bernoulli", (0.4, 0), every),
            )
            for d in dtypes
            for box in BOXES
        ],
        "dropout": [
            *(Sample((given(3, 5, dtype=d),), (0.25, 7, 3, *box)) for d in FLOATS for box in BOXES),
            Sample((given(3, 5),), (1.0, 7, 3, None, None)),
            Sample((given(3, 5),), (0.0, 7, 3, None, None)),
        ],
    }


def _contractions() -> dict[str, list[Sample]]:
    pairs = [
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((3, 4), (4,)),
        ((4,), (4, 2)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((3, 0), (0, 2)),
    ]
    return {
        "matmul": [Sample((given(*a), given(*b, seed=1))) for a, b in pairs]
        + [
            Sample((given(3, 4, dtype=d), given(4, 2, dtype=d, seed=1))) for d in (*FLOATS, "int64")
        ],
        "linear": [
            Sample((given(2, 3, 4), given(5, 4, seed=1), given(5, seed=2))),
            Sample((given(4), given(5, 4, seed=1), None)),
            Sample((given(3, 4, dtype="bfloat16"), given(5, 4, dtype="bfloat16", seed=1), None)),
        ],
    }


def _reductions() -> dict[str, list[Sample]]:
    x = given(2, 3, 4)
    inputs = [x, *(given(3, 4, dtype=d) for d in (*FLOATS[1:], "int64", "int32", "bool"))]
    dims: tuple[object, ...] = (None, (0,), (-1, 0), ())
    sums = [
        Sample((one,), (dim, keep, None))
        for one in inputs
        for dim, keep in zip(dims, (False, True) * 2, strict=True)
    ]
    floats = [one for one in inputs if one.dtype in FLOATS]
    means = [
        Sample((one,), (dim, keep, None))
        for one in floats
        for dim in dims[:3]
        for keep in (False, True)
    ]
    extremes = [
        Sample((one,), (dim, keep)) for one in inputs for dim in dims[:3] for keep in (False, True)
    ]
    places = [
        Sample((one,), (dim, keep))
        for one in inputs[:-1]
        for dim in (None, 0, -1)
        for keep in (False, True)
    ]
    single = [
        Sample((one,), (dim, keep))
        for one in inputs[:-1]
        for dim in (0, -1)
        for keep in (False, True)
    ]
    single += [Sample((given(),), (0, False))]
    truths = [
        Sample((one,), (dim, keep))
        for one in (given(2, 3, dtype="bool"), given(2, 3, dtype="uint8", low=0), given(2, 3))
        for dim in dims[:3]
        for keep in (False, True)
    ]
    return {
        "sum": [
            *sums,
            Sample((x,), ((1,), False, "float64")),
            Sample((given(0, 3),), ((0,), False, None)),
        ],
        "nansum": [
            *sums,
            Sample(
                (exact([[math.nan, 1.0], [math.nan, math.nan]], "float32"),), ((1,), False, None)
            ),
            Sample((x,), ((1,), False, "float64")),
        ],
        "mean": [*means, Sample((given(3, dtype="int64"),), (None, False, "float32"))],
        "prod": [
            Sample((one,), (dim, keep, None))
            for one in inputs
            for dim in (None, 0)
            for keep in (False, True)
        ],
        "amax": extremes,
        "amin": extremes,
        "argmax": places,
        "argmin": places,
        "max_dim": single,
        "min_dim": single,
        "all": truths,
        "any": truths,
        **_moments(x, floats, inputs),
        **_ordered(),
    }


def _moments(x: Given, floats: list[Given], inputs: list[Given]) -> dict[str, list[Sample]]:
    dims: tuple[object, ...] = (None, (0,), (-1, 0), ())
    spread = [
        Sample((one,), (dim, 1.0, keep))
        for one in floats
        for dim in dims[:3]
        for keep in (False, True)
    ] + [Sample((x,), ((1,), 0.0, False))]
    return {
        "var": spread,
        "std": spread,
        "logsumexp": [
            Sample((one,), (dim, keep))
            for one in floats
            for dim in dims[1:3]
            for keep in (False, True)
        ]
        + [Sample((exact([[-math.inf, -math.inf], [math.inf, 0.0]], "float32"),), ((1,), False))],
        "cumsum": [Sample((one,), (dim, None)) for one in inputs for dim in (0, -1)]
        + [Sample((given(3, dtype="int32"),), (0, "float64"))],
    }


def _ordered() -> dict[str, list[Sample]]:
    """Rows that look at the order along a dimension."""
    ties = exact([[1.0, 3.0, 3.0, 2.0], [3.0, 1.0, 1.0, 3.0], [2.0, 2.0, 4.0, 4.0]], "float32")
    holes = exact([[1.0, math.nan, 3.0], [math.nan, math.nan, 2.0]], "float32")
    inputs = [given(2, 3, 4), *(given(3, 4, dtype=d) for d in (*FLOATS[1:], "int64")), given()]
    running = [
        Sample((one,), (dim,))
        for one in (*inputs, ties, holes, given(2, 0), given(3, 4, dtype="bool"))
        for dim in (0, -1)
    ]
    infinite = exact([[-math.inf, -math.inf, 1.0], [0.0, math.inf, 2.0]], "float32")
    places = [
        Sample((one,), (dim, keep)) for one in inputs for dim in (0, -1) for keep in (False, True)
    ]
    return {
        "cummax": running,
        "cummin": running,
        "logcumsumexp": [
            Sample((one,), (dim,))
            for one in (*(x for x in inputs if x.dtype in FLOATS), infinite)
            for dim in (0, -1)
        ],
        "mode": [*places, Sample((ties,), (1, False)), Sample((ties,), (0, True))],
        "median_dim": [*places, Sample((holes,), (1, False))],
        "nanmedian_dim": [*places, Sample((holes,), (1, False)), Sample((holes,), (0, False))],
    }


def _normalizations() -> dict[str, list[Sample]]:
    rows = [Sample((given(2, 3, 4, dtype=d),), (dim, None)) for d in FLOATS for dim in (0, -1)]
    rows += [Sample((given(2, 3, dtype="int64"),), (1, "float32")), Sample((given(),), (0, None))]
    softs = [
        (given(2, 3, dtype=d, seed=1), given(2, 3, dtype=d, low=0.1, high=0.5)) for d in FLOATS
    ]
    logs = [(given(2, 3, dtype=d, seed=1), given(2, 3, dtype=d, low=-3, high=-0.1)) for d in FLOATS]
    weight, bias = given(3, 4, seed=1), given(3, 4, seed=2)
    x = given(2, 3, 4)
    stats = (given(2, 1, 1, low=-0.2, high=0.2), given(2, 1, 1, low=0.5, high=1.0))
    of_channels = (given(3, low=-0.2, high=0.2), given(3, low=0.5, high=1.0))
    return {
        "softmax": rows,
        "log_softmax": rows,
        "softmax_backward": [Sample(pair, (1,)) for pair in softs],
        "log_softmax_backward": [Sample(pair, (1,)) for pair in logs],
        "layer_norm": [
            Sample((x, weight, bias), ((3, 4), 1e-5)),
            Sample((x, None, None), ((4,), 1e-5)),
            Sample((x, given(4, seed=1), None), ((4,), 1e-3)),
        ],
        "batch_norm": [
            Sample((x, given(3, seed=1), given(3, seed=2)), (1e-5,)),
            Sample((given(5, 3, 2, 2), None, given(3, seed=2)), (1e-3,)),
            Sample((given(5, 3), None, None), (1e-5,)),
        ],
        "batch_norm_backward": [
            Sample((given(2, 3, 4, seed=3), x, *of_channels, given(3, seed=1)), ()),
            Sample((given(2, 3, 4, seed=3), x, *of_channels, None), ()),
        ],
        "layer_norm_backward": [
            Sample((given(2, 3, 4, seed=3), x, *stats, weight), ((3, 4),)),
            Sample((given(2, 3, 4, seed=3), x, *stats, None), ((3, 4),)),
        ],
        "rms_norm": [
            Sample((x, weight), ((3, 4), 1e-5)),
            Sample((x, None), ((4,), 1e-5)),
            *[
                Sample((given(2, 3, 4, dtype=d), given(4, dtype=d, seed=1)), ((4,), 1e-3))
                for d in FLOATS
            ],
        ],
        "rms_norm_backward": [
            Sample((given(2, 3, 4, seed=3), x, stats[1], weight), ((3, 4),)),
            Sample((given(2, 3, 4, seed=3), x, given(2, 3, 1, low=0.5, high=1.0), None), ((4,),)),
            Sample(
                (
                    given(2, 3, 4, dtype="bfloat16", seed=3),
                    given(2, 3, 4, dtype="bfloat16"),
                    stats[1],
                    given(3, 4, dtype="bfloat16", seed=1),
                ),
                ((3, 4),),
            ),
        ],
    }


def _memory() -> dict[str, list[Sample]]:
    x, half = given(2, 3, 4), given(2, 3, 4, dtype="bfloat16")
    return {
        "as_strided": [
            Sample((one,), attrs)
            for one in (x, half)
            for attrs in (
                ((2, 3), (1, 4), 5),
                ((3, 2), (2, 1), 0),
                ((), (), 3),
                ((0, 2), (1, 1), 0),
            )
        ],
        "conj": [Sample((one,)) for one in (x, half)],
        "bitcast": [
            Sample((given(3, 8, dtype=x, low=0, high=2),), (y,))
            for x, y in itertools.product(
                (*_ANY, "bool"), ("float32", "bfloat16", "int64", "uint8")
            )
        ]
        + [Sample((given(),), ("int32",))],
    }


def _views() -> dict[str, list[Sample]]:
    x, half = given(2, 3, 4), given(2, 3, 4, dtype="bfloat16")
    parts = (1, 0, 3, 2)
    return {
        "reshape": [
            Sample((one,), (size,)) for one in (x, half) for size in ((6, 4), (-1,), (2, -1, 2))
        ],
        "permute": [Sample((one,), ((2, 0, 1),)) for one in (x, half)],
        "expand": [
            Sample((given(3, 1),), ((2, 3, 4),)),
            Sample((given(3, 1, dtype="bfloat16"),), ((-1, 5),)),
            Sample((given(),), ((2,),)),
        ],
        "slice": [
            Sample((one,), attrs)
            for one in (x, half)
            for attrs in ((1, 0, 2, 1), (2, 1, 4, 2), (0, 0, 0, 1), (-1, -3, 9, 1))
        ],
        "select": [
            Sample((one,), attrs) for one in (x, half) for attrs in ((1, 2), (-1, -1), (0, 0))
        ]
        + [Sample((given(3, dtype="bfloat16"),), (0, 1))],
        "diagonal": [
            Sample((one,), attrs)
            for one in (x, half)
            for attrs in ((0, 0, 1), (1, 1, 2), (-1, -1, 0))
        ],
        "unfold": [
            Sample((one,), attrs)
            for one in (x, half)
            for attrs in ((2, 3, 1), (-2, 2, 2), (0, 0, 1))
        ]
        + [Sample((given(),), (0, 1, 1))],
        "slice_scatter": [
            Sample((given(2, 3, 4, dtype=d), given(2, 2, 4, dtype=d, seed=1)), parts)
            for d in FLOATS
        ],
        "select_scatter": [
            Sample((given(2, 3, 4, dtype=d), given(2, 4, dtype=d, seed=1)), (1, 2)) for d in FLOATS
        ],
        "diagonal_scatter": [
            Sample((given(3, 4, dtype=d), given(3, dtype=d, seed=1)), (1, 0, 1)) for d in FLOATS
        ],
        "flip": [Sample((one,), (dims,)) for one in (x, half) for dims in ((0,), (-1, 1))],
        "pad": [
            Sample((one,), attrs)
            for one in (x, half)
            for attrs in (((1, 2), 0.5), ((0, 1, 2, 0), -1.0), ((-1, 1), 0.0))
        ],
        "repeat": [
            Sample((one,), (repeats,)) for one in (x, half) for repeats in ((2, 1, 3), (2, 1, 1, 1))
        ],
        "cat": [
            Sample(([x, given(2, 1, 4, seed=1)],), (1,)),
            Sample(([half, half],), (-1,)),
            Sample(([given(2), given(3, dtype="float64"), given(0)],), (0,)),
            Sample(([x],), (0,)),
        ],
        "stack": [Sample(([x, x],), (0,)), Sample(([half, half, half],), (-1,))],
    }


def _indexings() -> dict[str, list[Sample]]:
    x, half = given(4, 5), given(4, 5, dtype="bfloat16")
    rows, places = indexes(3, below=4), indexes(2, 5, below=4)
    far = indexes(9, 5, below=9)  # for x as rows 3 to 6 of 9
    pairs = [(one, dtype) for one, dtype in ((x, "float32"), (half, "bfloat16"))]
    mask = given(4, dtype="bool")
    ordered = [(d, down) for d in (*FLOATS, "int64") for down in (False, True)]
    return {
        "embedding": [Sample((one, indexes(2, 3, below=4)), (None,)) for one in (x, half)]
        + [Sample((x, rows), (1,)), Sample((x, indexes(9, below=9)), (None, 3, 9))],
        "embedding_backward": [
            Sample((given(2, 3, 5), indexes(2, 3, below=4)), (4, pad)) for pad in (None, 1)
        ]
        + [Sample((given(9, 5), indexes(9, below=9)), (4, 5, 3, 9))],
        "gather": [Sample((one, places), (0,)) for one in (x, half)]
        + [Sample((x, indexes(4, 2, below=5)), (1,))]
        + [Sample((x, far), (dim, 3, 9)) for dim in (0, -2)],
        "scatter": [
            Sample((x, exact([[0, 1, 2, 3, 0]], "int64"), src), (0,))
            for src in (given(2, 5, seed=1), 2.5)
        ]
        + [Sample((x, exact([[6, 1, 2, 3, 8]], "int64"), 2.5), (dim, 3, 9)) for dim in (0, -2)],
        "scatter_add": [
            Sample((one, places, given(2, 5, dtype=d, seed=1)), (0,)) for one, d in pairs
        ]
        + [Sample((x, far, given(9, 5, seed=1)), (dim, 3, 9)) for dim in (0, -2)],
        "scatter_reduce": [
            Sample((one, places, given(2, 5, dtype=d, seed=1)), (0, reduce, counts))
            for one, d in pairs
            for reduce in ("sum", "prod", "mean", "amax", "amin")
            for counts in (False, True)
        ],
        "index_select": [Sample((one, rows), (dim,)) for one in (x, half) for dim in (0, 1)]
        + [Sample((x, indexes(9, below=9)), (dim, 3, 9)) for dim in (0, -2)],
        "index_add": [Sample((one, rows, given(3, 5, dtype=d, seed=1)), (0,)) for one, d in pairs]
        + [Sample((x, indexes(9, below=9), given(9, 5, seed=1)), (dim, 3, 9)) for dim in (0, -2)],
        "index": [
            Sample((x, [rows])),
            Sample((half, [None, rows])),
            Sample((x, [rows, indexes(3, below=5, seed=1)])),
            Sample((x, [mask])),
            Sample((given(2, 4, 5), [indexes(2, below=2), None, indexes(2, below=5)])),
            Sample((given(2, 4, 5), [indexes(9, below=2), None, indexes(9, below=9)]), (2, 3, 9)),
        ],
        "index_put": [
            Sample((one, given(3, 5, dtype=d, seed=1), [exact([2, 0, 3], "int64")]), (False,))
            for one, d in pairs
        ]
        + [
            Sample((x, given(3, 5, seed=1), [exact([2, 0, 2], "int64")]), (True,)),
            Sample((x, given(seed=1), [mask]), (False,)),
            Sample((x, given(4, seed=1), [None, exact(1, "int64")]), (False,)),
            Sample((x, given(9, 5, seed=1), [indexes(9, below=9)]), (True, 0, 3, 9)),
        ],
        "tril": [Sample((one,), (k,)) for one in (x, half) for k in (0, -1, 2)],
        "triu": [Sample((one,), (k,)) for one in (x, half) for k in (0, -1, 2)],
        "sort": [
            Sample((given(3, 7, dtype=d, low=-9, high=9),), (1, down, True)) for d, down in ordered
        ]
        + [Sample((exact([1, 0, 1, 0, 2], "int64"),), (0, down, True)) for down in (False, True)],
        "topk": [
            Sample((given(3, 7, dtype=d, low=-9, high=12),), (3, -1, top, True))
            for d in FLOATS
            for top in (True, False)
        ],
    }


def _losses() -> dict[str, list[Sample]]:
    reductions = ("none", "mean", "sum")
    scores, target, weight = (
        given(4, 5, low=-3, high=-0.1),
        indexes(4, below=5),
        given(5, low=0.5, high=2),
    )
    images, targets = given(2, 5, 3, low=-3, high=-0.1), indexes(2, 3, below=5)
    nothing = (given(0, 5, 3), indexes(0, 3, below=5), weight)  # an empty shard of a batch
    x, y = given(3, 4), given(3, 4, seed=1)

    def total(picks: Given, weights: Given | None) -> Given:
        classes = picks.values[picks.values != 2].astype(int)
        each = np.ones(5) if weights is None else weights.values.astype(np.float32)
        return exact(each[classes].sum(), "float32")

    def gradient(reduction: str, size: tuple[int, ...]) -> Given:
        return given(*(size if reduction == "none" else ()), seed=5)

    part, light = given(4, 3, low=-3, high=-0.1), given(3, low=0.5, high=2)  # classes 1 to 3
    cases = [(scores, target, weight), (scores, target, None), (images, targets, weight)]
    slopes = {each: (gradient(each, (3, 4)), x, y) for each in reductions}
    return {
        "nll_loss": [
            Sample(case, (reduction, 2)) for case in (*cases, nothing) for reduction in reductions
        ]
        + [Sample((part, target, light), (reduction, 2, 1, 5)) for reduction in reductions],
        "nll_loss_backward": [
            Sample((gradient(reduction, t.values.shape), s, t, w, total(t, w)), (reduction, 2))
            for s, t, w in (*cases, nothing)
            for reduction in reductions
        ]
        + [
            Sample(
                (gradient(reduction, (4,)), part, target, light, total(target, weight)),
                (reduction, 2, 1, 5),
            )
            for reduction in reductions
        ],
        "cross_entropy": [
            Sample(case, (reduction, 2, smoothing))
            for case in cases
            for reduction in reductions
            for smoothing in (0.0, 0.1)
        ],
        "cross_entropy_backward": [
            Sample(
                (gradient(reduction, t.values.shape), s, t, w, total(t, w)),
                (reduction, 2, smoothing),
            )
            for s, t, w in cases
            for reduction in reductions
            for smoothing in (0.0, 0.1)
        ]
        + [
            Sample(
                (gradient(reduction, (4,)), part, target, weight, total(target, weight)),
                (reduction, 2, 0.1, 1, 5),
            )
            for reduction in reductions
        ],
        "mse_loss": [Sample((x, y), (reduction,)) for reduction in reductions]
        + [Sample((given(3, dtype="bfloat16"), given(3, dtype="bfloat16", seed=1)), ("mean",))],
        "mse_loss_backward": [Sample(slopes[each], (each,)) for each in reductions],
        "smooth_l1_loss": [Sample((x, y), (reduction, 0.5)) for reduction in reductions],
        "smooth_l1_loss_backward": [Sample(slopes[each], (each, 0.5)) for each in reductions],
    }


def _updates() -> dict[str, list[Sample]]:
    param, grad, first = given(3, 4), given(3, 4, seed=1), given(3, 4, seed=2)
    second, largest = given(3, 4, low=0.01, high=1, seed=3), given(3, 4, low=0.01, high=1, seed=4)
    rates = (0.01, 0.9, 0.999, 1e-8, 0.1, 3)
    return {
        "sgd": [
            Sample((param, grad, None), (0.1, 0.0, 0.0, 0.01, False, False, True)),
            Sample((param, grad, None), (0.1, 0.9, 0.5, 0.0, False, True, True)),
            Sample((param, grad, first), (0.1, 0.9, 0.0, 0.01, True, False, False)),
            Sample((param, grad, first), (0.1, 0.9, 0.5, 0.0, False, False, False)),
        ],
        "adamw": [
            Sample((param, grad, first, second, None), (*rates, True, False)),
            Sample((param, grad, first, second, None), (*rates, False, True)),
            Sample((param, grad, first, second, largest), (*rates, True, False)),
        ],
    }


SAMPLES: dict[str, list[Sample]] = {
    **_creation(),
    **_elementwise(),
    **_contractions(),
    **_reductions(),
    **_normalizations(),
    **_views(),
    **_memory(),
    **_indexings(),
    **_losses(),
    **_updates(),
}
