"""`gt visualize`: an instruction log as a picture, a row for each worker, time in milliseconds.

A mark is when a worker executed the instruction, and how long, where workers have recorded that
beside the log; else, when the dispatcher planned it. SVG is written here and needs nothing; PNG
needs matplotlib. Places in time are time_axis.py's.
"""

import dataclasses
import html
import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gt import _core
from gt.tools import executions, log
from gt.tools.executions import Execution
from gt.tools.time_axis import BREAK_WIDTH, TimeAxis

WIDTH = 1200.0
LEFT, RIGHT = 90.0, 1180.0  # positions of the first and last instruction: room for the rows' names
TOP = 30.0  # position of the first row: room for the summary
ROW_HEIGHT = 30.0
LETTER_WIDTH = 6.6  # about, at this size
MARK_WIDTH_MIN, MARK_WIDTH_MAX = 0.8, 6.0
MARKS_MAX = 50_000  # a browser still scrolls; the rest is left out, with a message
FAMILIES = {
    "create": ("creation", "#8c564b"),
    "random": ("random numbers", "#9575cd"),
    "elementwise": ("elementwise", "#1f77b4"),
    "contract": ("matrix products", "#2ca02c"),
    "reduce": ("reductions", "#f2c200"),
    "normalize": ("softmax and norms", "#17becf"),
    "view": ("views and shapes", "#cfd8dc"),
    "index": ("indexing", "#b5b81f"),
    "loss": ("losses", "#e377c2"),
    "update": ("optimizer", "#6a1b9a"),
    "control": ("reads and layouts", "#263238"),
    "collective": ("collectives", "#ff7f0e"),
    "generic": ("other functions", "#607d6b"),
}
UNKNOWN = ("unknown", "#444444")
FAILED = "#ff0000"
FAILURE = ("failed", FAILED)
GRID, BREAK = "#e0e0e0", "#e8ebee"
SIGNAL_COLORS = ("#dce6f2", "#e8dcf2", "#dcf2e4", "#f2ecdc", "#f2dcdf")


@dataclass(frozen=True, kw_only=True)
class Box:
    """A filled rectangle, with a text inside it or shown on mouse-over."""

    x: float
    y: float
    width: float
    height: float
    color: str
    label: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Word:
    """A text at a place, which is its start or its middle."""

    x: float
    y: float
    text: str
    middle: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Shapes and words to draw, independent of the output format."""

    height: float
    boxes: Sequence[Box]
    words: Sequence[Word]


def draw(file: str, output: str) -> int:
    """Draw a log.

    Args:
        file: a path, or `-`.
        output: a path that ends with .svg or .png.

    Raises:
        ValueError: the ending is another one, or the log has no times.
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
    entries = entries[:MARKS_MAX]
    records = [] if file == "-" else executions.executions(file)
    picture = executed(entries, records) if records else arranged(entries)
    if kind == ".svg":
        Path(output).write_text(svg(picture), encoding="utf-8")
    else:
        _write_png(picture, output)
    print(output)
    return 0


def arranged(entries: Sequence[log.Entry]) -> Picture:
    """The instructions at the times when the dispatcher planned them."""
    axis = TimeAxis([item.seconds or 0.0 for item in entries], LEFT, RIGHT)
    workers = {worker for item in entries for worker in item.workers}
    top = _rows(entries, workers)
    summary = f"{len(entries)} instructions planned in {axis.seconds:.3f} s"
    note = "a mark is when the dispatcher planned an instruction, not how long it ran"
    marks = [*_scopes(entries, axis.places, top), *_marks(entries, axis.places, top)]
    return _picture(axis, top, marks, f"{summary}; {note}", _used(entries))


