"""GT's version by torch.version's names; `cuda` and `hip` are None: GT is built with neither."""

from gt import _core
from gt.compat.torch_version import __version__

cuda: str | None = None
hip: str | None = None
gt: str = _core.__version__  # GT's own version, also of its wheel and of `gt --version`

__all__ = ["__version__", "cuda", "gt", "hip"]


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
