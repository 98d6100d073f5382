"""Operators of PyTorch's that programs do not call by name, made of GT's rows and functions.

Those are what PyTorch's autograd records and calls (`native_layer_norm`, `_softmax_backward_data`),
and the forms of functions that make tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import NotSupported
from gt.nn import functional as F
from gt.tensors.aten.call import call
from gt.torch import (
    bags,
    checks,
    elsewhere,
    encoder,
    files,
    groups,
    recurrent,
    scaling,
    sparse_made,
    steps,
    transforms,
)
from gt.torch.tensor import MuxTensor, of_value

Whole = Callable[[Sequence[object], Mapping[str, object]], object]
Mask = Sequence[bool]
Lengths = Tensor | list[int]

# Operators that look at their arguments as PyTorch gives them: tensors of several devices.
WHOLE: dict[str, Whole] = {
    "_to_copy": elsewhere.to_copy,
    "copy_": elsewhere.copy_,
    "_copy_from": elsewhere.copy_from,
    "_local_scalar_dense": elsewhere.item,
    "set_.source_Storage_storage_offset": files.set_,
    "set_.source_Tensor": files.share,
}


def generator_of(generator: torch.Generator) -> gt.Generator:
    """A generator of GT's whose draws follow from the state of PyTorch's, which goes on."""
    seed = torch.randint(-(2**63), 2**63 - 1, (), generator=generator, dtype=torch.int64)
    return gt.Generator().manual_seed(int(seed))


def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return self.softmax(dim, dtype=_core.float32 if half_to_float else None)


def _log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return self.log_softmax(dim, dtype=_core.float32 if half_to_float else None)


def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: _core.dtype
) -> Tensor:
    grad = _core.call("softmax_backward", grad_output, output, dim=dim)
    return grad if grad.dtype == input_dtype else grad.to(input_dtype)


def _log_softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: _core.dtype
) -> Tensor:
    grad = _core.call("log_softmax_backward", grad_output, output, dim=dim)
    return grad if grad.dtype == input_dtype else grad.to(input_dtype)


def native_layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, ...]:
    """The normalized input, and each row's mean and reciprocal of its deviation."""
    return _core.call(
        "layer_norm", input, weight, bias, normalized_shape=tuple(normalized_shape), eps=eps
    )


def native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: list[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Mask,
) -> tuple[Tensor | None, ...]:
    """The gradients of input, weight and bias."""
    del bias
    gradients = _core.call(
        "layer_norm_backward",
        grad_out,
        input,
        mean,
        rstd,
        weight,
        normalized_shape=tuple(normalized_shape),
    )
    return _masked(gradients, output_mask)


def _fused_rms_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, ...]:
    if eps is None:
        eps = gt.finfo(input.dtype).eps
    return _core.call("rms_norm", input, weight, normalized_shape=tuple(normalized_shape), eps=eps)


def _fused_rms_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: list[int],
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: Mask,
) -> tuple[Tensor | None, ...]:
    gradients = _core.call(
        "rms_norm_backward", grad_out, input, rstd, weight, normalized_shape=tuple(normalized_shape)
    )
    return _masked(gradients, output_mask)


