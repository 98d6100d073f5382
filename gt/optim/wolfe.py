"""A step length that satisfies the strong Wolfe conditions. Numbers only: no tensor is
read here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gt._core import Tensor

DECREASE, CURVATURE = 1e-4, 0.9  # constants of the two conditions, as in PyTorch
LENGTH_MIN = 1e-9  # of a bracket, in units of the parameters


@dataclass(frozen=True)
class Point:
    """A point on the line: its distance, the loss and gradient there, and both as numbers."""

    t: float
    loss: float
    slope: float  # gradient times direction
    largest: float  # largest absolute entry of the gradient
    gradient: Tensor


def search(
    evaluate: Callable[[float], Point], start: Point, t: float, longest: float, evaluations: int
) -> tuple[Point, int]:
    """The point to move to, and the number of evaluations.

    Args:
        evaluate: Function that returns the point at a distance.
        start: The point at distance 0.
        t: First distance to try.
        longest: Largest absolute entry of the direction.
        evaluations: Limit of evaluations after the first.
    """
    bracket, count, done = _bracket(evaluate, start, t, evaluations)
    low, high = _ordered(bracket)
    stuck = False
    while not done and count < evaluations and abs(high.t - low.t) * longest >= LENGTH_MIN:
        left, right = bracket
        t, stuck = _inside(interpolate(left, right), left.t, right.t, stuck=stuck)
        new = evaluate(t)
        count += 1
        if new.loss > start.loss + DECREASE * t * start.slope or new.loss >= low.loss:
            bracket = (low, new) if bracket[0] is low else (new, low)
            low, high = _ordered(bracket)
            continue
        done = abs(new.slope) <= -CURVATURE * start.slope
        other = low if not done and new.slope * (high.t - low.t) >= 0 else high
        bracket = (new, other) if bracket[0] is low else (other, new)
        low, high = new, other
    return low, count + 1


def _bracket(
    evaluate: Callable[[float], Point], start: Point, t: float, evaluations: int
) -> tuple[tuple[Point, Point], int, bool]:
    """Two points with a suitable one between them, or a suitable one twice and True."""
    before, new, count = start, evaluate(t), 0
    while count < evaluations:
        low_enough = new.loss <= start.loss + DECREASE * new.t * start.slope
        if not low_enough or (count > 1 and new.loss >= before.loss):
            return (before, new), count, False
        if abs(new.slope) <= -CURVATURE * start.slope:
            return (new, new), count, True
        if new.slope >= 0:
            return (before, new), count, False
        bounds = (new.t + 0.01 * (new.t - before.t), new.t * 10)
        before, new = new, evaluate(interpolate(before, new, bounds))
        count += 1
    return (start, new), count, False


def _ordered(bracket: tuple[Point, Point]) -> tuple[Point, Point]:
    left, right = bracket
    return (left, right) if left.loss <= right.loss else (right, left)


def _inside(t: float, left: float, right: float, *, stuck: bool) -> tuple[float, bool]:
    """`t`, moved away from the bracket's ends if it comes too close for the second time."""
    least, most = min(left, right), max(left, right)
    margin = 0.1 * (most - least)
    if min(most - t, t - least) >= margin:
        return t, False
    if not stuck and least < t < most:
        return t, True
    return (most - margin if abs(t - most) < abs(t - least) else least + margin), False


def interpolate(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Minimum of the cubic through both losses and slopes, within the bounds."""
    first, second = (a, b) if a.t <= b.t else (b, a)
    least, most = bounds or (first.t, second.t)
    width = second.t - first.t
    middle = (least + most) / 2.0
    if not width:
        return middle
    d1 = first.slope + second.slope - 3 * (first.loss - second.loss) / (first.t - second.t)
    square = d1**2 - first.slope * second.slope
    if not square >= 0:
        return middle
    d2 = math.sqrt(square)
    divisor = second.slope - first.slope + 2 * d2
    if not divisor:
        return middle
    return min(max(second.t - width * ((second.slope + d2 - d1) / divisor), least), most)
