"""Collectives of values that are not in the host's memory.

A device is played by a numpy worker that shows only copies of its values, as a GPU's does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from test_worker import Worker, _whole, full, op, read

AWAY = """
import dataclasses, sys
import numpy as np
from gt.worker import __main__
from gt.worker.reference import kernels as reference

host = reference.backend()

def write(value, offset, data):
    flat = value.reshape(-1).view(np.uint8)
    flat[offset:offset + len(data)] = np.frombuffer(data, np.uint8)

def backend():
    return dataclasses.replace(
        host, contiguous=lambda value: host.contiguous(value).copy(), write=write
    )

reference.backend = backend
sys.exit(__main__.main())
"""


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    both = [Worker(index, "--backend", "numpy", program=("-c", AWAY)) for index in range(2)]
    both[0].connection.introduce(both[1].connection)
    yield both
    for worker in both:
        worker.end()


def test_what_a_collective_writes_is_written_back(workers: list[Worker]) -> None:
    large = 200_000
    for place, worker in enumerate(workers):
        worker.write(full(0, (large,), 1.0 + place), full(1, (3,), 4.0 + place))
        worker.write(op("all_reduce", (2,), (0,), ((0, 1), "sum", 1)))
        worker.write(op("all_gather", (3,), (1,), ((0, 1), 0, (3, 3), 2)))
        # These collectives turn the operand's memory into the result.
        worker.write(op("all_reduce", (4,), (1,), ((0, 1), "sum", 3)) + op("free", (), (1,)))
        worker.write(op("all_reduce", (5,), (0,), ((0, 1), "max", 4)) + op("free", (), (0,)))
        worker.write(read(2, large, 1), read(3, 6, 2), read(4, 3, 3), read(5, large, 4))
    for worker in workers:
        sizes = {1: 4 * large, 2: 24, 3: 12, 4: 4 * large}
        summed, gathered, small, greatest = _whole(worker, sizes)
        assert set(summed.floats) == {3.0}
        assert gathered.floats == [4.0] * 3 + [5.0] * 3
        assert small.floats == [9.0] * 3
        assert set(greatest.floats) == {2.0}
