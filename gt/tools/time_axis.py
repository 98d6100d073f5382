"""Places of times on a line, with round ticks; long waits between instructions are left out.

Otherwise a second of data loading would squeeze everything else into one place.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

BREAK_WIDTH = 14.0
BREAKS_MAX = 8
BREAK_AT = 12  # times the median wait
BREAK_SHARE = 0.2  # share of the drawn time; a shorter wait is drawn in full
TICK_DISTANCE_MIN = 90.0
ROUND = (1, 2, 5)
RESOLUTION = 1e-6  # resolution of a log's times; equal times are drawn at one place
FINER_MAX = 9  # reductions to finer ticks, for a short segment between two breaks


class TimeAxis:
    """Horizontal positions of times between two ends; linear except for breaks.

    Args:
        times: Seconds of day, in the order of a log; a step back counts as no time.
        left: Position of the first time.
        right: Position of the last time.
    """

    def __init__(self, times: Sequence[float], left: float, right: float) -> None:
        waits = [max(after - before, 0.0) for before, after in itertools.pairwise(times)]
        self._elapsed = list(itertools.accumulate(waits, initial=0.0))
        self.seconds = self._elapsed[-1]
        """Seconds from the first time to the last."""
        cut = _longest(waits)
        drawn = sum(wait for place, wait in enumerate(waits) if place not in cut)
        self._scale = (right - left - BREAK_WIDTH * len(cut)) / max(drawn, RESOLUTION)
        self.places = [left]
        """Position of each time."""
        self.breaks: list[tuple[float, float]] = []
        """Place and seconds of each break."""
        for place, wait in enumerate(waits):
            if place in cut:
                self.breaks.append((self.places[-1], wait))
            width = BREAK_WIDTH if place in cut else wait * self._scale
            self.places.append(self.places[-1] + width)
        self._cut = sorted(cut)

    def ticks(self, letter_width: float) -> Iterator[tuple[float, str]]:
        """Places of round times, with their milliseconds as text, spaced so that texts do not
        overlap.
        """
        step = _round_step(TICK_DISTANCE_MIN / self._scale)
        free = -math.inf
        for first, last in self._segments():
            for seconds, unit in _round_times(self._elapsed[first], self._elapsed[last], step):
                x = self.places[first] + (seconds - self._elapsed[first]) * self._scale
                text = _milliseconds(seconds, unit)
                half = letter_width * len(text) / 2
                if x - half > free:
                    free = x + half + letter_width
                    yield x, text

    def _segments(self) -> Iterator[tuple[int, int]]:
        """The first and last time of each segment between two breaks."""
        firsts = [0, *(place + 1 for place in self._cut)]
        yield from zip(firsts, [*self._cut, len(self._elapsed) - 1], strict=True)


def _longest(waits: Sequence[float]) -> set[int]:
    """Waits to leave out: much longer than usual, and a large share of the drawn time."""
    drawn, cut = sum(waits), set()
    usual = sorted(waits)[len(waits) // 2] if waits else 0.0
    for place in sorted(range(len(waits)), key=lambda one: -waits[one])[:BREAKS_MAX]:
        wait = waits[place]
        if wait <= max(BREAK_SHARE * drawn, BREAK_AT * usual) or drawn - wait < RESOLUTION:
            break
        cut.add(place)
        drawn -= wait
    return cut


def _round_step(seconds: float) -> float:
    """The next larger of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next((power * one for one in ROUND if power * one >= seconds), power * 10)


def _round_times(start: float, end: float, step: float) -> Iterator[tuple[float, float]]:
    """Multiples of `step` from start to end, with the step; of a finer one where there is none."""
    for _ in range(FINER_MAX):
        first, last = math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9)
        if first <= last:
            yield from ((number * step, step) for number in range(first, last + 1))
            return
        step = _round_step(step / 3)  # 5 to 2, 2 to 1, 1 to 0.5


def _milliseconds(seconds: float, step: float) -> str:
    if seconds == 0:
        return "0"
    decimals = max(0, -math.floor(math.log10(step * 1e3) + 1e-9))
    return f"{seconds * 1e3:,.{decimals}f}"
