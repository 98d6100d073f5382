"""Operators of `torch.amp.GradScaler`, of layers with normed weights and of packed sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

import gt
from gt._core import Tensor
from gt.torch.tensor import MuxTensor, of_value


def check_and_unscale_(gradients: list[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiplies the gradients with `inv_scale`; `found_inf` becomes 1 where one is not finite."""
    if not gradients:
        return
    finite = gt.stack([gradient.isfinite().all() for gradient in gradients]).all()
    found_inf.copy_(gt.maximum(found_inf, (~finite).to(found_inf.dtype).reshape(found_inf.shape)))
    for gradient in gradients:
        gradient.mul_(inv_scale.reshape(()).to(gradient.dtype))


def update_scale_(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> None:
    """The next scale: smaller after an infinity, larger after enough steps without one; reads
    nothing.
    """
    is_found = found_inf > 0
    steps = growth_tracker + 1
    grows = steps == growth_interval
    grown = self * scale_growth_factor
    grown = gt.where(grown.isfinite(), grown, self)
    next_scale = gt.where(grows, grown, self)
    growth_tracker.copy_(gt.where(is_found | grows, gt.zeros_like(steps), steps))
    self.copy_(gt.where(is_found, self * scale_backoff_factor, next_scale))


def _others(x: Tensor, dim: int) -> tuple[int, ...]:
    dim %= x.ndim
    return tuple(other for other in range(x.ndim) if other != dim)


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """`v` scaled to the norms `g` along `dim`, and its former norms."""
    norms = (v * v).sum(_others(v, dim), keepdim=True).sqrt()
    return v * (g / norms), norms.reshape(g.shape)


def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, ...]:
    """The gradients of `v` and `g`."""
    along = (grad_w * saved_v).sum(_others(saved_v, dim), keepdim=True).reshape(saved_g.shape)
    factor = saved_g / saved_norms
    grad_v = factor * (grad_w - saved_v * (along / (saved_norms * saved_norms)))
    return grad_v, along / saved_norms


def pack_padded_sequence(args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """`aten::_pack_padded_sequence`; the lengths and batch sizes are on the host."""
    del kwargs
    sequences, lengths, is_batch_first = args
    assert isinstance(sequences, MuxTensor)
    assert isinstance(lengths, torch.Tensor)
    value = sequences.value.transpose(0, 1) if is_batch_first else sequences.value  # [t, b, ...]
    counts = lengths.tolist()
    if counts != sorted(counts, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if not counts or counts[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    sizes = [sum(count > step for count in counts) for step in range(counts[0])]
    rows = [value[step, :size] for step, size in enumerate(sizes)]
    return of_value(gt.cat(rows)), torch.tensor(sizes, dtype=torch.int64)


WHOLE: dict[str, Callable[[Sequence[object], Mapping[str, object]], object]] = {
    "_pack_padded_sequence": pack_padded_sequence,
}
FUNCTIONS: dict[str, Callable[..., object]] = {
    "_amp_foreach_non_finite_check_and_unscale_": check_and_unscale_,
    "_amp_update_scale_": update_scale_,
    "_weight_norm_interface": weight_norm,
    "_weight_norm_interface_backward": weight_norm_backward,
}
