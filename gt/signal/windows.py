"""Window functions, as torch.signal.windows has them.

Each returns a vector of `M` elements, float32 or float64, and raises ValueError for a negative
`M`, another dtype or another layout. With `sym=False` a window is one period of a periodic one.
"""

# ruff: noqa: ARG001, N803 - arguments that PyTorch takes and that mean nothing here; its names

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import gt
from gt._core import Tensor
from gt.compat import misses
from gt.errors import InvalidType

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|n - center| / tau); the center is the middle if not given (and if `sym` never)."""
    chosen = _checked("exponential", M, dtype, layout)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    middle = _period(M, sym=sym) / 2 if center is None else center

    def window() -> Tensor:
        return (-_line(M, -middle, 1 / tau, chosen).abs()).exp()

    return _window(window, M, chosen, requires_grad, 0)


def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """sin(pi * (n + 0.5) / M)."""
    chosen = _checked("cosine", M, dtype, layout)
    length = M + 1 if not sym and M > 1 else M
    return _window(
        lambda: _line(M, 0.5, math.pi / length, chosen).sin(), M, chosen, requires_grad, 0
    )


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-((n - middle) / std) ** 2 / 2)."""
    chosen = _checked("gaussian", M, dtype, layout)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    start, scale = -_period(M, sym=sym) / 2, 1 / (std * math.sqrt(2))

    def window() -> Tensor:
        return (-(_line(M, start, scale, chosen) ** 2)).exp()

    return _window(window, M, chosen, requires_grad, 0)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """i0(beta * sqrt(1 - (2 * n / (M - 1) - 1) ** 2)) / i0(beta)."""
    chosen = _checked("kaiser", M, dtype, layout)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def window() -> Tensor:
        width = gt.full((), beta, dtype=chosen)
        end = min(beta, -beta + (M - 1) * 2.0 * beta / (M - 1 if sym else M))
        k = gt.linspace(-beta, end, M, dtype=chosen)
        values: Tensor = gt.i0((width * width - k**2).sqrt()) / gt.i0(width)
        return values

    return _window(window, M, chosen, requires_grad, 1)


def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.54 - 0.46 * cos(2 * pi * n / (M - 1))."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, requires_grad=requires_grad)


def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.5 - 0.5 * cos(2 * pi * n / (M - 1))."""
    return general_hamming(
        M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, requires_grad=requires_grad
    )


def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 * cos(2 * pi * n / (M - 1)) + 0.08 * cos(4 * pi * n / (M - 1))."""
    _checked("blackman", M, dtype, layout)
    return general_cosine(
        M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout, requires_grad=requires_grad
    )


def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """1 - |2 * n / (M - 1) - 1|."""
    chosen = _checked("bartlett", M, dtype, layout)

    def window() -> Tensor:
        end = -1 + (M - 1) * 2 / (M - 1 if sym else M)
        return 1 - gt.linspace(-1, end, M, dtype=chosen).abs()

    return _window(window, M, chosen, requires_grad, 1)


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """The sum over i of (-1) ** i * a[i] * cos(2 * pi * i * n / (M - 1)).

    Raises:
        TypeError: An `a` that is no list.
        ValueError: An empty one.
    """
    chosen = _checked("general_cosine", M, dtype, layout)
    if not isinstance(a, Iterable):
        raise InvalidType("Coefficients must be a list/tuple")
    weights = list(a)
    if M > 1 and not weights:
        raise ValueError("Coefficients cannot be empty")

    def window() -> Tensor:
        k = _line(M, 0, 2 * math.pi / (M - 1 if sym else M), chosen)
        signed = [-w if i % 2 else w for i, w in enumerate(weights)]
        factors = gt.tensor(signed, dtype=chosen).unsqueeze(-1)
        times = gt.arange(len(weights), dtype=chosen).unsqueeze(-1)
        return (factors * (times * k).cos()).sum(0)

    return _window(window, M, chosen, requires_grad, 1)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - (1 - alpha) * cos(2 * pi * n / (M - 1))."""
    return general_cosine(
        M, a=[alpha, 1.0 - alpha], sym=sym, dtype=dtype, layout=layout, requires_grad=requires_grad
    )


def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """general_cosine with Nuttall's four coefficients."""
    coefficients = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(
        M, a=coefficients, sym=sym, dtype=dtype, layout=layout, requires_grad=requires_grad
    )


# ---- helpers ----


def _checked(name: str, length: int, dtype: gt.dtype | None, layout: object) -> gt.dtype:
    """The window's dtype."""
    chosen = gt.get_default_dtype() if dtype is None else dtype
    if length < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={length}")
    if layout not in (None, gt.strided):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if chosen not in (gt.float32, gt.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {_shown(chosen)}")
    return chosen


def _shown(dtype: gt.dtype) -> str:
    return repr(dtype).replace("gt.", "torch.")


def _period(length: int, *, sym: bool) -> int:
    return length if not sym and length > 1 else length - 1


def _line(length: int, start: float, scale: float, dtype: gt.dtype) -> Tensor:
    """(start + n) * scale."""
    return gt.linspace(start * scale, (start + (length - 1)) * scale, length, dtype=dtype)


def _window(
    make: Callable[[], Tensor], length: int, dtype: gt.dtype, requires_grad: bool, ones_max: int
) -> Tensor:
    """The window that `make` makes; ones for at most `ones_max` elements."""
    window = gt.ones(length, dtype=dtype) if length <= ones_max else make()
    return window.requires_grad_() if requires_grad else window


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
