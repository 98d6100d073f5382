"""`gt.xpu`: Intel's GPUs, for which GT has no worker; functions that scripts call to find out."""

from gt import cuda
from gt.compat import misses, random

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "synchronize"]

manual_seed = random.manual_seed
empty_cache = cuda.empty_cache
synchronize = cuda.synchronize


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
