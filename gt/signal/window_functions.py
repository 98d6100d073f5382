"""torch.hann_window and its siblings: the windows of gt.signal.windows by their older names.

Each returns a vector of `window_length` elements in a floating point dtype, float32 if none is
given. `periodic` windows, the default, are one period of a periodic one, as a Fourier transform
wants them. A negative length, another layout or a dtype that is not floating point is an error.
"""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

from __future__ import annotations

from collections.abc import Callable

import gt
from gt._core import Tensor
from gt.errors import InvalidType
from gt.signal import windows


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """sin(pi * n / N) ** 2, where N is the length, or one less if not `periodic`."""
    return _cosines("hann", window_length, periodic, [0.5, 0.5], dtype, layout, requires_grad)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta * cos(2 * pi * n / N), where N is the length, or one less if not `periodic`."""
    terms = [alpha, beta]
    return _cosines("hamming", window_length, periodic, terms, dtype, layout, requires_grad)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 * cos(2 * pi * n / N) + 0.08 * cos(4 * pi * n / N), N as for hann_window."""
    terms = [0.42, 0.5, 0.08]
    return _cosines("blackman", window_length, periodic, terms, dtype, layout, requires_grad)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """1 - |2 * n / N - 1|, where N is the length, or one less if not `periodic`."""

    def window(wide: gt.dtype) -> Tensor:
        return windows.bartlett(window_length, sym=not periodic, dtype=wide)

    return _as("bartlett_window", window, window_length, dtype, layout, requires_grad)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta * sqrt(1 - (2 * n / N - 1) ** 2)) / I0(beta), N as for hann_window."""

    def window(wide: gt.dtype) -> Tensor:
        return windows.kaiser(window_length, beta=beta, sym=not periodic, dtype=wide)

    return _as("kaiser_window", window, window_length, dtype, layout, requires_grad)


def _cosines(
    name: str,
    length: int,
    periodic: bool,
    terms: list[float],
    dtype: gt.dtype | None,
    layout: object,
    requires_grad: bool,
) -> Tensor:
    def window(wide: gt.dtype) -> Tensor:
        return windows.general_cosine(length, a=terms, sym=not periodic, dtype=wide)

    return _as(f"{name}_window", window, length, dtype, layout, requires_grad)


def _as(
    name: str,
    window: Callable[[gt.dtype], Tensor],
    length: int,
    dtype: gt.dtype | None,
    layout: object,
    requires_grad: bool,
) -> Tensor:
    """The window in `dtype`; half-precision windows are computed in float32."""
    if not isinstance(length, int):
        raise InvalidType(
            f"{name}(): argument 'window_length' (position 1) must be int, "
            f"not {type(length).__name__}"
        )
    chosen = gt.get_default_dtype() if dtype is None else dtype
    if layout not in {None, gt.strided}:
        raise RuntimeError(f"{name} is not implemented for sparse types")
    if not chosen.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {chosen}")
    if length < 0:
        raise RuntimeError(
            f"{name} requires non-negative window_length, got window_length={length}"
        )
    wide = chosen if chosen in {gt.float32, gt.float64} else gt.float32
    return window(wide).to(chosen).requires_grad_(requires_grad)