def _masked(gradients: Sequence[Tensor], mask: Mask) -> tuple[Tensor | None, ...]:
    """The gradients that are asked for."""
    return tuple(
        gradient if is_wanted else None for gradient, is_wanted in zip(gradients, mask, strict=True)
    )


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight`."""
    del padding_idx, scale_grad_by_freq, sparse  # of the gradient
    return _core.call("embedding", weight, indices)


def embedding_dense_backward(
    grad_output: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Tensor:
    """The sums of the gradients that arrive at each row."""
    if scale_grad_by_freq:
        counts = indices.flatten().bincount(minlength=num_weights)
        grad_output = grad_output / counts[indices].unsqueeze(-1)
    padding = None if padding_idx < 0 else padding_idx
    return _core.call(
        "embedding_backward", grad_output, indices, num_weights=num_weights, padding_idx=padding
    )


_EUCLIDEAN = 2
_REDUCTIONS = ("none", "mean", "sum")


def nll_loss_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, ...]:
    """The loss, and the sum of the weights."""
    return _core.call(
        "nll_loss",
        self,
        target,
        weight,
        reduction=_REDUCTIONS[reduction],
        ignore_index=ignore_index,
    )


def nll_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """The gradient of the log-probabilities."""
    return _core.call(
        "nll_loss_backward",
        grad_output,
        self,
        target,
        weight,
        total_weight,
        reduction=_REDUCTIONS[reduction],
        ignore_index=ignore_index,
    )


def mse_loss(self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    """Squared differences."""
    return _core.call("mse_loss", self, target, reduction=_REDUCTIONS[reduction])


def mse_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """The gradient of `self`."""
    return _core.call(
        "mse_loss_backward", grad_output, self, target, reduction=_REDUCTIONS[reduction]
    )


def threshold_backward(grad_output: Tensor, self: Tensor, threshold: float) -> Tensor:
    """The gradient where `self` exceeds the threshold."""
    if threshold == 0:
        return _core.call("relu_backward", grad_output, self)
    return gt.where(self <= threshold, gt.zeros_like(grad_output), grad_output)


def gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """The gradient of gelu."""
    return _core.call("gelu_backward", grad_output, self, approximate=approximate)


def _row(name: str) -> Callable[..., object]:
    """A row without attributes whose operands are the operator's arguments."""

    def function(*operands: Tensor) -> Tensor:
        return _core.call(name, *operands)

    return function


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, ...]:
    """The input with elements dropped and the rest scaled, and the mask of elements that are
    kept.
    """
    if train is False:
        return input.clone(), gt.ones_like(input, dtype=_core.bool)
    seed, draw = _core.next_draw()
    return _core.call("dropout", input, p=p, seed=seed, draw=draw)


def native_dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The gradient of what is left."""
    return grad_output * mask * scale


def _unsafe_view(self: Tensor, size: list[int]) -> Tensor:
    return self.reshape(size)


def _uploaded(x: object) -> object:
    """Indices as GT's tensors: PyTorch takes those of the host too."""
    if isinstance(x, MuxTensor):
        return x.value
    return elsewhere.upload(x).value if isinstance(x, torch.Tensor) else x


def _indexed(function: Callable[..., Tensor]) -> Whole:
    """An operator whose second argument is a list of indices."""

    def run(args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        self, indices, *rest = args
        assert isinstance(self, torch.Tensor)
        assert isinstance(indices, Sequence)
        if not isinstance(self, MuxTensor) and not elsewhere.uploads_operands:
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({self.device})"
            )
        places = [_uploaded(x) for x in indices]
        named = {word: _uploaded(x) for word, x in kwargs.items()}
        value = _uploaded(self)
        result = function(value, places, *map(_uploaded, rest), **named)
        if result is not value:
            return of_value(result)
        return self if isinstance(self, MuxTensor) else self.copy_(of_value(result))

    return run


def _index(self: Tensor, indices: list[Tensor | None]) -> Tensor:
    return self[tuple(slice(None) if x is None else x for x in indices)]


def _has_same_storage_numel(self: Tensor, other: Tensor) -> bool:
    return _core.memory(self)[0] == _core.memory(other)[0]


WHOLE |= {
    **bags.WHOLE,
    **checks.WHOLE,
    **scaling.WHOLE,
    **sparse_made.WHOLE,
    **steps.WHOLE,
    "index.Tensor": _indexed(_index),
    "_unsafe_index.Tensor": _indexed(_index),
    "index_put": _indexed(Tensor.index_put),
    "_unsafe_index_put": _indexed(Tensor.index_put),
    "index_put_": _indexed(Tensor.index_put_),
}


def elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """Scaled exponential linear units; the usual ones have a row."""
    if scale == 1 and input_scale == 1:
        return self.elu(alpha)
    return call("elu", (self, alpha, scale, input_scale), {})  # type: ignore[no-any-return]


def pow_of_number(self: float, exponent: Tensor) -> Tensor:
    """A number to the powers of a tensor."""
    return gt.pow(self, exponent)


def rrelu_with_noise(
    self: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: gt.Generator | None = None,
) -> Tensor:
    """Leaky units, whose slopes are drawn and stand in `noise` afterwards."""
    if not training:
        return self.leaky_relu((lower + upper) / 2)
    slopes = gt.empty_like(self).uniform_(lower, upper, generator=generator)
    noise.copy_(gt.where(self > 0, gt.ones_like(self), slopes))
    return self * noise


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, ...]:
    """The losses; nothing is kept for the backward operator, which computes them again."""
    loss = F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, "none", zero_infinity
    )
    return loss, gt.empty(0, dtype=loss.dtype)


def _ctc_loss_backward(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    neg_log_likelihood: Tensor,
    log_alpha: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    del neg_log_likelihood, log_alpha
    with gt.enable_grad():
        leaf = log_probs.detach().requires_grad_()
        loss, _ = _ctc_loss(leaf, targets, input_lengths, target_lengths, blank, zero_infinity)
        (gradient,) = gt.autograd.grad(loss, leaf, grad)
    assert gradient is not None, "the loss depends on them"
    return gradient


def _unique(self: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, ...]:
    values, inverse, _ = call("_unique2", (self, sorted, return_inverse), {})
    return values, inverse


def _histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Integers are counted too, as on PyTorch's other devices but the host."""
    if self.is_floating_point():
        return self.histc(bins, min, max)
    return self.double().histc(bins, min, max).to(self.dtype)


def linalg_vector_norm(
    self: Tensor,
    ord: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: _core.dtype | None = None,
) -> Tensor:
    """The usual norm has a row, which workers without torch have too."""
    if ord == _EUCLIDEAN and dtype is None and self.is_floating_point():
        return self.norm(dim=dim or None, keepdim=keepdim)
    words = {"dtype": dtype}
    return call("linalg_vector_norm", (self, ord, dim, keepdim), words)  # type: ignore[no-any-return]


def _safe_softmax(self: Tensor, dim: int, dtype: _core.dtype | None = None) -> Tensor:
    """Zeros where all is minus infinity."""
    try:
        return call("_safe_softmax", (self, dim, dtype), {})  # type: ignore[no-any-return]
    except NotSupported:  # by workers without torch
        weights = self.softmax(dim, dtype=dtype)
        return weights.masked_fill((self == -math.inf).all(dim, keepdim=True), 0.0)


def arange(start: float, end: float, step: float = 1, *, dtype: _core.dtype) -> Tensor:
    """Numbers from `start` to below `end`."""
    return gt.arange(start, end, step, dtype=dtype)


FUNCTIONS: dict[str, Callable[..., object]] = {
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "_softmax_backward_data": _softmax_backward_data,
    "_log_softmax_backward_data": _log_softmax_backward_data,
    "native_layer_norm": native_layer_norm,
    "native_layer_norm_backward": native_layer_norm_backward,
    "_fused_rms_norm": _fused_rms_norm,
    "_fused_rms_norm_backward": _fused_rms_norm_backward,
    "embedding": embedding,
    "embedding_dense_backward": embedding_dense_backward,
    "nll_loss_forward": nll_loss_forward,
    "nll_loss_backward": nll_loss_backward,
    "mse_loss": mse_loss,
    "mse_loss_backward": mse_loss_backward,
    "threshold_backward": threshold_backward,
    "gelu_backward": gelu_backward,
    "tanh_backward": _row("tanh_backward"),
    "sigmoid_backward": _row("sigmoid_backward"),
    "silu_backward": _row("silu_backward"),
    "native_dropout": native_dropout,
    "native_dropout_backward": native_dropout_backward,
    "_unsafe_view": _unsafe_view,
    "_ctc_loss": _ctc_loss,
    "_ctc_loss.Tensor": _ctc_loss,
    "_ctc_loss_backward": _ctc_loss_backward,
    "_ctc_loss_backward.Tensor": _ctc_loss_backward,
    "_unique": _unique,
    "histc": _histc,
    "linalg_vector_norm": linalg_vector_norm,
    "_safe_softmax": _safe_softmax,
    "elu": elu,
    "pow.Scalar": pow_of_number,
    "rrelu_with_noise": rrelu_with_noise,
    "_adaptive_avg_pool3d": F.adaptive_avg_pool3d,
    "_has_same_storage_numel": _has_same_storage_numel,
    **bags.FUNCTIONS,
    **checks.FUNCTIONS,
    **encoder.FUNCTIONS,
    **groups.FUNCTIONS,
    **scaling.FUNCTIONS,
    **transforms.FUNCTIONS,
    "arange.start_out": arange,
    **recurrent.FUNCTIONS,
}
