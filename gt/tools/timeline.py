"""`gt visualize`: an instruction log as a picture, a row a worker, and a row for the named scopes.

A mark stands where the dispatcher planned the instruction: the log has no times of execution.
SVG is written here and needs nothing; PNG needs matplotlib.
"""

import dataclasses
import html
import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gt import _core
from gt.tools import log

WIDTH = 1200.0
LEFT, RIGHT = 90.0, 1180.0  # of the first and last instruction: room for the rows' names
ROW_HEIGHT = 34.0
MARK_WIDTH_MIN, MARK_WIDTH_MAX = 0.8, 12.0
CUT_AT = 12  # times the median wait between two instructions
CUTS_NAMED_MAX = 12
MARKS_MAX = 50_000  # a browser still scrolls; the rest is left out, and that is said
COLORS = {
    "create": "#9aa5b1", "random": "#b39ddb", "elementwise": "#5b9bd5", "contract": "#d9534f",
    "reduce": "#f0ad4e", "normalize": "#e08e79", "view": "#c3cfd9", "index": "#8bc34a",
    "loss": "#ba68c8", "update": "#26a69a", "control": "#78909c", "collective": "#ff7043",
}  # fmt: skip
UNKNOWN, FAILED = "#444444", "#ff0000"
SIGNAL_COLORS = ("#dce6f2", "#e8dcf2", "#dcf2e4", "#f2ecdc", "#f2dcdf")


@dataclass(frozen=True, kw_only=True)
class Box:
    """A filled rectangle, with a text inside it or to be shown when the mouse is over it."""

    x: float
    y: float
    width: float
    height: float
    color: str
    label: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Word:
    """A text at a place."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What is drawn, before it has a format."""

    height: float
    boxes: Sequence[Box]
    words: Sequence[Word]


def draw(file: str, output: str) -> int:
    """Draw a log.

    Args:
        file: a path, or `-`.
        output: a path that ends with .svg or .png.

    Raises:
        ValueError: another ending, or a log without times.
    """
    kind = Path(output).suffix.lower()
    if kind not in (".svg", ".png"):
        raise ValueError(f"{output}: expected a name that ends with .svg or .png")
    entries = [
        item for item in log.entries(file) if item.seconds is not None and item.operator != "free"
    ]
    if not entries:
        raise ValueError(f"{file}: no instruction with a time")
    if len(entries) > MARKS_MAX:
        print(
            f"gt visualize: only the first {MARKS_MAX} of {len(entries)} instructions",
            file=sys.stderr,
        )
    picture = arranged(entries[:MARKS_MAX])
    if kind == ".svg":
        Path(output).write_text(svg(picture), encoding="utf-8")
    else:
        _write_png(picture, output)
    print(output)
    return 0


def arranged(entries: Sequence[log.Entry]) -> Picture:
    """Rows: scopes, each worker, the client's reads; below them the legend."""
    families = {name: family for name, family, *_ in _core.op_table()}
    workers = sorted({worker for item in entries for worker in item.workers})
    rows = ["signals", *(f"worker {worker}" for worker in workers), "client"]
    top = {row: (place + 1) * ROW_HEIGHT for place, row in enumerate(rows)}
    bottom = (len(rows) + 1) * ROW_HEIGHT + 10
    times = [item.seconds or 0.0 for item in entries]
    places, words = _axis(times, bottom - 6)
    boxes = list(_scopes(entries, places, top["signals"]))
    for item, x, after in zip(entries, places, [*places[1:], RIGHT], strict=True):
        family = families.get(item.operator, "")
        mark = Box(
            x=x,
            y=0.0,
            width=max(MARK_WIDTH_MIN, min(after - x, MARK_WIDTH_MAX)),
            height=ROW_HEIGHT - 8,
            color=FAILED if item.failed else COLORS.get(family, UNKNOWN),
            hint=f"{item.instruction}\n{item.notes}",
        )
        heights = [top[f"worker {worker}"] for worker in item.workers] or [top["client"]]
        boxes.extend(dataclasses.replace(mark, y=y + 4) for y in heights)
    words.extend(Word(x=6, y=y + ROW_HEIGHT * 0.62, text=row) for row, y in top.items())
    summary = f"{len(entries)} instructions planned in {times[-1] - times[0]:.3f} s"
    words.append(Word(x=LEFT, y=20, text=summary))
    used = sorted({families.get(item.operator, "") for item in entries} & set(COLORS))
    for place, family in enumerate(used):
        x = LEFT + place * 105
        boxes.append(Box(x=x, y=bottom + 8, width=12, height=12, color=COLORS[family]))
        words.append(Word(x=x + 16, y=bottom + 19, text=family))
    return Picture(height=bottom + 36, boxes=boxes, words=words)


