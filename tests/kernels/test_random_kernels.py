"""The random kernels give the reference's bits on every path, and the right distributions."""

import functools
import itertools
import math
import re

import numpy as np
import pytest
from kernel_module import load_kernels, load_reference, on_every_path

SEED, DRAW = 0x299F31D0_A4093822, 0x03707344_13198A2E  # digits of pi
FLOATING = ("float32", "float64", "float16", "bfloat16")

kernels, reference = load_kernels(), load_reference()


def _made(name, shape, dtype_name, values, *, whole=None, start=None, **options):
    """A new array filled by the kernel; by default a whole tensor."""
    options = {"seed": SEED, "draw": DRAW, "threads": 1} | options
    out = np.empty(shape, "uint16" if dtype_name == "bfloat16" else dtype_name)
    out.fill(1)  # poison: an element that nobody fills shows
    whole = list(whole or shape)
    start = list(start or [0] * len(shape))
    seed, draw = options["seed"], options["draw"]
    function = getattr(kernels, name)
    function(out, seed, draw, *values, whole, start, threads=options["threads"])
    return out


def _check(name, shape, dtype_name, values, *, whole=None, start=None, **options):
    """The kernel's bits are the reference's."""
    values_made = _made(name, shape, dtype_name, values, whole=whole, start=start, **options)
    whole = tuple(whole or shape)
    start = tuple(start or [0] * len(shape))
    seed, draw = options.get("seed", SEED), options.get("draw", DRAW)
    expected = getattr(reference, name)(shape, dtype_name, seed, draw, *values, whole, start)
    assert (values_made.dtype, values_made.shape) == (expected.dtype, expected.shape)
    same = values_made.tobytes() == expected.tobytes()
    assert same, (name, shape, dtype_name, values, options, whole, start)


CASES = [
    *(("uniform", dtype_name, (0.0, 1.0)) for dtype_name in FLOATING),
    *(("uniform", dtype_name, (-3.1, 7.3)) for dtype_name in FLOATING),
    *(("uniform", dtype_name, (1.0, 1.01)) for dtype_name in FLOATING),  # few values in 16 bits
    *(("uniform", dtype_name, (-1.0, -0.0)) for dtype_name in FLOATING),
    *(("uniform", dtype_name, (2.5, 2.5)) for dtype_name in FLOATING),
    ("uniform", "float16", (0.0, 1e-6)),  # below float16's normal range
    *(("normal", dtype_name, (0.0, 1.0)) for dtype_name in FLOATING),
    *(("normal", dtype_name, (-0.7, 2.3)) for dtype_name in FLOATING),
    ("normal", "float16", (0.0, 1e-6)),
    ("normal", "float32", (5.0, 0.0)),
    *(("integers", dtype_name, (-5, 12)) for dtype_name in ("int64", "int32")),
    *(("integers", dtype_name, (-(2**31), 2**31)) for dtype_name in ("int64", "int32")),
    ("integers", "int64", (-(2**63), 2**63 - 1)),
    ("integers", "int64", (2**62, 2**62 + 10**12)),
    *(("bernoulli", name, (0.3,)) for name in ("bool", "int64", "int32", *FLOATING)),
    *(("bernoulli", "bool", (p,)) for p in (0.0, 1e-12, 0.5, 1.0 - 2.0**-33, 1.0)),
    *(("dropout_mask", "bool", (p,)) for p in (0.0, 0.1, 1.0)),
]


