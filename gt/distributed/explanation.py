"""`gt.explain`: where a tensor is, why, what moved for it, and what that cost."""

from dataclasses import dataclass

from gt import _core
from gt._core import Tensor

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """What the dispatcher knows of a tensor's place; `print` it.

    Attributes:
        value: Number, dtype and shape, as in a trace.
        layout: Its layout now.
        why: Which request, signal, rule or operand it follows from.
        line: The line of the program that made it, where it is known.
        signal: The scope that it was made in, and what the scope means.
        reshards: Operands whose layouts had to change first.
        moved_bytes: Bytes that its instruction moved between workers.
        cost: What the planner reckons that cost.
    """

    value: str
    layout: str
    why: str
    line: str
    signal: str
    reshards: tuple[str, ...]
    moved_bytes: int
    cost: str

    def __str__(self) -> str:
        rows = [("value", self.value), ("layout", self.layout), ("why", self.why)]
        rows += [("line", self.line), ("signal", self.signal)]
        rows += [("reshard", text) for text in self.reshards]
        rows += [("moved", f"{self.moved_bytes} bytes"), ("cost", self.cost)]
        return "\n".join(f"{name + ':':9}{text}" for name, text in rows if text)


def explain(tensor: Tensor) -> Explanation:
    """Where `tensor` is and why, as far as the dispatcher knows.

    Raises:
        WorkerError: it depends on what is known to have failed.
    """
    lines: dict[str, list[str]] = {}
    for line in _core.explain(tensor).splitlines():
        name, _, text = line.partition(": ")
        lines.setdefault(name, []).append(text)

    def one(name: str) -> str:
        return next(iter(lines.get(name, ())), "")

    return Explanation(
        value=one("value"),
        layout=one("layout"),
        why=one("why"),
        line=one("line"),
        signal=one("signal"),
        reshards=tuple(lines.get("reshard", ())),
        moved_bytes=int(one("moved").removesuffix(" bytes")),
        cost=one("cost"),
    )
