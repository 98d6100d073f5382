"""Bounds on the way to a worker, met alone and after each other: the program goes on, rightly."""

import os
import subprocess
import sys

from cluster import Cluster

# A ring has 65,536 words, a client keeps so many more for it, and uploads have slots of their own.
PROGRAM = """
import itertools, warnings
import numpy as np
import gt

def joins():  # instructions as long as a ring, behind the uploads that they need
    parts = [gt.tensor([1.0]) for _ in range(65_000)]
    return [join(parts) for join in (gt.column_stack, gt.vstack, gt.concat)], 3 * 65_000

def values():  # more of them than a worker's table begins with
    held = [gt.ones(1) for _ in range(66_000)]
    return [held[0], held[-1]], 2

def answers():  # longer than a ring, and not read at once
    return [gt.ones(200_000) * number for number in range(4)], 200_000 * 6

def failures():
    failed = [gt.ones(3)[gt.tensor([7])] for _ in range(300)]
    return [gt.ones(1)], 1

def uploads():
    return [gt.tensor(np.full(300_000, 2.0, "float32")) for _ in range(40)], 40 * 600_000

def frees():
    dropped = [gt.ones(1) * 2 for _ in range(70_000)]
    del dropped
    return [gt.ones(1)], 1

warnings.simplefilter("ignore")
bounds = [joins, values, answers, failures, uploads, frees]
# Every pair of them in a row once: the words of one and of two letters, in their order.
order = []
for place, one in enumerate(bounds):
    order += [one, *itertools.chain(*((one, two) for two in bounds[place + 1 :]))]
before, met = None, 0
for bound in [*order, joins]:
    results, expected = bound()
    if before:  # what the one before has made is read only now
        total = sum(float(value.numpy().sum(dtype="float64")) for value in before[0])
        assert total == before[1], (bound.__name__, total, before[1])
        met += 1
    before = results, expected
print("met", met)
"""
WAIT_SECONDS = 240  # of a program that stands still; it takes a tenth of that


def test_two_workers_of_one_program() -> None:
    settings = {"GT_WORKERS": "2", "GT_BACKEND": "native", "GT_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert ended.stdout == "met 36\n", ended.stderr


def test_workers_of_a_dispatcher() -> None:
    with Cluster(2, backend="native") as cluster:
        cluster.wait_for_workers()
        client = cluster.client(PROGRAM)
        output, errors = client.communicate(timeout=WAIT_SECONDS)
        assert output == "met 36\n", errors
