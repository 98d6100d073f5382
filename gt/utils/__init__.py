"""What programs use beside tensors: `gt.utils.data` loads datasets."""

from gt.utils import data

__all__ = ["data"]


def __dir__() -> list[str]:
    """What users type; what this package needs itself is no part of it."""
    return __all__
