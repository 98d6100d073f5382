"""The standard's extension `fft`: `axis` and `axes` in place of PyTorch's `dim`."""

from collections.abc import Callable, Sequence

import gt
from gt._core import Tensor

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip

fftfreq, rfftfreq = gt.fft.fftfreq, gt.fft.rfftfreq


def _of_one(name: str) -> Callable[..., Tensor]:
    def transform(
        x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        out: Tensor = getattr(gt.fft, name)(x, n, axis, norm)
        return out

    return _named(transform, name)


def _of_several(name: str) -> Callable[..., Tensor]:
    def transform(
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: str = "backward",
    ) -> Tensor:
        out: Tensor = getattr(gt.fft, name)(x, s, axes, norm)
        return out

    return _named(transform, name)


def _shift(name: str) -> Callable[..., Tensor]:
    def shift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
        out: Tensor = getattr(gt.fft, name)(x, axes)
        return out

    return _named(shift, name)


def _named(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`gt.fft.{name}`."
    return function


fft, ifft, rfft, irfft, hfft, ihfft = map(
    _of_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
)
fftn, ifftn, rfftn, irfftn = map(_of_several, ("fftn", "ifftn", "rfftn", "irfftn"))
fftshift, ifftshift = map(_shift, ("fftshift", "ifftshift"))


def __dir__() -> list[str]:
    """The names of the standard."""
    return __all__
