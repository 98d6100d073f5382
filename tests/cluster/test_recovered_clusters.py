"""Workers of a dispatcher are killed, and their values are made again by those that follow.

The programs are processes of their own, which share the workers; their supervisor brings the
newcomers. Programs notice nothing but time, and one line for each death.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading

import pytest
from cluster import first_line, result, until
from supervised import Supervised, supervised

KILLED_SECONDS = 50.0
KILLS_MAX = 15  # of 20 in a minute, after which nobody is replaced
TRAINING = """
import hashlib, json, tempfile, time, yaml
from pathlib import Path
from gpt_layouts import LAYOUTS
from killed_training import trained

def digests(pause):
    losses, weights = trained({layout!r}, {steps}, lambda: time.sleep(pause))
    return [losses, [hashlib.sha256(one).hexdigest() for one in weights]]

with tempfile.TemporaryDirectory() as folder:
    config = Path(folder) / "layout.yaml"
    config.write_text(yaml.safe_dump(dict(LAYOUTS[{layout!r}].scopes)))
    gt.load_config(config)
expected = digests(0)
print("undisturbed", flush=True)
input()
print(json.dumps([expected, digests(0.05)]))
"""


class Killer:
    """Kills one worker after another at random moments, once its supervisor knows all of them."""

    def __init__(self, parent: Supervised, workers: int, seed: int) -> None:
        self.parent, self.workers, self.joined = parent, workers, 0
        self.draws, self.killed, self.end = random.Random(seed), 0, threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while self.killed < KILLS_MAX:
            # One that had not joined is not replaced. Last words of dead ones are indented.
            while self.joined < self.workers + self.killed:
                self.parent.lines_to(r"^gt\.worker: worker \d has joined")
                self.joined += 1
            if self.end.wait(self.draws.random() * 0.4):
                return
            os.kill(self.draws.choice(self.parent.workers()), signal.SIGKILL)
            self.killed += 1

    def __enter__(self) -> Killer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        self.thread.join()


@pytest.mark.parametrize(
    ("layout", "seed", "words"),
    [
        ("dp2", 1, ()),
        ("tp2", 2, ()),
        ("fsdp2", 3, ()),
        ("pipeline2", 4, ()),
        ("dp2", 5, ("--tcp",)),
    ],
)
def test_two_programs_train_on_to_the_bit(layout: str, seed: int, words: tuple[str, ...]) -> None:
    """Losses and weights are those of a run in which nobody dies."""
    with supervised(2, *words) as (cluster, parent):
        code = TRAINING.format(layout=layout, steps=5)
        clients = [cluster.client(code), cluster.client(code)]
        assert [first_line(one) for one in clients] == ["undisturbed\n"] * 2
        for one in clients:
            one.stdin.write("\n")
            one.stdin.flush()
        with Killer(parent, 2, seed) as killer:
            printed = [result(one, KILLED_SECONDS) for one in clients]
        assert killer.killed >= 2
        for text in printed:
            expected, disturbed = json.loads(text)
            assert disturbed == expected


BOTH = """
x = gt.ones(4) * 3
print(x.sum().item(), flush=True)
input()
print(x.sum().item(), (x + 1).tolist(), gt.debug.stats()["workers"])
"""
CONNECTED = r"worker 0 \("


def test_a_program_goes_on_with_what_it_had() -> None:
    with supervised(1) as (cluster, parent):
        client = cluster.client(BOTH)
        assert first_line(client) == "12.0\n"
        os.kill(parent.workers()[0], signal.SIGKILL)
        until(lambda: len(re.findall(CONNECTED, cluster.log)) == 2)
        printed, said = client.communicate("\n", timeout=KILLED_SECONDS)
        assert printed == "12.0 [4.0, 4.0, 4.0, 4.0] 1\n"
        pattern = (
            r"gt: worker 0 is gone: its connection closed; no value was lost, \d are made again;"
            r" another took its place\n"
        )
        assert re.fullmatch(pattern, said), said


ALONE = """
x = gt.ones(8)
print(x.sum().item(), flush=True)
for line in iter(input, "end"):
    x = x + 1
    print(x.sum().item(), flush=True)
"""


def test_a_program_on_another_worker_does_not_wait() -> None:
    """It computes and reads while the place of its neighbour's worker is empty."""
    with supervised(2) as (cluster, parent):
        clients = []
        for _ in range(2):  # each at the worker of its number
            clients.append(cluster.client(ALONE))
            assert first_line(clients[-1]) == "8.0\n"
        # Nobody follows a worker whose supervisor does not run.
        os.kill(parent.process.pid, signal.SIGSTOP)
        try:
            os.kill(parent.workers()[-1], signal.SIGKILL)
            until(lambda: "is gone" in cluster.log)
            for one in clients:
                one.stdin.write("\n")
                one.stdin.flush()
            gone = int(re.findall(r"worker (\d) is gone", cluster.log)[0])
            other = clients[1 - gone]
            assert first_line(other) == "16.0\n"
            for step in range(3, 9):
                other.stdin.write("\n")
                other.stdin.flush()
                assert first_line(other) == f"{8.0 * step}\n"
        finally:
            os.kill(parent.process.pid, signal.SIGCONT)
        assert first_line(clients[gone]) == "16.0\n"
        for one in clients:
            one.stdin.write("end\n")
            one.stdin.flush()
            result(one)
