"""Every row of the table as a pytest-benchmark case; the other side runs before each round of GT.

With timing off (the default of this checkout) each side runs once. No figure fails.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest
from pairs import Row, machine, threads, two_cores
from pytest_benchmark.fixture import BenchmarkFixture
from rows import ROWS


@pytest.fixture(scope="module", autouse=True)
def _two_cores() -> Iterator[None]:
    with two_cores(), threads(None):
        yield


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row, benchmark: BenchmarkFixture) -> None:
    ours: list[float] = []
    others: list[float] = []
    with row.open() as sides:
        benchmark.pedantic(
            lambda: ours.append(sides.gt()),
            setup=lambda: others.append(sides.other()),
            rounds=row.rounds,
            warmup_rounds=1,
        )
    figure, other = statistics.median(ours[1:] or ours), statistics.median(others[1:] or others)
    assert figure > 0, f"{row.name}: {figure} {row.unit}"
    benchmark.extra_info |= {
        "machine": machine(),
        "unit": row.unit,
        "gt": figure,
        row.other: other,
        "ratio": figure / other,
        "target": row.target.text(row.unit),
    }
