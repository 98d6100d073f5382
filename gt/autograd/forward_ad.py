"""Forward-mode derivatives, which GT does not have: entering them says what to use instead."""

from gt.errors import NotSupported

__all__ = ["dual_level"]


class dual_level:  # noqa: N801 - PyTorch's name
    """Forward mode.

    Raises:
        NotSupported: always; gt.autograd.functional.jvp gives the product by two backward passes.
    """

    def __init__(self) -> None:
        raise NotSupported(
            "forward_ad: GT has no forward-mode derivatives; gt.autograd.functional.jvp(func, "
            "inputs, v) gives the same product by two backward passes"
        )


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
