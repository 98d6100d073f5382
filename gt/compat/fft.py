"""Discrete Fourier transforms, as in torch.fft.

A function without a row of its own in ops.toml runs whole on one worker.
"""

from gt import documentation
from gt._core import Tensor, dtype
from gt.compat import misses
from gt.composite.joining import cat
from gt.tensors import creation
from gt.tensors.aten import surface
from gt.tensors.dtypes import get_default_dtype

_functions = surface.functions("f", "fft_")
globals().update(_functions)
__all__ = sorted([*_functions, "fftfreq", "rfftfreq"])  # noqa: PLE0605 - the schemas' names

__getattr__ = misses.hook(__name__)


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the `n` results of `fft`, for samples at distance `d`."""
    first = creation.arange(0, (n + 1) // 2, dtype=dtype, device=device)
    second = creation.arange(-(n // 2), 0, dtype=dtype, device=device)
    return _scaled([first, second], n * d, dtype, requires_grad=requires_grad)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """The frequencies of the results of `rfft`, for `n` samples at distance `d`."""
    numbers = creation.arange(0, n // 2 + 1, dtype=dtype, device=device)
    return _scaled([numbers], n * d, dtype, requires_grad=requires_grad)


def _scaled(parts: list[Tensor], by: float, dtype: dtype | None, *, requires_grad: bool) -> Tensor:
    steps = cat(parts, 0).to(dtype or get_default_dtype())
    return (steps * (1 / by)).requires_grad_(requires_grad)


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__


documentation.attach(__name__, globals())
