"""Mixed precision: `autocast`, which casts operands as PyTorch's does, and `GradScaler`."""

import importlib
from typing import TYPE_CHECKING

from gt.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from gt.compat import misses

if TYPE_CHECKING:
    from gt.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_missing = misses.hook(__name__)


def __getattr__(name: str) -> object:
    """Loads GradScaler at its first use: it needs gt.optim, which `import gt` does not."""
    if name == "GradScaler":
        return importlib.import_module("gt.amp.grad_scaler").GradScaler
    return _missing(name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