def executed(entries: Sequence[log.Entry], records: Sequence[Execution]) -> Picture:
    """The instructions at their execution times; the program's reads at their planned times."""
    of = {(item.session, item.number): item for item in entries}
    pairs = [(one, item) for one in records if (item := of.get((one.session, one.number)))]
    pairs += [(one, item) for one in records if (item := of.get((None, one.number)))]
    starts: dict[int, float] = {}
    for one, item in pairs:
        starts[id(item)] = min(starts.get(id(item), one.start), one.start)
    moved = [
        dataclasses.replace(item, seconds=starts[id(item)] / 1e3) if id(item) in starts else item
        for item in entries
    ]
    moved.sort(key=lambda item: item.seconds or 0.0)
    moments = sorted(
        {item.seconds or 0.0 for item in moved}
        | {moment / 1e3 for one, _ in pairs for moment in (one.start, one.end)}
    )
    axis = TimeAxis(moments, LEFT, RIGHT)
    place = dict(zip(moments, axis.places, strict=True))
    top = _rows(moved, {one.worker for one, _ in pairs})
    places = [place[item.seconds or 0.0] for item in moved]
    marks = [*_scopes(moved, places, top), *_executions(pairs, place, top)]
    reads = [item for item in moved if not item.workers]
    marks += _marks(reads, [place[item.seconds or 0.0] for item in reads], top)
    summary = f"{len(entries)} instructions, {axis.seconds:.3f} s"
    note = "a mark is as long as a worker executed; of a transfer, until all had come"
    moves = {_family(one.operator, _families()) for one, _ in pairs}
    return _picture(axis, top, marks, f"{summary}; {note}", _used(entries) | moves)


def _rows(entries: Sequence[log.Entry], workers: Iterable[int]) -> dict[str, float]:
    """Top of each row that is present: scopes, each worker, the program's reads."""
    rows = ["signals"] if any(item.signal is not None for item in entries) else []
    rows += [f"worker {worker}" for worker in sorted(workers)]
    rows += ["program"] if any(not item.workers for item in entries) else []
    return {row: TOP + place * ROW_HEIGHT for place, row in enumerate(rows)}


def _picture(
    axis: TimeAxis,
    top: dict[str, float],
    marks: Sequence[Box],
    summary: str,
    used: Iterable[tuple[str, str]],
) -> Picture:
    """Rows with their names and marks, a time scale and a legend."""
    bottom = TOP + len(top) * ROW_HEIGHT
    boxes, words = _scale(axis, bottom)
    words.extend(Word(x=6, y=y + ROW_HEIGHT * 0.62, text=row) for row, y in top.items())
    words.append(Word(x=LEFT, y=18, text=summary))
    legend_boxes, legend_words, height = _legend(used, bottom + 34, breaks=bool(axis.breaks))
    shown = [*boxes, *marks, *legend_boxes]
    return Picture(height=height, boxes=shown, words=[*words, *legend_words])


def _scale(axis: TimeAxis, bottom: float) -> tuple[list[Box], list[Word]]:
    """Lines at round times with their milliseconds, and bands where time is left out."""
    boxes = [
        Box(
            x=x, y=TOP, width=BREAK_WIDTH, height=bottom - TOP, color=BREAK,
            hint=f"{seconds * 1e3:,.3g} ms without an instruction",
        )
        for x, seconds in axis.breaks
    ]  # fmt: skip
    words = [Word(x=6, y=bottom + 16, text="time, ms")]
    for x, text in axis.ticks(LETTER_WIDTH):
        boxes.append(Box(x=x, y=TOP, width=0.8, height=bottom - TOP + 4, color=GRID))
        words.append(Word(x=x, y=bottom + 16, text=text, middle=True))
    return boxes, words


def _families() -> dict[str, str]:
    return {name: family for name, family, *_ in _core.op_table()}


def _family(operator: str, families: dict[str, str]) -> tuple[str, str]:
    """Label and colour of an operator's family."""
    return FAMILIES.get(families.get(operator, ""), UNKNOWN)


def _used(entries: Sequence[log.Entry]) -> set[tuple[str, str]]:
    """Labels and colours of the instructions."""
    families = _families()
    used = {_family(item.operator, families) for item in entries if not item.failed}
    return used | ({FAILURE} if any(item.failed for item in entries) else set())


