"""Workers that join after a session's layouts were decided: the note, and gt.rebalance()."""

from collections.abc import Iterator

import pytest
from cluster import Cluster, first_line, until

import gt as here
from gt.errors import NoWorker

# Waits for a line of its input between what it does before and after workers join.
GROWING = """
gt.manual_seed(3)
w = gt.distribute(gt.randn(8, 6), dim=0)
y = (w * 3).cos()
kept = [w.tolist(), y.tolist()]
print(w.layout, flush=True)
input()
gt.synchronize()
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as running:
        running.wait_for_workers()
        yield running


def grown(cluster: Cluster, code: str, workers: int = 1, **settings: str) -> tuple[str, str]:
    """Output and standard error of a program during which workers join."""
    client = cluster.client(GROWING + code, **settings)
    assert "@[0]" in first_line(client)
    for _ in range(workers):
        cluster.add_worker()
    cluster.wait_for_workers()
    printed, errors = client.communicate("\n", timeout=30)
    assert client.returncode == 0, errors
    return printed, errors


@pytest.mark.parametrize("settings", [{}, {"GT_NO_RING": "1"}], ids=["rings", "tcp"])
def test_values_move_to_the_bit_and_explain_says_so(
    cluster: Cluster, settings: dict[str, str]
) -> None:
    code = """
print(gt.rebalance(), w.layout)
again = w + 0
print(w.layout, again.layout, (w.tolist(), y.tolist()) == (kept[0], kept[1]))
print(again.tolist() == kept[0], (y + 0).tolist() == kept[1])
print("gt.rebalance() gave it this layout" in str(gt.explain(w)))
fresh = gt.distribute(gt.ones(4, 2), dim=0)
print(fresh.layout, (w @ gt.ones(6, 3)).layout)
"""
    printed, errors = grown(cluster, code, **settings)
    lines = printed.splitlines()
    assert lines[0] == "1 shard(0)@[0,1]"
    assert lines[1] == "shard(0)@[0,1] shard(0)@[0,1] True"
    assert lines[2:4] == ["True True", "True"]
    assert lines[4] == "shard(0)@[0,1] shard(0)@[0,1]"
    assert errors == (
        "gt: worker 1 has joined, 2 are there; what this session has already stays on those from "
        "before until gt.rebalance()\n"
    )


def test_without_rebalance_values_stay_and_one_line_names_all_that_joined(cluster: Cluster) -> None:
    printed, errors = grown(cluster, "print((w + 0).layout, w.tolist() == kept[0])", workers=2)
    assert printed == "replicate@[0] True\n"
    (line,) = [line for line in errors.splitlines() if "joined" in line]
    assert line.startswith("gt: workers 1 and 2 have joined, 3 are there")


def test_the_note_goes_through_logging(cluster: Cluster) -> None:
    code = """
import logging
logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
gt.synchronize()
"""
    client = cluster.client(code + GROWING)
    assert "@[0]" in first_line(client)
    cluster.add_worker()
    cluster.wait_for_workers()
    _, errors = client.communicate("\n", timeout=30)
    assert "gt WARNING worker 1 has joined, 2 are there" in errors


def test_a_session_without_layouts_is_not_told(cluster: Cluster) -> None:
    code = "x = gt.ones(3)\nprint(x.tolist(), flush=True)\ninput()\nprint((x + 1).tolist())"
    client = cluster.client(code)
    first_line(client)
    cluster.add_worker()
    cluster.wait_for_workers()
    printed, errors = client.communicate("\n", timeout=30)
    assert (printed, errors) == ("[2.0, 2.0, 2.0]\n", "")


def test_training_goes_on_over_more_workers_to_the_bit(cluster: Cluster) -> None:
    # Replicated parameters and sharded batches: the same program on all workers from the beginning
    # sums in the same order.
    code = """
import sys
from gt import nn

def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(gt.distribute(x, dim=0)).square().mean()
    loss.backward()
    optimizer.step()
    return loss

gt.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = gt.optim.AdamW(model.parameters(), lr=0.05)
batches = [gt.randn(8, 6) for _ in range(6)]
if {moves}:
    step(model, optimizer, batches[0]).item()
    print("in", flush=True)
    input()
    gt.rebalance()
else:
    step(model, optimizer, batches[0]).item()
for x in batches[1:]:
    loss = step(model, optimizer, x)
print(loss.item().hex())
"""
    client = cluster.client(code.replace("{moves}", "True"))
    assert first_line(client) == "in\n"
    cluster.add_worker()
    cluster.wait_for_workers()
    moved, errors = client.communicate("\n", timeout=30)
    assert client.returncode == 0, errors
    one = float.fromhex(cluster.run(code.replace("{moves}", "False")))
    assert float.fromhex(moved) == pytest.approx(one, rel=1e-5)


def test_published_values_move_when_they_are_taken(cluster: Cluster) -> None:
    code = """
gt.publish(w, "w")
print(gt.rebalance() > 1, gt.session["w"].layout, gt.session["w"].tolist() == kept[0])
"""
    printed, _ = grown(cluster, code)
    assert printed == "True shard(0)@[0,1] True\n"


def test_a_worker_that_dies_before_the_move_changes_nothing(cluster: Cluster) -> None:
    code = """
import time
from gt import _core
gt.rebalance()
print("moved", flush=True)
input()
while len(_core.workers()) > 1:
    time.sleep(0.01)
print((w + 0).tolist() == kept[0], (w + 0).layout)
"""
    client = cluster.client(GROWING + code)
    assert "@[0]" in first_line(client)
    cluster.add_worker()
    cluster.wait_for_workers()
    client.stdin.write("\n")
    client.stdin.flush()
    assert first_line(client) == "moved\n"
    cluster.kill_worker(1)
    until(lambda: "worker 1 is gone" in cluster.log)
    printed, errors = client.communicate("\n", timeout=30)
    assert printed == "True replicate@[0]\n", errors


def test_connect_says_how_many_have_joined(cluster: Cluster) -> None:
    code = f"gt.disconnect()\ngt.connect({cluster.address!r}, workers=2, wait=30)\nprint('both')"
    client = cluster.client(code)
    until(
        lambda: "waiting for the others" in (client.stderr.readline() or "waiting for the others")
    )
    cluster.add_worker()
    printed, _ = client.communicate(timeout=30)
    assert printed == "both\n"
    with pytest.raises(NoWorker, match=r"2 of 3 workers have joined"):
        here.connect(cluster.address, workers=3, wait=0.1)
    here.disconnect()


def test_an_embedded_session_has_nothing_to_move() -> None:
    here.ones(3)
    assert here.rebalance() == 0
