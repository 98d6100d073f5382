"""Utilities beside tensors: `gt.utils.data` loads datasets."""

import importlib

from gt.compat.missing import attribute_error
from gt.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "cpp_extension", "data", "dlpack", "tensorboard"]


def __getattr__(name: str) -> object:
    """Loads seldom-used modules at their first use, such as `tensorboard` with its own
    libraries.
    """
    if name in ("cpp_extension", "tensorboard"):
        return importlib.import_module(f"gt.utils.{name}")
    raise attribute_error("gt.utils", name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the package's own use are left out."""
    return __all__
