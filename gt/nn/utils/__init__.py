"""Helpers for training: gradient clipping, parameters as one vector, sequences, fused norms."""

from gt import missing
from gt.nn.utils import fusion, rnn
from gt.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, get_total_norm
from gt.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from gt.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "fusion",
    "get_total_norm",
    "parameters_to_vector",
    "rnn",
    "vector_to_parameters",
]

__getattr__ = missing.hook(__name__)


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
