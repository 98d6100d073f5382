"""One rank of a group whose ranks are processes: `cuda_rank.py LIBRARY RANK RANKS DYING`.

Prints its handles, reads those of all, runs collectives over the stand-in of CUDA's driver; rank
DYING kills itself after the first one.
"""

import ctypes
import dataclasses
import os
import signal
import sys

import cuda_cases
import torch
from played_cuda import Played, driver_of

from gt.worker.cuda_collectives import CudaGroup

STEPS_MAX = 2_000_000_000


def gather(handles):
    """Through the test, which starts the ranks."""
    print(handles.hex(), flush=True)
    return bytes.fromhex(sys.stdin.readline())


def numbers(rank):
    return torch.randn(6, 50, generator=torch.Generator().manual_seed(rank))


def check(group, rank, ranks):
    """Each collective once more, so that slots come again."""
    inputs = [numbers(one) for one in range(ranks)]
    total = sum(inputs)
    rows = slice(rank * 6 // ranks, (rank + 1) * 6 // ranks)
    for root in (0, ranks - 1):
        assert torch.equal(group.all_reduce([inputs[rank]])[0], total)
        assert torch.equal(group.all_reduce([inputs[rank][0, :9]])[0], total[0, :9])
        assert torch.equal(group.reduce_scatter([inputs[rank]])[0], total[rows])
        assert torch.equal(group.all_gather([inputs[rank]])[0], torch.cat(inputs))
        assert torch.equal(group.broadcast([inputs[rank]], root)[0], inputs[root])
        received = torch.empty(6, 50)
        group.exchange([((rank + 1) % ranks, inputs[rank])], [((rank - 1) % ranks, received)])
        assert torch.equal(received, inputs[rank - 1])
        group.check()


def main():
    library, rank, ranks, dying = sys.argv[1], *map(int, sys.argv[2:])
    driver = driver_of(library)
    driver.stand_in_steps_max.argtypes = [ctypes.c_uint64]
    driver.stand_in_steps_max(STEPS_MAX)
    kernels = Played(library, driver)
    sizes = dataclasses.replace(cuda_cases.GROUP_SIZES, timeout_seconds=60.0)
    group = CudaGroup(
        kernels.on,
        ranks,
        range(rank, rank + 1),
        gather,
        sizes,
    )
    if dying < 0:
        check(group, rank, ranks)
        print("all right")
        return
    group.all_reduce([numbers(rank)])
    group.check()
    if rank == dying:
        os.kill(os.getpid(), signal.SIGKILL)
    # Of the emulator's seconds, 20 million steps each: nobody comes any more.
    group.sizes = dataclasses.replace(sizes, timeout_seconds=0.01)
    group.all_reduce([numbers(rank)])
    try:
        group.check()
    except TimeoutError as error:
        print(error)


if __name__ == "__main__":
    main()
