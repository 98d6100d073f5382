"""Looking inside: the tape, and what dispatcher and workers count. For people, not for programs."""

from gt import _core
from gt._core import Tensor
from gt.aten import call

__all__ = ["get_worker_stats", "print_tape", "stats"]


def print_tape(tensor: Tensor | None = None) -> None:
    """Print one numbered line a record: operator, inputs with shapes, output, your `file:line`.

    Args:
        tensor: whose history to print; without it, that of what was recorded last.
    """
    lines = _core.print_tape(tensor)
    print("\n".join(lines) if lines else "the tape is empty")  # noqa: T201 - what it is for


def get_worker_stats() -> list[dict[str, float]]:
    """Counters of each worker, once all that was emitted has run.

    Returns:
        A dictionary a worker, in the order of `worker` (its index): `values` held, the `bytes` of
        memory in which these are, the most there have been (`bytes_peak`), instructions `executed`
        (asking is none); of these `native_calls` without Python and `python_calls` of kernels in
        Python (torch's or numpy's, by the backend); `joined` to the one before them, in one pass
        over memory; `own_calls`: how often a kernel of GT's own ran
        in either; `plain_bytes` for workers of other hosts that left packed, without loss, as
        `packed_bytes` (`GT_COMPRESSION`). Where that names a codec, `rounded_sums` went to
        other hosts rounded, with a relative error (root mean square) of `rounding_error` over all
        and of `rounding_error_max` in the one that lost the most. Memory that several
        values share counts once, and in full while one of them lives (a view of one row
        keeps the matrix); what a kernel needs while it runs does not count. Of a worker that has
        not answered for five seconds and computes nothing (its process is stopped, or a host
        hangs), the dictionary has `worker` and `is_silent` alone.
    """
    return _core.worker_stats()


def stats() -> dict[str, int]:
    """Counters of the session; empty where there is none.

    Returns:
        `workers` of the dispatcher, `values` that this session holds and their `bytes`;
        `moved_bytes` between workers, and by how many `transfers`, `all_reduces`,
        `reduce_scatters`, `all_gathers`, `all_to_alls`. Of the instructions that ran on several
        workers, those that `kept` everything where it was, that `reduced` partial values,
        `gathered` cut ones, or `fetched` from other workers. Where the dispatcher is part of this
        program: `sessions`, open `requests`, `worker_slots` in use. `operator_queries` is how often
        this program has asked a worker what an operator without a row results in: once for each
        signature, and at each call where data decide. `get_worker_stats()` asks the workers
        themselves.
    """
    counters = {**_core.session_counters(), **_core.stats()}
    return counters and {**counters, "operator_queries": call.queries()}


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
