"""Memory formats of weights: accepted and ignored, for bytes are no business of a client."""

from __future__ import annotations

from typing import TypeVar

from gt.nn.module import Module

T = TypeVar("T", bound=Module)

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def convert_conv2d_weight_memory_format(module: T, memory_format: object) -> T:
    """The module itself: no number depends on a memory format."""
    del memory_format
    return module


def convert_conv3d_weight_memory_format(module: T, memory_format: object) -> T:
    """The module itself: no number depends on a memory format."""
    del memory_format
    return module


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