def _axis(times: Sequence[float], y: float) -> tuple[list[float], list[Word]]:
    """A place for each time, and words at long waits, which are cut: they would hide the rest."""
    gaps = [max(after - before, 0.0) for before, after in itertools.pairwise(times)]
    longest = max(CUT_AT * sorted(gaps)[len(gaps) // 2], 1e-6) if gaps else 1.0
    shown = list(itertools.accumulate((min(gap, longest) for gap in gaps), initial=0.0))
    scale = (RIGHT - LEFT) / max(shown[-1], 1e-9)
    places = [LEFT + seconds * scale for seconds in shown]
    cut = sorted((place for place, gap in enumerate(gaps) if gap > longest), key=lambda k: -gaps[k])
    words = [
        Word(x=places[place] + 4, y=y, text=_wait(gaps[place])) for place in cut[:CUTS_NAMED_MAX]
    ]
    return places, words


def _wait(seconds: float) -> str:
    return f"\u2026{seconds:.3g} s" if seconds >= 1 else f"\u2026{seconds * 1e3:.3g} ms"


def _scopes(entries: Sequence[log.Entry], places: Sequence[float], y: float) -> Iterable[Box]:
    """A box for each run of instructions in the same scope."""
    colors: dict[str, str] = {}
    for signal, run in itertools.groupby(range(len(entries)), lambda place: entries[place].signal):
        if signal is None:
            continue
        first, *rest = run
        last = rest[-1] if rest else first
        end = places[last + 1] if last + 1 < len(places) else RIGHT
        color = colors.setdefault(signal, SIGNAL_COLORS[len(colors) % len(SIGNAL_COLORS)])
        width = max(end - places[first], 1.0)
        label = signal if width > 7 * len(signal) else ""
        yield Box(
            x=places[first],
            y=y + 4,
            width=width,
            height=ROW_HEIGHT - 8,
            color=color,
            label=label,
            hint=signal,
        )


def svg(picture: Picture) -> str:
    """The picture as a scalable vector graphic with hints for the mouse."""
    size = f'width="{WIDTH:g}" height="{picture.height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    parts.extend(_svg_box(box) for box in picture.boxes)
    labels = [Word(x=box.x + 4, y=box.y + 17, text=box.label) for box in picture.boxes if box.label]
    parts.extend(
        f'<text x="{word.x:.2f}" y="{word.y:.2f}">{html.escape(word.text)}</text>'
        for word in (*picture.words, *labels)
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _svg_box(box: Box) -> str:
    hint = f"<title>{html.escape(box.hint)}</title>" if box.hint else ""
    place = f'x="{box.x:.2f}" y="{box.y:g}" width="{box.width:.2f}" height="{box.height:g}"'
    return f'<rect {place} fill="{box.color}">{hint}</rect>'


def _write_png(picture: Picture, output: str) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError:
        raise ValueError(
            f"{output}: PNG needs matplotlib (pip install matplotlib); .svg needs nothing"
        ) from None
    figure = Figure(figsize=(WIDTH / 100, picture.height / 100), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, WIDTH), ylim=(picture.height, 0))
    axes.set_axis_off()
    for box in picture.boxes:
        axes.add_patch(
            Rectangle((box.x, box.y), box.width, box.height, color=box.color, linewidth=0)
        )
        if box.label:
            axes.text(box.x + 4, box.y + 17, box.label, fontsize=8)
    for word in picture.words:
        axes.text(word.x, word.y, word.text, fontsize=8)
    figure.savefig(output)
