"""Rules for every test: which are skipped, and that a run leaves nothing behind.

No helpers for single tests here.
"""

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import file_order
import pytest
import shared_memory
from kernel_module import load_kernels

LEAVE_SECONDS = 10.0  # a dispatcher or worker that lost its client ends well within this
OURS = ("gt.worker", "gt.server", "gt-worker", "gt-dispatcher", "aten/build.py", "aten.cpp")
MARK = "GT_TEST_RUN"


if "KERNELS_UNDER_TEST" in os.environ:  # in place of the installed ones, for every test
    import gt

    gt.__dict__["_kernels"] = sys.modules["gt._kernels"] = load_kernels()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not Path("/dev/nvidiactl").exists():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
        if "slow" in item.keywords and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
    if hasattr(config, "workerinput"):  # one of several processes: files start in this order
        places = {name: place for place, name in enumerate(file_order.in_order(_names(items)))}
        items.sort(key=lambda item: places[file_order.scope(item.nodeid)])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Hands out files, and shares of some, in the order of file_order.py."""
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return file_order.scheduler(config, log)


def _names(items: list[pytest.Item]) -> list[str]:
    return [item.nodeid for item in items]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kernel_path" in metafunc.fixturenames:
        metafunc.parametrize("kernel_path", load_kernels().paths(), indirect=True)


@pytest.fixture
def kernel_path(request: pytest.FixtureRequest) -> Iterator[None]:
    """One instruction set of this machine, by which kernels run (kernel_module.on_every_path)."""
    load_kernels().set_path(request.param)
    yield
    load_kernels().set_path("auto")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiles once what the workers of all tests use, which would else begin each anew."""
    if "torch" in sys.modules and session.items and not session.config.option.collectonly:
        from gt.worker.aten import start

        with contextlib.suppress(start.UnavailableError):
            start.ready()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Every process started below inherits a mark; at the end none of GT's with it may live."""
    run = os.environ[MARK] = uuid.uuid4().hex
    before = shared_memory.names()
    yield
    if "gt" in sys.modules:
        sys.modules["gt"].disconnect()  # the workers of the tests that ran in this process
    deadline = time.monotonic() + LEAVE_SECONDS
    while (remains := _left(run, before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not remains, f"still there {LEAVE_SECONDS:.0f} s after the last test: {remains}"


def _left(run: str, before: set[str]) -> list[str]:
    new = shared_memory.names() - before
    return _processes(run) + sorted(new - _in_use_by_others(run) if new else new)


def _in_use_by_others(run: str) -> set[str]:
    """Files in shared memory that programs have mapped which this run has not started."""
    used: set[str] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            if not _is_marked(entry, run) and int(entry.name) != os.getpid():
                used |= shared_memory.mapped_by(entry)
    return used


def _is_marked(process: Path, run: str) -> bool:
    return f"{MARK}={run}".encode() in (process / "environ").read_bytes()


def _processes(run: str) -> list[str]:
    """GT's living processes that bear this run's mark: number and command line."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            marked = _is_marked(entry, run)
        except OSError:  # gone meanwhile, or another user's
            continue
        if marked and any(name in command for name in OURS):
            processes.append(f"{entry.name} {command.strip()}")
    return processes