# Published with Random123 (kat_vectors, "philox4x32 10"): block, draw, seed, words.
KNOWN_ANSWERS = [
    (0, 0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (2**64 - 1, 2**64 - 1, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (0x85A308D3_243F6A88, DRAW, SEED, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]


@on_every_path
@pytest.mark.parametrize(("block", "draw", "seed", "words"), KNOWN_ANSWERS)
def test_known_answers(block, draw, seed, words):
    assert reference.philox(np.array([block], np.uint64), seed, draw).tolist() == [words]
    for lane in range(32):  # every lane of every vector; the block's index wraps
        out = np.empty((33, 4), np.uint32)
        kernels.philox(out, seed, draw, (block - lane) % 2**64)
        assert out[lane].tolist() == words, lane


@on_every_path
@pytest.mark.parametrize("blocks", [1, 7, 32, 33, 256, 257, 1000])
def test_words_equal_reference(blocks):
    first = 2**32 - 20  # both words of the index change
    out = np.empty((blocks, 4), np.uint32)
    kernels.philox(out, SEED, DRAW, first)
    expected = reference.philox(np.arange(first, first + blocks, dtype=np.uint64), SEED, DRAW)
    assert np.array_equal(out, expected)


@on_every_path
@pytest.mark.parametrize(("name", "dtype_name", "values"), CASES)
def test_equals_reference(name, dtype_name, values):
    for size in (0, 1, 2, 3, 5, 31, 64, 1023, 1024, 1025, 5003):
        _check(name, (size,), dtype_name, values)
    _check(name, (), dtype_name, values)
    _check(name, (3, 0, 2), dtype_name, values)
    _check(name, (7, 11, 13), dtype_name, values, seed=2**64 - 1, draw=2**64 - 1)


@on_every_path
@pytest.mark.parametrize(("name", "dtype_name", "values"), CASES)
def test_box_equals_reference(name, dtype_name, values):
    whole = (9, 5, 37)
    for shape, start in [
        ((9, 5, 37), (0, 0, 0)),
        ((4, 5, 37), (3, 0, 0)),
        ((9, 2, 37), (0, 3, 0)),
        ((9, 5, 1), (0, 0, 36)),
        ((9, 5, 21), (0, 0, 7)),
        ((2, 3, 5), (7, 2, 31)),
        ((0, 3, 5), (9, 2, 31)),
    ]:
        _check(name, shape, dtype_name, values, whole=whole, start=start)


@on_every_path
def test_index_beyond_32_bits():
    whole = (2**31, 2**31)
    for start in [(0, 2**31 - 9), (2, 2**30 + 1), (2**31 - 3, 2**31 - 9)]:
        for name, dtype_name, values in CASES:
            _check(name, (3, 9), dtype_name, values, whole=whole, start=start)


@on_every_path
@pytest.mark.parametrize(("name", "dtype_name", "values"), CASES)
def test_long_array_equals_reference(name, dtype_name, values):
    for threads in (1, 2):
        _check(name, (131, 1009), dtype_name, values, threads=threads)


@on_every_path
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize(("shape", "start"), [((300_001,), (5,)), ((1000, 299), (1, 2))])
def test_threads_change_nothing(threads, shape, start):
    whole = [size + 7 for size in shape]
    for name, dtype_name, values in CASES:
        one = _made(name, shape, dtype_name, values, whole=whole, start=start)
        many = _made(name, shape, dtype_name, values, whole=whole, start=start, threads=threads)
        assert one.tobytes() == many.tobytes(), (name, dtype_name, values)


@pytest.mark.parametrize(("name", "dtype_name", "values"), CASES)
def test_boxes_make_the_whole(name, dtype_name, values):
    whole = (13, 29)
    expected = _made(name, whole, dtype_name, values)
    for dim, cuts in [(0, [0, 1, 1, 6, 13]), (1, [0, 2, 13, 28, 29])]:
        shards = []
        for begin, end in itertools.pairwise(cuts):
            shape = tuple(end - begin if d == dim else size for d, size in enumerate(whole))
            start = tuple(begin if d == dim else 0 for d in range(2))
            shards.append(_made(name, shape, dtype_name, values, whole=whole, start=start))
        assert np.concatenate(shards, dim).tobytes() == expected.tobytes(), dim


@pytest.mark.parametrize(("name", "dtype_name", "values"), CASES)
def test_torch_tensor_is_filled_in_place(name, dtype_name, values):
    torch = pytest.importorskip("torch")
    out = torch.zeros((17, 19), dtype=getattr(torch, dtype_name))
    getattr(kernels, name)(out, SEED, DRAW, *values, [17, 19], [0, 0])
    expected = _made(name, (17, 19), dtype_name, values)
    bits = f"int{8 * expected.itemsize}"
    assert np.array_equal(out.view(getattr(torch, bits)).numpy(), expected.view(bits))


def test_seed_and_draw_change_the_words():
    samples = {
        _made("integers", (8,), "int64", (0, 2**62), seed=seed, draw=draw).tobytes()
        for seed in (0, 1, 2**32, 2**63)
        for draw in (0, 1, 2**32, 2**63)
    }
    assert len(samples) == 16


# ---- distributions: fixed seeds, so that nothing here fails by chance ----

COUNT = 2_000_000


@functools.cache
def _sample(name, dtype_name, values):
    sample = _made(name, (COUNT,), dtype_name, values, seed=3, draw=5)
    return sample.astype(np.float64)


def _kolmogorov_smirnov(sample, cumulative):
    """sqrt(n) times the largest distance of both functions: above 1.95 once in 1000 samples."""
    probability = cumulative(np.sort(sample))
    steps = np.arange(sample.size + 1) / sample.size
    distance = max(np.max(probability - steps[:-1]), np.max(steps[1:] - probability))
    return distance * math.sqrt(sample.size)


def _normal_cumulative(values):
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values.tolist()])


@pytest.mark.parametrize("dtype_name", ["float32", "float64"])
def test_uniform_distribution(dtype_name):
    sample = _sample("uniform", dtype_name, (0.0, 1.0))
    assert 0 <= sample.min() < 1e-5
    assert 1 - 1e-5 < sample.max() < 1
    assert abs(sample.mean() - 0.5) < 4 * math.sqrt(1 / 12 / COUNT)
    assert abs(sample.var() - 1 / 12) < 1e-4
    assert _kolmogorov_smirnov(sample, lambda x: x) < 1.95


@pytest.mark.parametrize("dtype_name", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1.0, 1.001), (-1e3, 1000.1), (-1.0, 0.0)])
def test_uniform_stays_below_high(dtype_name, low, high):
    kind = np.dtype(dtype_name).type
    sample = _sample("uniform", dtype_name, (low, high))
    assert kind(low) <= sample.min()
    assert sample.max() < kind(high)


