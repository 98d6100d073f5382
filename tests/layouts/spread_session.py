"""Sessions of several workers in the tests' own process."""

from collections.abc import Iterator
from contextlib import contextmanager

import gt


@contextmanager
def workers(count: int) -> Iterator[None]:
    """A session of its own with so many workers; afterwards the usual one again."""
    gt.disconnect()
    gt.gpu_workers(count)
    try:
        yield
    finally:
        gt.disconnect()
        gt.gpu_workers(1)
