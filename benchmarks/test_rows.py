"""Every row of the table as a pytest-benchmark case; the other side runs before each round of GT.

With timing off (the default of this checkout) each side runs once. No figure fails. Rows that must
be compiled first run only with timing on.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import planning
import pytest
from pairs import Row, machine, on_cores, threads
from pytest_benchmark.fixture import BenchmarkFixture
from rows import ROWS


@pytest.fixture(scope="module", autouse=True)
def _two_cores() -> Iterator[None]:
    with on_cores(), threads(None):
        yield


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row, benchmark: BenchmarkFixture) -> None:
    if row in planning.ROWS and not benchmark.enabled:
        pytest.skip("compiles the dispatcher's benchmark, which takes minutes")
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


def test_what_the_dispatchers_benchmark_prints_is_read() -> None:
    printed = "test plan/hit/one ... bench:        1,540 ns/iter (+/- 12)\n"
    assert planning.microseconds(printed, "plan/hit/one") == 1.54
    with pytest.raises(ValueError, match="nothing about plan/miss/one"):
        planning.microseconds(printed, "plan/miss/one")
