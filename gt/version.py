"""Which GT this is, by torch.version's names; `cuda` and `hip` are None: GT is built with none."""

from gt._core import __version__

cuda: str | None = None
hip: str | None = None

__all__ = ["__version__", "cuda", "hip"]


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
