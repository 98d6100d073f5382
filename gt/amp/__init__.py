"""Mixed precision: `autocast`, which casts operands as PyTorch's does, and `GradScaler`."""

from gt import misses
from gt.amp.grad_scaler import GradScaler
from gt.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
