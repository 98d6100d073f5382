"""Preparation of the torch front end's tests: its C++ part is compiled once, before the first."""

import contextlib

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiles the fast path of the device `mux`: else each process of tests would begin anew."""
    if not session.items or session.config.option.collectonly:
        return
    with contextlib.suppress(ImportError):  # torch may be absent
        from gt.worker.aten import build, compiling, start

        with contextlib.suppress(start.UnavailableError):
            compiling.file(build.front(), "front", compiling.Request())
