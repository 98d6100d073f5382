"""`gt._inductor`: the settings of PyTorch's compiler, which programs set and GT has no use for."""

from gt import misses
from gt._inductor import config

__all__ = ["config"]
__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
