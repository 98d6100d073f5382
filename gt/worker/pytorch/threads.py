"""Number of threads of torch's kernels on the CPU, changed between two instructions.

`torch.set_num_threads` is not for that: it makes a new pool of threads, and its setting of MKL
stays. OpenMP's own call costs nanoseconds, and torch, MKL and oneDNN ask OpenMP for the number at
each kernel.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from gt.worker import loaded

# Runtimes of GCC, Intel and LLVM; a process has the one that torch was built with.
LIBRARIES = ("libgomp", "libiomp5", "libomp")


@functools.cache
def most() -> int:
    """The number of threads that the process was given, read before any instruction changes it."""
    return torch.get_num_threads()


class Setter(NamedTuple):
    """A function that sets the number of threads for the next kernels of the calling thread."""

    call: Callable[[int], object]
    address: int  # of the C function


@functools.cache
def setter() -> Setter | None:
    """The setter of the OpenMP that torch was built with; None without one."""
    library = loaded.library(LIBRARIES)
    if library is None:
        return None
    # PyDLL keeps the interpreter's lock, which would cost more than the call.
    set_threads = ctypes.PyDLL(library).omp_set_num_threads
    set_threads.argtypes, set_threads.restype = [ctypes.c_int], None
    return Setter(set_threads, ctypes.cast(set_threads, ctypes.c_void_p).value or 0)


def switch() -> tuple[int, Callable[[int], object] | None]:
    """The most threads, and a function that sets the number for the next kernels, which start with
    one.

    None in its place if there is only one thread, or torch does not use OpenMP.
    """
    threads = setter()
    if most() == 1 or threads is None:
        return 1, None
    threads.call(1)
    return most(), threads.call
