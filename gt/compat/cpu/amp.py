"""`gt.cpu.amp`: PyTorch's older names for `gt.amp` with the CPU's list."""

from gt import amp
from gt._core import bfloat16
from gt._core import dtype as _dtype
from gt.amp.older import deprecated

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):  # noqa: N801 - PyTorch's name
    """`gt.autocast("cpu", dtype, enabled, cache_enabled)`."""

    def __init__(
        self, enabled: bool = True, dtype: _dtype = bfloat16, cache_enabled: bool = True
    ) -> None:
        deprecated("cpu", "autocast", "autocast('cpu', args...)")
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`gt.amp.GradScaler("cpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        deprecated("cpu", "GradScaler", "GradScaler('cpu', args...)")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
