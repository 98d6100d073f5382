"""Number of threads that numpy's products, and kernels that take any, use in a native worker.

OpenBLAS takes all cores, and its threads wait for the next product by spinning, on the core that
the client needs. One is what the worker takes by itself; GT_THREADS says otherwise.
"""

from __future__ import annotations

import ctypes

from gt.worker import loaded

THREADS_MAX = 256  # of a kernel
# Names of OpenBLAS's library in numpy's wheels (the first), and in systems.
LIBRARIES = ("libscipy_openblas64_", "libopenblas64_", "libopenblas", "libopenblasp")
FUNCTIONS = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


_count = [1]


def count() -> int:
    """Threads of kernels."""
    return _count[0]


def use(count: int) -> bool:
    """Sets the number of threads; False where numpy multiplies by another library."""
    _count[0] = min(count, THREADS_MAX)
    path = loaded.library(LIBRARIES)
    library = None if path is None else ctypes.CDLL(path)
    for name in FUNCTIONS:
        function = getattr(library, name, None)
        if function is not None:
            function(ctypes.c_int(count))
            return True
    return False
