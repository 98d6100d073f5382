"""Random counts: of Poisson and binomial distributions.

Each is a function of the generator's uniform numbers (gt/tensors/draws.py), so a layout changes no
value, and the number of instructions does not depend on values.
"""

import math

from gt import _core
from gt._core import Tensor, call
from gt.composite.casts import cast
from gt.composite.common import Method
from gt.composite.inplace import drawn
from gt.tensors.draws import Generator

# Halvings of the interval that contains a Poisson count: enough for counts up to 2 ** 40.
HALVINGS = 40
# Mean from which binomial counts are drawn by rejection (Hoermann's condition).
REJECTION_MEAN = 10
# Proposals for a count. For a mean of 10 or more each is accepted with a probability of at least
# 0.68 (measured; 0.87 for large means), so that all are rejected with one below 1e-12; the result
# is then the distribution's median.
PROPOSALS = 25
# Counts that are summed one by one for a mean below 10; a larger count has a probability below
# 1e-15.
SUMMED = 64


def uniform_like(self: Tensor, generator: Generator | None) -> Tensor:
    """Uniform numbers from [0, 1) in float64, with the shape and layout of `self`."""
    return drawn(cast(self.detach(), _core.float64), generator, "uniform", 0.0, 1.0)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """A Poisson count for each rate, in the rates' dtype, by inversion of the distribution
    function.

    The inverse is found by halving an interval, in float64.
    """
    from gt.tensors.aten.call import call as generic

    rate = cast(input.detach(), _core.float64)
    share = uniform_like(input, generator)
    low = rate * 0 - 1  # the largest count that is known to be too small
    high = (rate + 12 * rate.sqrt() + 40).ceil()
    for _ in range(HALVINGS):
        middle = ((low + high) / 2).floor()
        below = generic("igammac", ((middle + 1).clamp(min=1), rate), {})  # P(count <= middle)
        is_enough = (below > share) & (middle >= 0)
        low, high = call("where", is_enough, low, middle), call("where", is_enough, middle, high)
    return cast(high, input.dtype)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Number of successes in `count` trials, each of probability `prob`, in the dtype of `prob`.

    The rarer of success and failure is counted, in float64: for a mean below 10 by inversion of the
    distribution function, else by Hoermann's transformed rejection (BTRS, 1993) from 25 proposals,
    which are all rejected with a probability below 1e-12.
    """
    shape = (count + prob).shape
    n = cast(count.detach(), _core.float64).expand(shape)
    p = cast(prob.detach(), _core.float64).expand(shape)
    rarer = call("where", p > 0.5, 1 - p, p)
    is_rejecting = n * rarer >= REJECTION_MEAN
    drawn_count = call(
        "where", is_rejecting, _rejected(n, rarer, generator), _summed(n, rarer, generator)
    )
    successes = call("where", p > 0.5, n - drawn_count, drawn_count)
    return cast(call("where", p != p, p, successes), prob.dtype)  # noqa: PLR0124 - NaN stays


def _summed(n: Tensor, p: Tensor, generator: Generator | None) -> Tensor:
    """Counts of small means: the number of values of the distribution function below a uniform
    number.

    Each probability is the one before times (n - k + 1) p / (k q), so that a large `n` loses no
    digits.
    """
    k = call("arange", start=1, end=SUMMED + 1, step=1, dtype=_core.float64)  # [k]
    n_wide, p_wide = n.unsqueeze(-1), p.unsqueeze(-1)
    ratios = (n_wide - k + 1).clamp(min=0) / k * (p_wide / (1 - p_wide))
    none = (n_wide * (-p_wide).log1p()).exp()  # probability of no success: [..., 1]
    terms = none * call("cat", none * 0 + 1, ratios, dim=-1).cumprod(-1)
    passed = uniform_like(n, generator).unsqueeze(-1) >= terms.cumsum(-1)
    total = cast(call("sum", passed, dim=(-1,), keepdim=False), _core.float64)
    return call("where", total > n, n, total)


def _rejected(n: Tensor, p: Tensor, generator: Generator | None) -> Tensor:
    """Counts of larger means: the first proposal that is accepted."""
    q = 1 - p
    spread = (n * p * q).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c, v_limit, alpha = n * p + 0.5, 0.92 - 4.2 / b, (2.83 + 5.1 / b) * spread
    wide = n.expand((PROPOSALS, *n.shape))
    u = uniform_like(wide, generator) - 0.5
    v = 1 - uniform_like(wide, generator)  # (0, 1]
    us = 0.5 - u.abs()
    k = ((2 * a / us + b) * u + c).floor()
    is_possible = (k >= 0) & (k <= n)
    inside = call("where", is_possible, k, k * 0)
    median = ((n + 1) * p).floor()
    is_below = (v * alpha / (a / (us * us) + b)).log() <= _log_ratio(n, p / q, inside, median)
    is_accepted = is_possible & (((us >= 0.07) & (v <= v_limit)) | is_below)
    first = cast(is_accepted, _core.int32).argmax(0, keepdim=True)
    chosen = inside.gather(0, first).squeeze(0)
    return call("where", is_accepted.any(0), chosen, median)


def _log_ratio(n: Tensor, odds: Tensor, k: Tensor, m: Tensor) -> Tensor:
    """log of P(k) / P(m), by Stirling's formula and its tails: exact for large counts too."""
    at_m = (m + 0.5) * ((m + 1) / (odds * (n - m + 1))).log()
    at_k = (k + 0.5) * (odds * (n - k + 1) / (k + 1)).log()
    between = (n + 1) * ((k - m) / (n - k + 1)).log1p()
    return at_m + at_k + between + _tail(m) + _tail(n - m) - _tail(k) - _tail(n - k)


def _tail(count: Tensor) -> Tensor:
    """log(count!) minus Stirling's (count + 1/2) log(count + 1) - (count + 1) + log(2 pi) / 2."""
    x = count + 1
    square = x * x
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / x
    exact = x.lgamma() - ((x - 0.5) * x.log() - x + 0.5 * math.log(2 * math.pi))
    return call("where", count < 10, exact, series)


FUNCTIONS: dict[str, Method] = {"binomial": binomial, "poisson": poisson}
