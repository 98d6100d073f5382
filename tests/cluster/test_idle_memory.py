"""A worker gives back what it once held: after a while without anything to do."""

from pathlib import Path

import pytest
from cluster import Cluster, first_line, until

pytest.importorskip("torch")

BLOCKS, BLOCK_BYTES = 20, 20 << 20
# Bytes that may stay: the C library's reserve, and memory that kernels have loaded meanwhile.
KEPT = BLOCKS * BLOCK_BYTES // 4
CLIENT = f"""
import gt
blocks = [gt.ones({BLOCK_BYTES // 4}) + 1 for _ in range({BLOCKS})]
print(blocks[-1][0].item(), flush=True)
input()
"""


def resident(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


@pytest.mark.parametrize("arguments", [[], ["--tcp"]], ids=["ring", "tcp"])
def test_an_idle_worker_gives_back_what_a_killed_client_held(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GT_IDLE_SECONDS", "0.3")
    with Cluster(0, backend="pytorch") as cluster:
        cluster.command += arguments
        worker = cluster.add_worker()
        cluster.wait_for_workers()
        client = cluster.client("import gt; gt.ones(3).sum().item(); print(1, flush=True); input()")
        assert first_line(client).strip() == "1"
        before = resident(worker.pid)
        client = cluster.client(CLIENT)
        assert first_line(client).strip() == "2.0"
        assert resident(worker.pid) - before > BLOCKS * BLOCK_BYTES // 2
        client.kill()
        until(lambda: resident(worker.pid) - before < KEPT)
