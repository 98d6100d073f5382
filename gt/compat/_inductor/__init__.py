"""`gt._inductor`: PyTorch's compiler settings, accepted for programs that set them; GT
uses none.
"""

from gt.compat import misses
from gt.compat._inductor import config

__all__ = ["config"]
__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
