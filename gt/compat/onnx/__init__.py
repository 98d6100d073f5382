"""`gt.onnx`: queries of scripts; exports are refused, with a pointer to PyTorch's exporter."""

from typing import NoReturn

from gt.compat import misses
from gt.errors import NotSupported

__all__ = ["export", "is_in_onnx_export"]


def export(*args: object, **options: object) -> NoReturn:
    """Refused: GT has no graph of a module.

    Raises:
        NotSupported: always.
    """
    del args, options
    raise NotSupported(
        "onnx.export: GT makes no ONNX files; load the state_dict into the same torch.nn module "
        "(gt.to_torch converts the tensors) and export that with torch.onnx"
    )


def is_in_onnx_export() -> bool:
    """False."""
    return False


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
