"""`turns.py` runs with a small queue."""

from processes import cluster
from turns import measure

import gt


def test_reads_beside_a_queue() -> None:
    with cluster(1, "--threads", "1") as address:
        gt.connect(address)
        try:
            assert all(milliseconds > 0 for milliseconds in measure(address, 64, 50, reads=3))
        finally:
            gt.disconnect()