def _executions(
    pairs: Sequence[tuple[Execution, log.Entry]],
    place: dict[float, float],
    top: dict[str, float],
) -> Iterable[Box]:
    """A box for each execution in its worker's row; transfers lie lower, beside what computes."""
    families = _families()
    for one, item in pairs:
        words, color = _family(one.operator, families)
        is_transfer = words == FAMILIES["collective"][0]
        x = place[one.start / 1e3]
        hint = f"{one.operator} on worker {one.worker}, {one.end - one.start:.3f} ms"
        yield Box(
            x=x,
            y=top[f"worker {one.worker}"] + (ROW_HEIGHT - 8 if is_transfer else 2),
            width=max(MARK_WIDTH_MIN, place[one.end / 1e3] - x),
            height=6 if is_transfer else ROW_HEIGHT - 11,
            color=FAILED if item.failed else color,
            hint=f"{hint}\n{item.instruction}\n{item.notes}",
        )


def _marks(
    entries: Sequence[log.Entry], places: Sequence[float], top: dict[str, float]
) -> Iterable[Box]:
    """A box for each instruction on each of its workers; those of none in the program's row."""
    families = _families()
    for item, x, after in zip(entries, places, [*places[1:], WIDTH], strict=True):
        mark = Box(
            x=x,
            y=0.0,
            width=max(MARK_WIDTH_MIN, min(after - x, MARK_WIDTH_MAX)),
            height=ROW_HEIGHT - 8,
            color=FAILED if item.failed else _family(item.operator, families)[1],
            hint=f"{item.instruction}\n{item.notes}",
        )
        rows = [f"worker {worker}" for worker in item.workers] or ["program"]
        yield from (dataclasses.replace(mark, y=top[row] + 4) for row in rows)


def _legend(
    used: Iterable[tuple[str, str]], y: float, *, breaks: bool
) -> tuple[list[Box], list[Word], float]:
    """Colour and label of each family in use, and the bottom of the legend."""
    shown = [pair for pair in (*FAMILIES.values(), UNKNOWN, FAILURE) if pair in used]
    shown += [("time without instructions, left out", BREAK)] if breaks else []
    boxes, words, x = [], [], LEFT
    for text, color in shown:
        width = 16 + LETTER_WIDTH * len(text) + 18
        if x + width > WIDTH and x > LEFT:
            x, y = LEFT, y + 20
        boxes.append(Box(x=x, y=y, width=12, height=12, color=color))
        words.append(Word(x=x + 16, y=y + 11, text=text))
        x += width
    return boxes, words, y + 24


def _scopes(
    entries: Sequence[log.Entry], places: Sequence[float], top: dict[str, float]
) -> Iterable[Box]:
    """A box for each run of instructions in the same scope."""
    if "signals" not in top:
        return
    y = top["signals"]
    colors: dict[str, str] = {}
    for signal, run in itertools.groupby(range(len(entries)), lambda place: entries[place].signal):
        if signal is None:
            continue
        first, *rest = run
        last = rest[-1] if rest else first
        end = places[last + 1] if last + 1 < len(places) else RIGHT
        color = colors.setdefault(signal, SIGNAL_COLORS[len(colors) % len(SIGNAL_COLORS)])
        width = max(end - places[first], 1.0)
        label = signal if width > LETTER_WIDTH * len(signal) + 8 else ""
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
    parts.extend(_svg_word(word) for word in (*picture.words, *labels))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _svg_box(box: Box) -> str:
    hint = f"<title>{html.escape(box.hint)}</title>" if box.hint else ""
    place = f'x="{box.x:.2f}" y="{box.y:g}" width="{box.width:.2f}" height="{box.height:g}"'
    return f'<rect {place} fill="{box.color}">{hint}</rect>'


def _svg_word(word: Word) -> str:
    middle = ' text-anchor="middle"' if word.middle else ""
    return f'<text x="{word.x:.2f}" y="{word.y:.2f}"{middle}>{html.escape(word.text)}</text>'


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
        place = "center" if word.middle else "left"
        axes.text(word.x, word.y, word.text, fontsize=8, horizontalalignment=place)
    figure.savefig(output)
