"""Guava's benchmark with small sizes, once: losses must agree; no time fails."""

from __future__ import annotations

import guava
import pytest
from guava_peers import Sizes
from pairs import on_cores, threads

SMALL = Sizes(
    width=16, heads=2, layers=4, inner=32, vocabulary=24, length=6, batch=2, micro_batches=4
)


@pytest.mark.parametrize(("way", "library"), [("data", "gt"), ("pipeline", "torch")])
def test_a_case_gives_the_losses_of_pytorchs_own_way(way: str, library: str) -> None:
    case = guava.Case(way, 2, way, 1.0)
    with on_cores(), threads(1):
        costs = guava.measure(case, SMALL, guava.LIBRARIES[library], steps=2, rounds=1)
    assert min(cost.elapsed for cost in costs) > 0
    assert len(guava.line(case, costs)) == len(guava.HEAD)


def test_losses_that_differ_are_an_error() -> None:
    with pytest.raises(ValueError, match="beside DDP: losses"):
        guava.compare(guava.CASES["data-2"], [1.0, 2.0], [1.0, 2.0002])
