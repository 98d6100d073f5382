"""One compiled helper for a whole run of the tests: the fixture `aten_helper`."""

from __future__ import annotations

import shutil

import pytest
import torch

from gt import config
from gt.worker.aten import start
from gt.worker.aten.binding import Binder
from gt.worker.aten.trial import Trial


@pytest.fixture(scope="session")
def aten_helper() -> Trial:
    """Compiled into the user's cache folder unless it is there (some ten seconds)."""
    if shutil.which(config.cpp_compiler()) is None:
        pytest.skip("no C++ compiler")
    helper = start.ready()
    return Trial(helper, Binder(helper, torch.device("cpu")))
