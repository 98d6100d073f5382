"""Count of calls of GT's own kernels in this process, from C++ or Python.

gt._kernels counts those of the CPU; those of a GPU are counted here, where they are chosen.
"""

from __future__ import annotations

try:
    from gt._kernels import calls as _cpu_calls
except ImportError:  # gt was built without gt._kernels

    def _cpu_calls() -> int:
        """0: there are no kernels."""
        return 0


class _Counter:
    def __init__(self) -> None:
        self.calls = 0


_OF_CUDA = _Counter()


def count() -> None:
    """Counts one call of a GPU's kernel."""
    _OF_CUDA.calls += 1


def kernels_run() -> int:
    """Number of calls so far."""
    return _cpu_calls() + _OF_CUDA.calls
