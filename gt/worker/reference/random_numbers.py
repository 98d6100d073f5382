"""Random numbers in plain numpy: the same bits as gt._kernels, on any machine.

The definition is csrc/algo/random_values.h; docs/decisions/random.md says why it is so. Nothing but
numpy is imported, and nothing here is tuned: every element computes its own Philox block. Arguments
are not checked: gt._kernels does that.

numpy has no bfloat16, so the dtype name "bfloat16" gives the bits as uint16.
"""

import math

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]
UInt32s = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Values = npt.NDArray[np.generic]

_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
_NARROW = ("float32", "float16", "bfloat16")


def uniform(
    shape: tuple[int, ...],
    dtype_name: str,
    seed: int,
    draw: int,
    low: float,
    high: float,
    global_shape: tuple[int, ...],
    start: tuple[int, ...],
) -> Values:
    """Uniform values in [low, high); low where both are equal.

    Args:
        shape: The shape of the box to make. Also below.
        dtype_name: "float32", "float64", "float16" or "bfloat16" (the bits as uint16).
        seed: The generator's seed, 0 to 2^64 - 1. Also below.
        draw: Number of the generator's random instruction, 0 to 2^64 - 1. Also below.
        low: Least value; low, high and high - low are finite in the dtype.
        high: Above the largest value.
        global_shape: The shape of the tensor that the box is in. Also below.
        start: The box's first index in each dim of global_shape. Also below.
    """
    index = _global_indexes(shape, global_shape, start)
    lowest, width, below = _uniform_range(dtype_name, low, high)
    unit: Floats
    if dtype_name in _NARROW:
        words = _words(seed, draw, index)
        unit = (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    else:
        pairs = _word_pairs(seed, draw, index)
        unit = (pairs >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)
    value = lowest + unit * width
    return _narrowed(np.where(value < below, value, below), dtype_name).reshape(shape)


def normal(
    shape: tuple[int, ...],
    dtype_name: str,
    seed: int,
    draw: int,
    mean: float,
    std: float,
    global_shape: tuple[int, ...],
    start: tuple[int, ...],
) -> Values:
    """Normally distributed values.

    Args:
        dtype_name: "float32", "float64", "float16" or "bfloat16" (the bits as uint16).
        mean: Finite in float32 (in float64 for that dtype).
        std: Standard deviation, likewise finite and not negative.
    """
    index = _global_indexes(shape, global_shape, start)
    even = index & ~np.uint64(1)  # an even element and the next one share radius and angle
    is_sine = (index & np.uint64(1)) != 0
    standard: Floats
    if dtype_name in _NARROW:
        radius_words = _words(seed, draw, even)
        angle_words = _words(seed, draw, even + np.uint64(1))
        standard = _normal_float32(radius_words, angle_words, is_sine)
        value = standard * np.float32(std) + np.float32(mean)
    else:
        radius_pairs = _word_pairs(seed, draw, even)
        angle_pairs = _word_pairs(seed, draw, even + np.uint64(1))
        standard = _normal_float64(radius_pairs, angle_pairs, is_sine)
        value = standard * np.float64(std) + np.float64(mean)
    return _narrowed(value, dtype_name).reshape(shape)


def integers(
    shape: tuple[int, ...],
    dtype_name: str,
    seed: int,
    draw: int,
    low: int,
    high: int,
    global_shape: tuple[int, ...],
    start: tuple[int, ...],
) -> Values:
    """Uniform integers in [low, high), equal for both dtypes.

    Args:
        dtype_name: "int64" or "int32".
        low: Least value.
        high: One above the largest value, more than low.
    """
    pairs = _word_pairs(seed, draw, _global_indexes(shape, global_shape, start))
    offset = _high_product(pairs, np.uint64(high - low))
    value: npt.NDArray[np.int64] = (offset + np.uint64(low % 2**64)).view(np.int64)
    return value.astype(dtype_name).reshape(shape)


def bernoulli(
    shape: tuple[int, ...],
    dtype_name: str,
    seed: int,
    draw: int,
    p: float,
    global_shape: tuple[int, ...],
    start: tuple[int, ...],
) -> Values:
    """One (True) with probability p, else zero (False).

    Args:
        dtype_name: "bool", "int64", "int32" or a floating dtype, as for uniform.
        p: Probability, 0 to 1; taken in steps of 2^-32, upwards.
    """
    words = _words(seed, draw, _global_indexes(shape, global_shape, start))
    flags: Flags = words.astype(np.uint64) < np.uint64(math.ceil(p * 2.0**32))
    if dtype_name == "bfloat16":
        return _narrowed(flags.astype(np.float32), dtype_name).reshape(shape)
    return flags.astype(dtype_name).reshape(shape)


def dropout_mask(
    shape: tuple[int, ...],
    dtype_name: str,
    seed: int,
    draw: int,
    p: float,
    global_shape: tuple[int, ...],
    start: tuple[int, ...],
) -> Values:
    """False with probability p, else True; bernoulli has it the other way round.

    Args:
        dtype_name: "bool".
        p: Probability of False, as in bernoulli.
    """
    return np.logical_not(bernoulli(shape, dtype_name, seed, draw, p, global_shape, start))


def philox(block: UInt64s, seed: int, draw: int) -> UInt32s:
    """The words of Philox 4x32-10 blocks: counter (block, draw), key seed, low words first.

    Args:
        block: Indexes of blocks, [n].

    Returns:
        The words, [n, 4].
    """
    c0, c1 = block & _LOW_WORD, block >> _WORD_BITS  # words in uint64, so that products fit
    c2 = np.full_like(block, draw & 0xFFFFFFFF)
    c3 = np.full_like(block, draw >> 32)
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        product0 = np.uint64(0xD2511F53) * c0
        product1 = np.uint64(0xCD9E8D57) * c2
        c0 = (product1 >> _WORD_BITS) ^ c1 ^ np.uint64(key0)
        c1 = product1 & _LOW_WORD
        c2 = (product0 >> _WORD_BITS) ^ c3 ^ np.uint64(key1)
        c3 = product0 & _LOW_WORD
        key0 = (key0 + 0x9E3779B9) & 0xFFFFFFFF
        key1 = (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def _global_indexes(
    shape: tuple[int, ...], global_shape: tuple[int, ...], start: tuple[int, ...]
) -> UInt64s:
    """Row-major index in the global tensor of each element of the box, flat."""
    index = np.zeros((1,) * len(shape), np.uint64)
    stride = 1
    for dim in reversed(range(len(shape))):
        steps = np.arange(start[dim], start[dim] + shape[dim], dtype=np.uint64) * np.uint64(stride)
        index = index + steps.reshape([-1 if other == dim else 1 for other in range(len(shape))])
        stride *= max(global_shape[dim], 1)
    return index.reshape(-1)


def _words(seed: int, draw: int, index: UInt64s) -> UInt32s:
    """One word for each element: word index % 4 of block index / 4."""
    words = philox(index >> np.uint64(2), seed, draw)  # [n] -> [n, 4]
    which = (index & np.uint64(3)).astype(np.int64)
    chosen: UInt32s = words[np.arange(index.size), which]
    return chosen


def _word_pairs(seed: int, draw: int, index: UInt64s) -> UInt64s:
    """Two words for each element: half index % 2 of block index / 2, the first word low."""
    words = philox(index >> np.uint64(1), seed, draw).astype(np.uint64)  # [n] -> [n, 4]
    first = (index & np.uint64(1)).astype(np.int64) * 2
    rows = np.arange(index.size)
    pairs: UInt64s = words[rows, first] | (words[rows, first + 1] << _WORD_BITS)
    return pairs


def _uniform_range(dtype_name: str, low: float, high: float) -> tuple[Floats, Floats, Floats]:
    """The least value, high - low and the largest value, in the dtype of the computation."""
    wide = np.dtype(np.float32 if dtype_name in _NARROW else np.float64)
    ends = np.array([low, high]).astype(wide)
    stored = _narrowed(ends, dtype_name)
    lowest, highest = _widened(stored, dtype_name).astype(wide) + wide.type(0)
    bits = stored[1:].view(f"u{stored.itemsize}")
    below = _widened(_next_below(bits).view(stored.dtype), dtype_name).astype(wide)[0]
    return lowest, highest - lowest, lowest if lowest == highest else below


def _next_below(bits: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.unsignedinteger]:
    """Bits of the largest number below, in any IEEE type."""
    one = bits.dtype.type(1)
    sign = one << bits.dtype.type(8 * bits.itemsize - 1)
    stepped = np.where(bits & sign, bits + one, bits - one)
    below: npt.NDArray[np.unsignedinteger] = np.where(bits & ~sign, stepped, sign | one)
    return below


def _narrowed(value: Floats, dtype_name: str) -> Values:
    """Rounds to the dtype, ties to even; bfloat16 as its bits."""
    if dtype_name != "bfloat16":
        return value.astype(dtype_name)
    bits: UInt32s = value.astype(np.float32).view(np.uint32)
    tie = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: UInt32s = (bits + np.uint32(0x7FFF) + tie) >> np.uint32(16)
    return rounded.astype(np.uint16)


def _widened(value: Values, dtype_name: str) -> Values:
    """The inverse of _narrowed; it is exact."""
    if dtype_name != "bfloat16":
        return value
    bits: UInt32s = value.astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


def _high_product(a: UInt64s, b: np.uint64) -> UInt64s:
    """The high 64 bits of the 128-bit product, from four 32-bit products."""
    a0, a1 = a & _LOW_WORD, a >> _WORD_BITS
    b0, b1 = b & _LOW_WORD, b >> _WORD_BITS
    p10 = a1 * b0
    middle = a0 * b1 + (p10 & _LOW_WORD) + ((a0 * b0) >> _WORD_BITS)
    high: UInt64s = a1 * b1 + (p10 >> _WORD_BITS) + (middle >> _WORD_BITS)
    return high


def _horner(x: Floats, coefficients: list[float]) -> Floats:
    """c[0] x^n + ... + c[n], each step rounded twice: the product, then the sum."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + x.dtype.type(coefficient)
    return total


def _radius(halvings: Floats, mantissa: Floats, terms: int) -> Floats:
    """sqrt(-2 ln(2^-halvings m)), where ln(m) = 2 atanh(s) and s = (m - 1) / (m + 1)."""
    one, four = mantissa.dtype.type(1), mantissa.dtype.type(4)
    s = (mantissa - one) / (mantissa + one)
    series = _horner(s * s, [1.0 / (2 * term + 1) for term in reversed(range(terms))])
    scale = mantissa.dtype.type(1.3862943611198906)  # 2 ln 2
    radius: Floats = np.sqrt(halvings * scale - (four * s) * series)
    return radius


def _sine_and_cosine(y: Floats, sine_terms: int, cosine_terms: int) -> tuple[Floats, Floats]:
    """Taylor series for |y| <= pi / 4."""
    y2 = y * y
    sine = [(-1.0) ** k / math.factorial(2 * k + 1) for k in reversed(range(1, sine_terms))]
    cosine = [(-1.0) ** k / math.factorial(2 * k) for k in reversed(range(cosine_terms))]
    return y + (y * y2) * _horner(y2, sine), _horner(y2, cosine)


def _box_muller(
    radius: Floats, sine: Floats, cosine: Floats, quadrant: npt.NDArray[np.int64], is_sine: Flags
) -> Floats:
    """The radius times the cosine or sine of the angle, from those of its rest in a quadrant."""
    swapped = (quadrant & 1) != 0
    size = radius * np.where(swapped != is_sine, sine, cosine)
    negative = np.where(is_sine, quadrant & 2, (quadrant + 1) & 2) != 0
    return np.where(negative, -size, size)


def _normal_float32(radius_words: UInt32s, angle_words: UInt32s, is_sine: Flags) -> Floats:
    t = ((radius_words >> np.uint32(1)) | np.uint32(1)).astype(np.float32)  # u = t / 2^31
    sqrt_half = np.uint32(0x3F3504F3)
    shifted = t.view(np.uint32) + (np.uint32(0x3F800000) - sqrt_half)
    halvings = (31 + 127 - (shifted >> np.uint32(23)).astype(np.int32)).astype(np.float32)
    mantissa = ((shifted & np.uint32(0x7FFFFF)) + sqrt_half).view(np.float32)
    radius = _radius(halvings, mantissa, 5)
    fraction = (angle_words << np.uint32(2)).view(np.int32).astype(np.float32)
    sine, cosine = _sine_and_cosine(fraction * np.float32(math.pi / 2 * 2.0**-32), 5, 5)
    quadrant = (angle_words >> np.uint32(30)).astype(np.int64)
    return _box_muller(radius, sine, cosine, quadrant, is_sine)


def _normal_float64(radius_pairs: UInt64s, angle_pairs: UInt64s, is_sine: Flags) -> Floats:
    t = (radius_pairs >> np.uint64(12)).astype(np.float64) + 0.5  # u = t / 2^52
    sqrt_half = np.uint64(0x3FE6A09E667F3BCD)
    shifted = t.view(np.uint64) + (np.uint64(0x3FF0000000000000) - sqrt_half)
    halvings = (52 + 1023 - (shifted >> np.uint64(52)).astype(np.int64)).astype(np.float64)
    mantissa = ((shifted & np.uint64(0xFFFFFFFFFFFFF)) + sqrt_half).view(np.float64)
    radius = _radius(halvings, mantissa, 11)
    fraction = ((angle_pairs << np.uint64(2)) >> np.uint64(12)).astype(np.float64) - 2.0**51
    sine, cosine = _sine_and_cosine(fraction * (math.pi / 2 * 2.0**-52), 8, 9)
    quadrant = (angle_pairs >> np.uint64(62)).astype(np.int64)
    return _box_muller(radius, sine, cosine, quadrant, is_sine)
