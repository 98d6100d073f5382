"""Helpers for training: gradient clipping and parameters as one vector."""

from gt.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, get_total_norm
from gt.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "parameters_to_vector",
    "vector_to_parameters",
]


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
