"""Inspection for people: the tape, and counters of the dispatcher and the workers."""

from gt import _core
from gt._core import Tensor
from gt.sessions.compiled import region_of
from gt.tensors.aten import call

__all__ = ["explain_compile", "get_worker_stats", "print_tape", "stats"]


def print_tape(tensor: Tensor | None = None) -> None:
    """Print a numbered line for each record: operator, inputs with shapes, output, your
    `file:line`.

    Args:
        tensor: a tensor whose history to print; without it, that of the last record.
    """
    lines = _core.print_tape(tensor)
    print("\n".join(lines) if lines else "the tape is empty")  # noqa: T201 - its purpose


def explain_compile(function: object) -> str:
    """Describe what `gt.compile` has made of a function: its programs, and its last call.

    Args:
        function: what `gt.compile` returned, or the name of a scope with `compile: true`.

    Raises:
        TypeError: it is neither.
    """
    return region_of(function).explanation()


def get_worker_stats() -> list[dict[str, float]]:
    """Counters of each worker, once all emitted instructions have run.

    Returns:
        A dictionary for each worker, in the order of `worker` (its index): number of `values` held,
        the `bytes` of their memory, its peak (`bytes_peak`), instructions `executed` (this query is
        none); of these `aten_calls` without Python and `python_calls` of kernels in Python
        (torch's or numpy's, by the backend); `joined` to the one before them, in one pass over
        memory; `own_calls` of GT's own kernels in either; `plain_bytes` for workers of other hosts
        that were compressed without loss to `packed_bytes` (`GT_COMPRESSION`). With a codec there,
        `rounded_sums` went to other hosts rounded, with a relative error (root mean square) of
        `rounding_error` over all and of `rounding_error_max` in the worst one. Memory that several
        values share counts once, and in full while one of them lives (a view of one row keeps the
        matrix); temporary memory of a running kernel does not count. The dictionary of a worker
        that has not answered for five seconds and computes nothing (its process is stopped, or a
        host hangs) has only `worker` and `is_silent`.
    """
    return _core.worker_stats()


def stats() -> dict[str, int]:
    """Counters of the session; empty without one.

    Returns:
        `workers` of the dispatcher, `values` that this session holds and their `bytes`;
        `moved_bytes` between workers, and the numbers of `transfers`, `all_reduces`,
        `reduce_scatters`, `all_gathers`, `all_to_alls` that moved them. Of the instructions that
        ran on several workers, those that `kept` everything in place, that `reduced` partial
        values, `gathered` cut ones, or `fetched` from other workers. If the dispatcher is part of
        this program: `sessions`, open `requests`, `worker_slots` in use. `operator_queries` counts
        the queries to a worker about the results of operators without a row: one for each
        signature, and one at each call whose results depend on data. `get_worker_stats()` asks the
        workers themselves.
    """
    counters = {**_core.session_counters(), **_core.stats()}
    return counters and {**counters, "operator_queries": call.queries()}


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
