"""A run as a time line: a row for each worker, F, B and W coloured; as PNG, and for Perfetto."""

from __future__ import annotations

import json
from pathlib import Path

from gt.errors import InvalidValue
from gt.pipeline.simulation import Run, Work

COLORS = {"F": "#1f77b4", "B": "#2ca02c", "W": "#ff7f0e", None: "#b0bec5"}
TITLES = {
    "F": "forward (F)",
    "B": "backward to the input (B)",
    "W": "backward to the weights (W)",
    None: "between units",
}
WHOLE_BACKWARD = "backward (B)"
ROW_INCHES, WIDTH_INCHES = 0.5, 14.0
LABEL_SHARE_MIN = 0.012  # share of the width; narrower boxes have no room for `F3`


def png(run: Run, output: str) -> None:
    """Draw a run.

    Args:
        run: simulated or measured, in milliseconds.
        output: the path of a PNG file.

    Raises:
        InvalidValue: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        raise InvalidValue(f"{output}: PNG needs matplotlib (pip install matplotlib)") from None
    rows = _rows(run)
    begin, length = min(work.start for work in run.works), run.length
    figure = Figure(figsize=(WIDTH_INCHES, 1.6 + ROW_INCHES * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for work in run.works:
        kind = _kind(work)
        left, width, row = work.start - begin, work.end - work.start, rows[work.rank, work.worker]
        axes.barh(row, width, left=left, color=COLORS[kind], edgecolor="white", linewidth=0.5)
        if work.unit is not None and width > LABEL_SHARE_MIN * length:
            middle, word = left + width / 2, str(work.unit)
            axes.text(middle, row, word, ha="center", va="center", fontsize=7, color="white")
    axes.set(xlabel="time, ms", xlim=(0.0, length), ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticks(list(rows.values()), [f"stage {rank}\nworker {k}" for rank, k in rows])
    shown = {_kind(work): None for work in run.works}
    patches = [
        Patch(color=COLORS[kind], label=_title(kind, run)) for kind in COLORS if kind in shown
    ]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(0, -0.18), ncols=4)
    figure.savefig(output, dpi=150)


def perfetto(run: Run, output: str) -> None:
    """Write a run for ui.perfetto.dev or chrome://tracing.

    Args:
        run: simulated or measured, in milliseconds.
        output: the path of a file of JSON.
    """
    begin = min(work.start for work in run.works)
    events: list[dict[str, object]] = []
    for rank, worker in _rows(run):
        name = {"name": f"stage {rank}, worker {worker}"}
        events.append({"ph": "M", "pid": 0, "tid": worker, "name": "thread_name", "args": name})
    works = sorted(run.works, key=lambda one: one.start)
    events += [_event(work, begin, _title(_kind(work), run)) for work in works]
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events})
    Path(output).write_text(text, encoding="utf-8")


def _event(work: Work, begin: float, title: str) -> dict[str, object]:
    stage = work.unit.stage if work.unit else None
    return {
        "ph": "X",
        "pid": 0,
        "tid": work.worker,
        "name": str(work.unit) if work.unit else title,
        "cat": title,
        "ts": (work.start - begin) * 1e3,
        "dur": (work.end - work.start) * 1e3,
        "args": {"step": work.step, "stage": stage, "busy_ms": work.busy},
    }


def _rows(run: Run) -> dict[tuple[int, int], int]:
    """The row of each worker; those of a rank stand together."""
    workers = sorted({(work.rank, work.worker) for work in run.works})
    return {worker: row for row, worker in enumerate(workers)}


def _kind(work: Work) -> str | None:
    return work.unit.kind if work.unit is not None else None


def _title(kind: str | None, run: Run) -> str:
    splits = any(_kind(work) == "W" for work in run.works)
    return TITLES[kind] if splits or kind != "B" else WHOLE_BACKWARD
