"""One rank of a group whose ranks are processes: `cuda_rank.py LIBRARY RANK RANKS [NAME PART]`.

Prints its handles, reads those of all, runs collectives over the stand-in of CUDA's driver. With
the NAME of one, the last rank dies in its second call, after so large a PART of its kernel's steps.
"""

import contextlib
import ctypes
import dataclasses
import os
import signal
import sys

import cuda_cases
import torch
from played_cuda import Played, driver_of, native

STEPS_MAX = 2_000_000_000


def gather(handles):
    """Through the test, which starts the ranks."""
    print(handles.hex(), flush=True)
    return bytes.fromhex(sys.stdin.readline())


def numbers(rank):
    return torch.randn(6, 50, generator=torch.Generator().manual_seed(rank))


class Calls:
    """Each collective as a rank calls it; what it returns is right, or it raises."""

    def __init__(self, group, rank, ranks):
        self._group, self._rank, self._ranks = group, rank, ranks
        self._inputs = [numbers(one) for one in range(ranks)]

    def all_reduce(self):
        """In two shots."""
        (total,) = self._group.all_reduce([self._inputs[self._rank]])
        return total, sum(self._inputs)

    def all_reduce_few(self):
        """In one shot."""
        (total,) = self._group.all_reduce([self._inputs[self._rank][0, :9]])
        return total, sum(self._inputs)[0, :9]

    def reduce_scatter(self):
        rows = slice(self._rank * 6 // self._ranks, (self._rank + 1) * 6 // self._ranks)
        (part,) = self._group.reduce_scatter([self._inputs[self._rank]])
        return part, sum(self._inputs)[rows]

    def all_gather(self):
        (whole,) = self._group.all_gather([self._inputs[self._rank]])
        return whole, torch.cat(self._inputs)

    def broadcast(self):
        """From the last rank."""
        (given,) = self._group.broadcast([self._inputs[self._rank]], self._ranks - 1)
        return given, self._inputs[-1]

    def broadcast_of_first(self):
        (given,) = self._group.broadcast([self._inputs[self._rank]], 0)
        return given, self._inputs[0]

    def exchange(self):
        received = torch.empty(6, 50)
        after, before = (self._rank + 1) % self._ranks, (self._rank - 1) % self._ranks
        self._group.exchange([(after, self._inputs[self._rank])], [(before, received)])
        return received, self._inputs[before]


COLLECTIVES = [name for name in vars(Calls) if not name.startswith("_")]


def run(calls, name, group):
    made, expected = getattr(calls, name)()
    group.check()
    assert torch.equal(made, expected), name


def main():
    library, rank, ranks = sys.argv[1], *map(int, sys.argv[2:4])
    driver = driver_of(library)
    driver.stand_in_steps_max.argtypes = [ctypes.c_uint64]
    driver.stand_in_steps_max(STEPS_MAX)
    kernels = Played(library, driver)
    sizes = dataclasses.replace(cuda_cases.GROUP_SIZES, timeout_seconds=60.0)
    group = cuda_cases.SharedGroup(kernels, ranks, range(rank, rank + 1), gather, sizes).group
    calls = Calls(group, rank, ranks)
    if len(sys.argv) == 4:
        for name in 2 * COLLECTIVES:  # slots come again
            run(calls, name, group)
        print("all right")
        return
    name, part = sys.argv[4], float(sys.argv[5])
    run(calls, name, group)
    # The time-out in seconds of the emulator, each 20 million steps: no rank comes any more.
    group.sizes = dataclasses.replace(sizes, timeout_seconds=0.01)
    if rank == ranks - 1:
        driver.stand_in_steps_max(int(part * driver.stand_in_steps()))
        with contextlib.suppress(native.CudaError):
            run(calls, name, group)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        run(calls, name, group)
        print("all right")
    except TimeoutError as error:
        print(error)


if __name__ == "__main__":
    main()
