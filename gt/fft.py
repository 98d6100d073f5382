"""Discrete Fourier transforms, as torch.fft has them.

A function without a row of its own in ops.toml runs whole on one worker.
"""

from gt import missing
from gt.aten import surface

_functions = surface.functions("f", "fft_")
globals().update(_functions)
__all__ = sorted(_functions)  # noqa: PLE0605 - the names of torch's own schemas

__getattr__ = missing.hook(__name__)


def __dir__() -> list[str]:
    """What users type."""
    return __all__
