"""Both ways in which operators of the device `mux` are called: the fixture `front_path`.

A module that imports it runs each of its tests twice.
"""

import functools
import shutil
from collections.abc import Iterator

import pytest

import gt.torch  # noqa: F401 - names the device
from gt import config
from gt.torch.fast import start
from gt.worker.aten.compiling import Request


@functools.cache
def install() -> bool:
    """Compiles the fast path unless it is in the cache, and installs it; False without a
    compiler.
    """
    if shutil.which(config.cpp_compiler()) is None:
        return False
    start.install(start.ready(Request()))
    return True


@pytest.fixture(params=["C++", "Python"], autouse=True)
def front_path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of the way by which operators are called."""
    if not install() and request.param == "C++":
        pytest.skip("no C++ compiler")
    start.switch(is_on=request.param == "C++")
    yield request.param
    start.switch(is_on=True)
