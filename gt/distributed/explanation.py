"""`gt.explain`: where a tensor is, the reason for it, and the transfers and costs that
it caused.
"""

from dataclasses import dataclass

from gt import _core
from gt._core import Tensor

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class Explanation:
    """The dispatcher's account of a tensor's layout; `print` it.

    Attributes:
        value: Number, dtype and shape, as in a trace.
        layout: Its layout now.
        why: The request, signal, rule or operand from which the layout follows.
        line: The line of the program that made it, where it is known.
        signal: The scope in which the tensor was made, and the scope's configuration.
        reshards: Operands whose layouts had to change first.
        moved_bytes: Bytes that its instruction moved between workers.
        cost: The planner's estimate of the cost.
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
    """The layout of `tensor` and the reason for it, as far as the dispatcher knows.

    Raises:
        WorkerError: the tensor depends on an instruction that is known to have failed.
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
