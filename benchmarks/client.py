"""A client process of the row with two clients: runs a chain of adds for each line that it reads.

It answers with the chain's time in seconds. Run by `serving.py`:
`python client.py ADDRESS ADDS`.
"""

from __future__ import annotations

import sys
import time

import gt


def main(address: str, adds: int) -> None:
    gt.connect(address)
    x = gt.ones(4)
    for _ in sys.stdin:
        start = time.perf_counter()
        y = x
        for _ in range(adds):
            y = y + x
        last = y.sum().item()
        assert last == 4 * (adds + 1), f"{last} after {adds} additions"
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