def test_uniform_bfloat16_has_no_bias():
    bits = _made("uniform", (COUNT,), "bfloat16", (0.0, 1.0))
    sample = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    assert sample.max() == 1 - 2**-8
    assert abs(sample.mean() - 0.5) < 4 * math.sqrt(1 / 12 / COUNT)


@pytest.mark.parametrize("dtype_name", ["float32", "float64"])
def test_normal_distribution(dtype_name):
    sample = _sample("normal", dtype_name, (0.0, 1.0))
    assert np.isfinite(sample).all()
    for power, (moment, variance) in {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96)}.items():
        assert abs((sample**power).mean() - moment) < 4 * math.sqrt(variance / COUNT), power
    for edge in (1.0, 2.0, 3.0, 4.0):  # tails, each side
        expected = COUNT * 0.5 * math.erfc(edge / math.sqrt(2))
        for tail in (np.sum(sample > edge), np.sum(sample < -edge)):
            assert abs(tail - expected) < 4 * math.sqrt(expected), edge
    assert _kolmogorov_smirnov(sample[:500_000], _normal_cumulative) < 1.95


@pytest.mark.parametrize("dtype_name", ["float32", "float64"])
def test_neighbours_are_independent(dtype_name):
    sample = _sample("normal", dtype_name, (0.0, 1.0))
    for lag in (1, 2, 3, 4, 8):
        for left, right in [(sample, sample), (sample**2 - 1, sample**2 - 1)]:
            scale = (left**2).mean()
            correlation = (left[:-lag] * right[lag:]).mean() / scale
            assert abs(correlation) < 4 / math.sqrt(COUNT), lag


def test_normal_of_a_box_has_mean_and_std():
    sample = _sample("normal", "float16", (3.0, 0.5))
    assert abs(sample.mean() - 3) < 4 * 0.5 / math.sqrt(COUNT)
    assert abs(sample.std() - 0.5) < 1e-3


@pytest.mark.parametrize("size", [2, 10, 1000])
def test_integers_distribution(size):
    sample = _sample("integers", "int64", (-4, size - 4)).astype(np.int64) + 4
    counts = np.bincount(sample, minlength=size)
    expected = COUNT / size
    chi_squared = np.sum((counts - expected) ** 2 / expected)
    assert counts.size == size
    assert abs(chi_squared - (size - 1)) < 4 * math.sqrt(2 * (size - 1))


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_bernoulli_distribution(p):
    ones = _sample("bernoulli", "bool", (p,)).sum()
    count = _sample("dropout_mask", "bool", (p,)).sum()
    assert abs(ones - COUNT * p) < 4 * math.sqrt(COUNT * p * (1 - p))
    assert ones + count == COUNT


