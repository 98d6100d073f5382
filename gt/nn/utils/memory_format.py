"""Memory formats of weights: accepted and ignored, since a client does not see memory."""

from __future__ import annotations

from typing import TypeVar

from gt.nn.module import Module

T = TypeVar("T", bound=Module)

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def convert_conv2d_weight_memory_format(module: T, memory_format: object) -> T:
    """Returns the module: no number depends on a memory format."""
    del memory_format
    return module


def convert_conv3d_weight_memory_format(module: T, memory_format: object) -> T:
    """Returns the module: no number depends on a memory format."""
    del memory_format
    return module


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
