"""Forward-mode derivatives, which GT does not have: each name's error tells what to use instead."""

from typing import NoReturn

from gt.compat import misses
from gt.errors import NotSupported

__all__ = ["dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


def _refused(name: str) -> NotSupported:
    return NotSupported(
        f"forward_ad.{name}: GT has no forward-mode derivatives; gt.func.jvp(func, primals, "
        "tangents) and gt.func.linearize(func, *primals) give the same products by backward passes"
    )


class dual_level:  # noqa: N801 - PyTorch's name
    """Forward mode.

    Raises:
        NotSupported: always; gt.func.jvp gives the product by two backward passes.
    """

    def __init__(self) -> None:
        raise _refused("dual_level")


def enter_dual_level() -> NoReturn:
    """Raises as dual_level does."""
    raise _refused("enter_dual_level")


def exit_dual_level(*, level: int | None = None) -> NoReturn:  # noqa: ARG001 - PyTorch's
    """Raises as dual_level does."""
    raise _refused("exit_dual_level")


def make_dual(tensor: object, tangent: object, *, level: int | None = None) -> NoReturn:  # noqa: ARG001
    """Raises as dual_level does."""
    raise _refused("make_dual")


def unpack_dual(tensor: object, *, level: int | None = None) -> NoReturn:  # noqa: ARG001
    """Raises as dual_level does."""
    raise _refused("unpack_dual")


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
