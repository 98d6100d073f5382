"""Special functions for numpy, which has none: number by number, from math and by series."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gt.worker.reference.values import Array, Bfloat16, cast, promotion, widened

Floats = npt.NDArray[np.floating]

# From this argument on the asymptotic series has all digits of float64.
_LARGE = 15.0
# Coefficients B(2k) / (2k)!, with Bernoulli's numbers.
_BERNOULLI = [
    number / math.factorial(2 * k)
    for k, number in enumerate(
        [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510], start=1
    )
]


def _each(function: Callable[[float], float], x: Floats) -> Floats:
    return np.asarray(np.vectorize(function, otypes=[np.float64])(x), dtype=x.dtype)


def erfc(x: Floats) -> Floats:
    """1 - erf(x)."""
    return _each(math.erfc, x)


def lgamma(x: Floats) -> Floats:
    """log(abs(gamma(x))), infinite at zero and at negative integers."""
    return _each(_lgamma, x)


def _lgamma(x: float) -> float:
    is_pole = math.isinf(x) or (x <= 0 and x == math.floor(x))
    return math.inf if is_pole else math.lgamma(x)


def digamma(x: Floats) -> Floats:
    """The derivative of lgamma."""
    return _each(_digamma, x)


def _digamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, -x)
    if math.isinf(x) or math.isnan(x):
        return x if x > 0 else math.nan
    if x < 0:
        if x == math.floor(x):
            return math.nan
        return _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    below = 0.0
    while x < _LARGE:
        below -= 1 / x
        x += 1
    series = sum(
        b * math.factorial(2 * k - 1) / x ** (2 * k) for k, b in enumerate(_BERNOULLI, start=1)
    )
    return below + math.log(x) - 1 / (2 * x) - series


def polygamma(x: Floats, n: int) -> Floats:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x)."""
    if n == 0:
        return digamma(x)
    sign = 1.0 if n % 2 else -1.0
    return _each(lambda v: sign * math.factorial(n) * _zeta(n + 1, v), x)


def _zeta(s: int, x: float) -> float:
    """Hurwitz's zeta: the sum of (x + k)^-s, by Euler and Maclaurin once x + k is large."""
    if math.isnan(x) or math.isinf(x):
        return 0.0 if x > 0 else math.nan
    if x <= 0 and x == math.floor(x):
        return math.inf
    total = 0.0
    while x < _LARGE:
        total += x**-s
        x += 1
    total += x ** (1 - s) / (s - 1) + x**-s / 2
    rising = float(s)  # s (s + 1) ... (s + 2k - 2)
    for k, b in enumerate(_BERNOULLI, start=1):
        total += b * rising * x ** (1 - s - 2 * k)
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    return total


def erfinv(x: Floats) -> Floats:
    """The number whose erf is x."""
    return _each(_erfinv, x)


def _erfinv(x: float) -> float:
    if math.isnan(x) or abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    # Winitzki's approximation, then Newton's steps on the smaller one of erf and 1 - erf.
    log = math.log1p(-x * x)
    half = 2 / (math.pi * 0.147) + log / 2
    y = math.copysign(math.sqrt(math.sqrt(half * half - log / 0.147) - half), x)
    for _ in range(4):
        far = math.copysign(1.0, y) * (math.erfc(abs(y)) - (1 - abs(x)))
        error = far if abs(x) > 0.5 else x - math.erf(y)
        y += error * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return y


def nextafter(x: Array, y: Array) -> Array:
    """The next number after x toward y, in their common dtype."""
    name = promotion((x, y))
    x, y = np.broadcast_arrays(cast(x, name), cast(y, name), subok=True)
    if name != "bfloat16":
        return np.asarray(np.nextafter(x, y))
    here, there, bits = widened(x), widened(y), np.asarray(x)
    away = (there > here) == (here > 0)
    moved = np.where(here == 0, np.where(there > 0, 1, 0x8001), bits + np.where(away, 1, -1))
    out = np.where(here == there, np.asarray(y), moved.astype(np.uint16))
    return np.where(np.isnan(here + there), 0x7FC0, out).astype(np.uint16).view(Bfloat16)
