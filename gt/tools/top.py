"""`gt top`: the counters of a dispatcher and its workers, once or again and again."""

import json
import sys
import time
from collections.abc import Iterable, Mapping

import gt
from gt import _core, config

ADDRESS = "127.0.0.1:12345"  # the default port
SILENCE_SECONDS = 2.0  # time for a worker to answer; a busy one answers after its queue
DISPATCHER = ("workers", "sessions")
CLEAR = "\x1b[H\x1b[2J"


def run(address: str | None, *, once: bool, as_json: bool, interval: float) -> int:
    """Connect to a dispatcher and print its counters.

    Args:
        address: as `gt.connect` takes it; GT_ADDRESS or 127.0.0.1:12345 if not given.
        once: end after the first print.
        as_json: print JSON objects, one a line.
        interval: seconds between two prints.
    """
    where = address or config.session_options().address or ADDRESS
    gt.connect(where)
    try:
        while True:
            counters = snapshot(SILENCE_SECONDS)
            if as_json:
                print(json.dumps({"address": where, **counters}), flush=True)
            else:
                print(
                    (CLEAR if sys.stdout.isatty() and not once else "") + text(where, counters),
                    flush=True,
                )
            if once:
                return 0
            time.sleep(interval)
    finally:
        gt.disconnect()


def snapshot(
    seconds: float | None = None,
) -> dict[str, dict[str, int] | list[dict[str, float]]]:
    """The counters of the session's dispatcher and of its workers.

    Args:
        seconds: time for a worker to answer; None waits for all busy ones.
    """
    workers = _core.worker_stats(seconds)
    # The dispatcher's other counters belong to one session: the one that asks.
    dispatcher = {name: n for name, n in _core.stats().items() if name in DISPATCHER}
    return {"dispatcher": dispatcher, "workers": workers}


def text(
    where: str, counters: Mapping[str, Mapping[str, int] | Iterable[Mapping[str, float]]]
) -> str:
    """One line for the dispatcher, a table for the workers."""
    dispatcher, workers = counters["dispatcher"], counters["workers"]
    assert isinstance(dispatcher, Mapping), counters
    assert not isinstance(workers, Mapping), counters
    lines = [
        f"{where}  " + "  ".join(f"{name} {_shown(name, n)}" for name, n in dispatcher.items())
    ]
    rows = [{"worker": index, **row} for index, row in enumerate(workers)]
    names = next((list(row) for row in rows if "is_silent" not in row), ["worker"])
    cells = [[_shown(name, row.get(name, 0)) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    for row, line in zip([{}, *rows], [names, *cells], strict=True):
        is_silent = "is_silent" in row
        shown = line[:1] if is_silent else line
        columns = "  ".join(map(str.rjust, shown, widths))
        lines.append(columns + ("  no answer yet: busy, or stopped" if is_silent else ""))
    return "\n".join(lines)


def _shown(name: str, value: float) -> str:
    """A number; bytes with their unit."""
    if "bytes" not in name:
        return f"{value:.3g}" if value % 1 else f"{value:.0f}"
    size, units = float(value), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.4g} {units[0]}"
