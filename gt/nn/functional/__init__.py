"""Layers, activations and losses as functions, with PyTorch's names and signatures."""

from gt.aten import surface as _aten
from gt.composite.normalization import layer_norm, rms_norm
from gt.nn.functional.activation import (
    elu,
    elu_,
    gelu,
    glu,
    gumbel_softmax,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    relu_,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softsign,
    tanh,
    tanhshrink,
)
from gt.nn.functional.attention import scaled_dot_product_attention
from gt.nn.functional.batch import batch_norm, group_norm
from gt.nn.functional.distance import cosine_similarity, normalize, pairwise_distance
from gt.nn.functional.layer import dropout, embedding, linear, one_hot, pad
from gt.nn.functional.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
)

__all__ = [
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "elu_",
    "embedding",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "group_norm",
    "gumbel_softmax",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "margin_ranking_loss",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "tanh",
    "tanhshrink",
    "triplet_margin_loss",
]


_generic = {k: v for k, v in _aten.functions("n").items() if k not in globals()}
globals().update(_generic)


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return sorted({*__all__, *_generic})