@pytest.mark.parametrize(("p", "dtype_name"), [(0.0, "float32"), (1.0, "float32"), (1.0, "bool")])
def test_certain_bernoulli(p, dtype_name):
    assert set(_sample("bernoulli", dtype_name, (p,))) == {p}


# The values nearest to where a logarithm or a square root could go wrong.
@pytest.mark.parametrize("dtype_name", ["float32", "float64"])
def test_every_word_gives_a_finite_normal(dtype_name):
    bits = 32 if dtype_name == "float32" else 64
    edges = [0, 1, 2, 3, 2 ** (bits - 2), 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1]
    radius = np.array([word for word in edges for _ in edges], f"u{bits // 8}")
    angle = np.array(edges * len(edges), f"u{bits // 8}")
    function = reference._normal_float32 if bits == 32 else reference._normal_float64
    for is_sine in (False, True):
        values = function(radius, angle, np.full(radius.shape, is_sine))
        assert np.isfinite(values).all()
        assert np.abs(values).max() < (6.6 if bits == 32 else 8.6)


@pytest.mark.parametrize("dtype_name", ["float32", "float64"])
def test_normal_is_accurate(dtype_name):
    """Our series against numpy's logarithm and cosine in float64."""
    index = np.arange(0, 200_000, 2, dtype=np.uint64)
    sample = _made("normal", (200_000,), dtype_name, (0.0, 1.0)).astype(np.float64)
    if dtype_name == "float32":
        words = reference._words(SEED, DRAW, index)
        radius = (words >> 1 | 1).astype(np.float32).astype(np.float64) / 2.0**31
        angle = reference._words(SEED, DRAW, index + np.uint64(1))
        quadrant = angle >> 30
        fraction = (angle << np.uint32(2)).view(np.int32) / 2.0**32
    else:
        radius = ((reference._word_pairs(SEED, DRAW, index) >> np.uint64(12)) + 0.5) / 2.0**52
        angle = reference._word_pairs(SEED, DRAW, index + np.uint64(1))
        quadrant = angle >> np.uint64(62)
        rest = (angle << np.uint64(2)) >> np.uint64(12)
        fraction = (rest.astype(np.float64) - 2.0**51) / 2.0**52
    turns = (quadrant.astype(np.float64) + fraction) * (math.pi / 2)
    expected = np.sqrt(-2 * np.log(radius)) * np.stack([np.cos(turns), np.sin(turns)])
    error = np.abs(sample.reshape(-1, 2).T - expected)
    assert error.max() < (2e-6 if dtype_name == "float32" else 4e-15)


# ---- mistakes ----


