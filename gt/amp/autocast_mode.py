"""`autocast`: regions whose operators compute in a lower dtype or in float32, as in PyTorch.

The lists of operators are in gt/amp/policies.txt; the casts are in gt._core and gt/amp/casting.py.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

from gt import _core
from gt._core import Tensor
from gt._core import dtype as _dtype
from gt.amp import autocast_state as state
from gt.amp.casting import DEVICES
from gt.errors import InvalidUse, InvalidValue
from gt.tensors.devices import device

P = ParamSpec("P")
R = TypeVar("R")
Step: TypeAlias = Callable[..., Any]  # of a user's autograd.Function

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

# float16 and bfloat16, as in PyTorch.
_SUPPORTED = (_core.bfloat16, _core.float16)


def is_autocast_available(device_type: str) -> bool:
    """True if autocast has a list of operators for the type of device; `gt` is the type of every
    tensor.

    Raises:
        RuntimeError: no type of device.
    """
    return device(device_type).type in (*DEVICES, *state.WITHOUT_WORKERS, "gt")


class autocast:  # noqa: N801 - PyTorch's name
    """Makes operators in a `with` block, or in a decorated function, compute in another dtype.

    Products of matrices and convolutions get operands of the lower dtype, operators that would lose
    precision get float32, by PyTorch's list for the type of device. A cast is an instruction with a
    gradient; the cast of a parameter is kept until the outermost region ends, unless the parameter
    is written. Gradients are computed in the dtypes of forward, also by a pass within a region.

    Args:
        device_type: type of device whose list applies, `cpu` or `cuda`, for values anywhere; `gt`,
            the type of `x.device`, stands for `cuda` if workers have GPUs, else for `cpu`. For
            `mps` and `xpu`, which no worker has, nothing is cast.
        dtype: the lower dtype, float16 or bfloat16; by default bfloat16 for `cpu`, else float16.
        enabled: False for a region in which nothing is cast.
        cache_enabled: whether casts of parameters are kept.

    Raises:
        ValueError: `device_type` is not a string.
        RuntimeError: the type of device has no list.
    """

    def __init__(
        self,
        device_type: str,
        dtype: _dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise InvalidValue(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        available = is_autocast_available(device_type)
        if dtype is None:
            dtype = state.get_autocast_dtype(device_type)
        if not available:
            raise InvalidUse(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = state.kind(device_type)
        self.fast_dtype = dtype
        self._cache_enabled = (
            state.is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        )
        if enabled and self.fast_dtype not in _SUPPORTED:
            name = self.device.upper()
            warnings.warn(
                f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{name} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._before: list[tuple[bool, _dtype, bool]] = []

    def __enter__(self) -> "autocast":
        self._before.append(
            (
                state.is_autocast_enabled(self.device),
                state.get_autocast_dtype(self.device),
                state.is_autocast_cache_enabled(),
            )
        )
        state.set_autocast_enabled(self.device, self._enabled)
        state.set_autocast_dtype(self.device, self.fast_dtype)
        state.autocast_increment_nesting()
        state.set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if state.autocast_decrement_nesting() == 0:
            state.clear_autocast_cache()
        enabled, dtype, keeps = self._before.pop()
        state.set_autocast_enabled(self.device, enabled)
        state.set_autocast_dtype(self.device, dtype)
        state.set_autocast_cache_enabled(keeps)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return within


def _cast(value: Any, device_type: str, dtype: _dtype) -> Any:  # noqa: ANN401 - any tree
    """A tree of values with its floating-point tensors in `dtype`, except those of float64."""
    if isinstance(value, Tensor):
        stays = not value.dtype.is_floating_point or value.dtype == _core.float64
        return value if stays else value.to(dtype)
    if isinstance(value, Mapping):
        return {
            _cast(key, device_type, dtype): _cast(item, device_type, dtype)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)([_cast(item, device_type, dtype) for item in value])
    return value


@overload
def custom_fwd(fwd: Step, *, device_type: str, cast_inputs: _dtype | None = None) -> Step: ...
@overload
def custom_fwd(
    fwd: None = None, *, device_type: str, cast_inputs: _dtype | None = None
) -> Callable[[Step], Step]: ...
def custom_fwd(
    fwd: Step | None = None, *, device_type: str, cast_inputs: _dtype | None = None
) -> Any:
    """Decorates `forward` of an autograd.Function that may run within an autocast.

    Args:
        fwd: the function.
        device_type: type of device of the region.
        cast_inputs: dtype to which floating-point tensors are cast in a region, where `forward`
            then runs outside of it; if not given, `forward` runs within it.

    Raises:
        ValueError: `device_type` is not a string.
    """
    _check_text(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as `fwd`
        context = args[0]
        context._dtype = state.get_autocast_dtype(device_type)  # noqa: SLF001 - PyTorch's name
        enabled = state.is_autocast_enabled(device_type)
        if cast_inputs is None:
            context._fwd_used_autocast = enabled  # noqa: SLF001 - PyTorch's name
            return fwd(*args, **kwargs)
        context._fwd_used_autocast = False  # noqa: SLF001 - PyTorch's name
        if not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(
                *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs)
            )

    return decorated


@overload
def custom_bwd(bwd: Step, *, device_type: str) -> Step: ...
@overload
def custom_bwd(bwd: None = None, *, device_type: str) -> Callable[[Step], Step]: ...
def custom_bwd(bwd: Step | None = None, *, device_type: str) -> Any:
    """Decorates `backward` of an autograd.Function, which runs within an autocast if `forward` did.

    `forward` is decorated by `custom_fwd`.

    Args:
        bwd: the function.
        device_type: type of device of the region.

    Raises:
        ValueError: `device_type` is not a string.
    """
    _check_text(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as `bwd`
        context = args[0]
        with autocast(
            device_type=device_type,
            enabled=context._fwd_used_autocast,  # noqa: SLF001 - PyTorch's name
            dtype=context._dtype,  # noqa: SLF001 - PyTorch's name
        ):
            return bwd(*args, **kwargs)

    return decorated


def _check_text(device_type: object) -> None:
    if not isinstance(device_type, str):
        raise InvalidValue(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
