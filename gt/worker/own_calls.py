"""Count of calls of GT's own kernels in this process, from C++ or Python.

gt._kernels counts those of the CPU; those of a GPU are counted here, where they are chosen.
"""

from __future__ import annotations

try:
    from gt._kernels import calls as _cpu_calls
except ImportError:  # built without them

    def _cpu_calls() -> int:
        """None has."""
        return 0


class _Counter:
    def __init__(self) -> None:
        self.calls = 0


_OF_CUDA = _Counter()


def count() -> None:
    """Counts one of a GPU."""
    _OF_CUDA.calls += 1


def kernels_run() -> int:
    """All so far."""
    return _cpu_calls() + _OF_CUDA.calls
