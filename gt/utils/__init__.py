"""What programs use beside tensors: `gt.utils.data` loads datasets."""

from gt.utils import checkpoint, data

__all__ = ["checkpoint", "data"]


def __dir__() -> list[str]:
    """What users type; what this package needs itself is no part of it."""
    return __all__
