"""torch.utils.checkpoint's names, so that programs run; no memory is saved yet."""

import sys
from collections.abc import Callable
from typing import TypeVar

from gt.config.environment import flag

T = TypeVar("T")


def checkpoint(
    function: Callable[..., T],
    *args: object,
    use_reentrant: bool | None = None,  # noqa: ARG001 - accepted
    preserve_rng_state: bool = True,  # noqa: ARG001 - accepted
    **kwargs: object,
) -> T:
    """Calls `function` once and keeps what its backward pass needs: no memory is saved yet.

    Values and gradients are those of PyTorch's checkpoint, which computes them again instead of
    keeping them. With GT_VERBOSE the first call says so.
    """
    _say()
    return function(*args, **kwargs)


_has_said: list[bool] = []


def _say() -> None:
    if not _has_said and flag("GT_VERBOSE"):
        _has_said.append(True)
        sys.stderr.write("gt: checkpoint() keeps what backward needs; it saves no memory yet\n")


__all__ = ["checkpoint"]


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