def _array(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


def _zeros(dtype):
    return _array(4, dtype=dtype)


# An array that does not fit: function, array, values, error, text.
WRONG_ARRAYS = [
    ("uniform", _array(4, 6)[:, ::2], (0, 1), ValueError, "strides [6, 2] is not C-contiguous"),
    ("uniform", _array(4, 6).T, (0, 1), ValueError, "not C-contiguous"),
    ("uniform", _zeros("int64"), (0, 1), TypeError, "uniform: out has dtype int64"),
    ("uniform", _zeros("complex64"), (0, 1), TypeError, "64 bits"),
    ("normal", _zeros("bool"), (0, 1), TypeError, "normal: out has dtype bool"),
    ("integers", _zeros("float32"), (0, 1), TypeError, "integers: out has dtype float32"),
    ("bernoulli", _zeros("uint32"), (0.5,), TypeError, "bernoulli: out has dtype uint32"),
    ("dropout_mask", _zeros("float32"), (0.5,), TypeError, "dropout_mask: out has dtype float32"),
]


@pytest.mark.parametrize(("name", "out", "values", "error", "text"), WRONG_ARRAYS)
def test_wrong_array(name, out, values, error, text):
    with pytest.raises(error, match=re.escape(text)):
        getattr(kernels, name)(out, 1, 2, *values, list(out.shape), [0] * out.ndim)


# A box of shape [4] that does not fit: global_shape, start, text.
WRONG_BOXES = [
    ([4, 1], [0, 0], "out [4], global_shape [4, 1] and start [0, 0] differ in rank"),
    ([4], [], "start [] differ in rank"),
    ([-4], [0], "global_shape [-4] is negative in dim 0"),
    ([4], [-1], "start [-1] does not lie in global_shape [4] in dim 0"),
    ([8], [5], "out [4] at start [5] does not lie"),
    ([8], [2**63 - 1], "does not lie"),
]


@pytest.mark.parametrize(("whole", "start", "text"), WRONG_BOXES)
def test_wrong_box(whole, start, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        kernels.uniform(_array(4), 1, 2, 0, 1, whole, start)


def test_global_tensor_too_large():
    with pytest.raises(ValueError, match="2\\^63 elements or more"):
        kernels.uniform(_array(1, 1), 1, 2, 0, 1, [2**32, 2**31], [0, 0])
    with pytest.raises(TypeError, match="incompatible function arguments"):
        kernels.uniform(_array(1), 1, 2, 0, 1, [2**63], [0])
    kernels.uniform(_array(1, 0), 1, 2, 0, 1, [2**63 - 1, 2**63 - 1], [0, 0])  # nothing to index


# Parameters that do not fit: function, dtype, values, text.
WRONG_VALUES = [
    ("uniform", "float32", (2, 1), "low 2 is not at most high 1"),
    ("uniform", "float32", (math.nan, 1), "low nan"),
    ("uniform", "float32", (0, 1e39), "must be finite in float32"),
    ("uniform", "float32", (-3e38, 3e38), "must be finite in float32"),
    ("uniform", "float64", (-1e308, 1e308), "must be finite in float64"),
    ("uniform", "float16", (0, 65520), "must be finite in float16"),
    ("uniform", "uint16", (0, 3.4e38), "must be finite in bfloat16"),
    ("normal", "float32", (0, -1), "std -1"),
    ("normal", "float32", (math.inf, 1), "mean inf"),
    ("normal", "float32", (0, 1e39), "must be finite in float32"),
    ("normal", "float64", (0, math.nan), "std nan"),
    ("integers", "int64", (3, 3), "low 3 is not less than high 3"),
    ("integers", "int32", (0, 2**31 + 1), "do not fit int32"),
    ("bernoulli", "float32", (1.5,), "bernoulli: p 1.5 is not in [0, 1]"),
    ("dropout_mask", "bool", (math.nan,), "dropout_mask: p nan is not in [0, 1]"),
]


@pytest.mark.parametrize(("name", "dtype_name", "values", "text"), WRONG_VALUES)
def test_wrong_values(name, dtype_name, values, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        getattr(kernels, name)(_zeros(dtype_name), 1, 2, *values, [4], [0])


def test_not_an_array():
    with pytest.raises(TypeError, match="out is a list, not an array"):
        kernels.uniform([0.0], 1, 2, 0, 1, [1], [0])


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_wrong_threads(threads):
    with pytest.raises(ValueError, match=f"threads {threads} is not in"):
        kernels.uniform(_array(4), 1, 2, 0, 1, [4], [0], threads=threads)


def test_read_only_array():
    out = _array(4)
    out.flags.writeable = False
    with pytest.raises(TypeError, match="out is a ndarray, not an array that can be used"):
        kernels.uniform(out, 1, 2, 0, 1, [4], [0])


def test_unknown_path():
    with pytest.raises(ValueError, match="'sse9' is not available here, choose from auto, scalar"):
        kernels.set_path("sse9")


def test_too_many_dims():
    torch = pytest.importorskip("torch")
    out = torch.zeros([1] * 65)
    with pytest.raises(ValueError, match="out has 65 dims, at most 64"):
        kernels.uniform(out, 1, 2, 0, 1, [1] * 65, [0] * 65)


def test_philox_array():
    with pytest.raises(TypeError, match="is not uint32 with a multiple of 4 elements"):
        kernels.philox(_array(6, dtype="uint32"), 1, 2, 0)
