"""Mixed precision: `autocast`, which casts operands as PyTorch's does, and `GradScaler`."""

from gt.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from gt.amp.grad_scaler import GradScaler
from gt.compat import misses

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
