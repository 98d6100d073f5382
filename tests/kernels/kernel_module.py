"""The kernels under test: the installed ones, or a fresh build in the folder KERNELS_UNDER_TEST,
which needs no installed GT.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

# Runs a test once for each instruction set of this machine.
on_every_path = pytest.mark.usefixtures("kernel_path")

_SOURCE = Path(__file__).parent.parent.parent


def _load(name: str, built: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, built)
    assert spec is not None, built
    assert spec.loader is not None, built
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_kernels() -> ModuleType:
    """The module gt._kernels."""
    folder = os.environ.get("KERNELS_UNDER_TEST")
    if folder is None or "gt._kernels" in sys.modules:
        return importlib.import_module("gt._kernels")
    return _load("gt._kernels", Path(folder) / "_kernels.abi3.so")


def load_reference() -> ModuleType:
    """The numpy reference that random numbers must equal."""
    name = "gt.worker.reference.random_numbers"
    if "KERNELS_UNDER_TEST" not in os.environ:
        return importlib.import_module(name)
    return _load(name, _SOURCE / "gt" / "worker" / "reference/random_numbers.py")
