"""How many threads torch's kernels use on the CPU, changed between two instructions.

`torch.set_num_threads` is not for that: it makes a pool of threads anew, and what it says to MKL
holds from then on. OpenMP's own call costs nanoseconds, and torch, MKL and oneDNN ask OpenMP at
each kernel how many threads there are.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

from gt.worker import loaded

# GCC's, Intel's and LLVM's; a process has the one that torch was built with.
LIBRARIES = ("libgomp", "libiomp5", "libomp")


@functools.cache
def most() -> int:
    """As many as the process was given: asked before any instruction changes them."""
    return torch.get_num_threads()


def switch() -> tuple[int, Callable[[int], object] | None]:
    """The most threads, and what sets how many the next kernels use, which begin with one.

    None in its place where there is no more than one, or torch does not use OpenMP.
    """
    library = loaded.library(LIBRARIES)
    if most() == 1 or library is None:
        return 1, None
    # PyDLL keeps the interpreter's lock, which would cost more than the call.
    set_threads = ctypes.PyDLL(library).omp_set_num_threads
    set_threads.argtypes, set_threads.restype = [ctypes.c_int], None
    set_threads(1)
    return most(), set_threads
