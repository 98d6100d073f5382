"""Lines of backward.txt: the operators of PyTorch that give other operators' gradients.

The client reads from them which results a gradient needs (the tape saves those), the worker the
rest (gt/worker/pytorch/backward.py).
"""

import dataclasses
import functools
import pathlib
import re

_FILE = pathlib.Path(__file__).with_name("backward.txt")
_LINE = re.compile(r"(?P<overload>[\w.]+): (?P<left>[\w, ]+?) = (?P<call>.+?)( if (?P<test>.+))?")
_RESULT = re.compile(r"\bout(\d+)\b")


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """The operands that get gradients, the call that gives them, and its condition, as texts."""

    operands: tuple[str, ...]
    call: str
    condition: str

    @property
    def results(self) -> tuple[int, ...]:
        """Results of the forward operator that the call reads."""
        return tuple(sorted({int(number) for number in _RESULT.findall(self.call)}))


@functools.cache
def lines() -> dict[str, Line]:
    """Lines by overload."""
    lines_by_overload = {}
    for text in _FILE.read_text(encoding="ascii").splitlines():
        if not text.startswith("#"):
            match = _LINE.fullmatch(text)
            assert match is not None, text
            operands = tuple(match["left"].split(", "))
            lines_by_overload[match["overload"]] = Line(
                operands, match["call"], match["test"] or "True"
            )
    return lines_by_overload


def saved_results(overload: str) -> tuple[int, ...]:
    """The results that the gradient of an overload reads."""
    line = lines().get(overload)
    return () if line is None else line.results
