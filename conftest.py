"""Processes and threads of a run of tests: rules for what each test leaves stand in `tests`.

The sanitizers' record (tools/judged.py) depends on `tests/conftest.py`, and not on this file.
"""

import gc
import os
from collections.abc import Iterator

# PyTorch's threads sleep between operations, as a worker's do: those of several processes of tests
# would spin on the same cores. OpenMP reads this when PyTorch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import worker_forks


def pytest_configure(config: pytest.Config) -> None:
    """One server forks the workers of all processes that run tests (worker_forks.py)."""
    gc.disable()  # while tests are collected, which makes a million objects that all stay
    processes = config.getoption("numprocesses", None)
    if processes and os.environ.get(worker_forks.VARIABLE) != "off":
        config.add_cleanup(worker_forks.Server().end)


def pytest_collection_finish() -> None:
    """Collections of garbage need not visit the tests, of which there are over 30,000."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def beginning() -> worker_forks.Choice:
    return worker_forks.Choice()


@pytest.fixture(scope="module", autouse=True)
def workers_begin_as_the_file_wants(
    request: pytest.FixtureRequest, beginning: worker_forks.Choice
) -> Iterator[None]:
    with beginning.of(request.path):
        yield
