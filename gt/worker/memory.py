"""Memory that a worker keeps for its next instructions and gives back when it is idle."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

# glibc gives freed blocks above 32 MiB back to the kernel, and a step's next temporary gets new
# pages: `x + x` of 100 MB then takes three times as long. A worker makes the same sizes again and
# again, so blocks of up to KEPT_BLOCK_BYTES are reused, and up to KEPT_BYTES of free memory are
# kept.
KEPT_BLOCK_BYTES = 256 << 20
KEPT_BYTES = 512 << 20
# Bytes at the end of the heap that an idle worker keeps: enough for small steps to begin with.
RESERVE_BYTES = 16 << 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep() -> None:
    """Makes the C library reuse large blocks; does nothing unless it is glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def kept_bytes() -> int:
    """Bytes of freed memory that a worker keeps: at most an eighth of the machine's memory."""
    return min(KEPT_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)


# Functions that release memory kept elsewhere: by the ATen helper, once it is loaded.
_RELEASES: list[Callable[[], None]] = []


def on_release(release: Callable[[], None]) -> None:
    """Registers `release`, to be called when a worker gives memory back."""
    _RELEASES.append(release)


def release() -> None:
    """Gives free memory back to the system, all but RESERVE_BYTES of the heap."""
    for one in _RELEASES:
        one()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(RESERVE_BYTES))
