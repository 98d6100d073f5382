"""`gt.cuda.amp`: PyTorch's older names for `gt.amp` with the GPUs' list."""

from collections.abc import Callable
from typing import Any

from gt import amp
from gt._core import dtype as _dtype
from gt._core import float16
from gt.amp.older import deprecated
from gt.compat import misses

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):  # noqa: N801 - PyTorch's name
    """`gt.autocast("cuda", dtype, enabled, cache_enabled)`."""

    def __init__(
        self, enabled: bool = True, dtype: _dtype = float16, cache_enabled: bool = True
    ) -> None:
        deprecated("cuda", "autocast", "autocast('cuda', args...)")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`gt.amp.GradScaler("cuda", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        deprecated("cuda", "GradScaler", "GradScaler('cuda', args...)")
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: _dtype | None = None
) -> Callable[..., Any]:
    """`gt.amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)`."""
    deprecated("cuda", "custom_fwd", "custom_fwd(args..., device_type='cuda')")
    wrapper: Callable[..., Any] = amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)
    return wrapper


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """`gt.amp.custom_bwd(bwd, device_type="cuda")`."""
    deprecated("cuda", "custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
