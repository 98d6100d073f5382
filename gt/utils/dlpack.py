"""`gt.utils.dlpack`: exchange of tensors with other libraries by DLPack, in both directions."""

from gt._core import Tensor
from gt.compat import misses
from gt.tensors.interop import dlpack, from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> object:
    """A capsule with a copy of the values, for libraries that take no object with `__dlpack__`.

    Args:
        tensor: of any shape, in a dtype that DLPack has; it needs no gradient.
    """
    return dlpack(tensor)


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
