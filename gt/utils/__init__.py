"""What programs use beside tensors: `gt.utils.data` loads datasets."""

import importlib

from gt.missing import attribute_error
from gt.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack", "tensorboard"]


def __getattr__(name: str) -> object:
    """`tensorboard` loads at its first use: it needs libraries that GT does not."""
    if name == "tensorboard":
        return importlib.import_module("gt.utils.tensorboard")
    raise attribute_error("gt.utils", name)


def __dir__() -> list[str]:
    """What users type; what this package needs itself is no part of it."""
    return __all__
