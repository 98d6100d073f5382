"""Table of the operators that GT's CUDA kernels run: the operands of each, and its use in `auto`.

A function here has the arguments of PyTorch's kernel of the same operator, and returns the same:
dtypes, shapes, strides, saved tensors. It refuses other operands before it has written anything;
PyTorch's kernel then runs (cuda/operators.py). Operands are copied only where PyTorch's kernel
would copy them too. The CPU's table is csrc/table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gt.worker import update_values
from gt.worker.cuda import attention
from gt.worker.cuda import rows as cuda_rows
from gt.worker.cuda.attention import How
from gt.worker.cuda.device import RefusedError
from gt.worker.cuda.kernels import DIMS_MAX, AdamwStep, CudaKernels
from gt.worker.cuda.rows import Moments
from gt.worker.random_place import Place, Size


def _always(_kernels: CudaKernels, *_operands: object) -> bool:
    """Pays for any operands: the kernel has the CPU's bits."""
    return True


class Row(NamedTuple):
    """An operator: its function, and its use in `auto`."""

    run: Callable[..., object]
    """Function of the device's kernels and the arguments of PyTorch's kernel."""
    pays: Callable[..., bool] | None = None
    """True for the arguments that GT_KERNELS=auto leaves to it: it is faster there on the GPUs on
    which it has been timed (benchmarks/RESULTS.md), or has the CPU's bits. None: for no
    arguments."""


# Compute capability of the GPUs (H100, H200) on which the kernel below is ahead of PyTorch's.
HOPPER = (9, 0)
# Scores from which the gradient of cross-entropy takes less time.
SCORES_MIN = 1 << 24


@functools.cache
def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == HOPPER


def _cross_entropy_backward_pays(
    kernels: CudaKernels, _grad: Tensor, log_probs: Tensor, *_others: object
) -> bool:
    """The forward kernel is behind PyTorch's; this one reads what either has saved."""
    return log_probs.numel() >= SCORES_MIN and _is_hopper(kernels.device)


def _refuse_unless(fits: bool, reason: str) -> None:
    if not fits:
        raise RefusedError(reason)


def _dtypes(*operands: Tensor | None) -> str:
    return " and ".join(str(one.dtype) for one in operands if one is not None)


# ---- random numbers ----


def _fill(
    kernels: CudaKernels, kind: str, size: Size, dtype: torch.dtype, place: Place, *limits: float
) -> Tensor:
    if not kernels.fills(kind, dtype, size):
        raise RefusedError(f"{kind} numbers of {dtype}, or in more than {DIMS_MAX} dimensions")
    out = torch.empty(size, dtype=dtype, device=kernels.device)
    return kernels.fill(kind, out, place, *limits)


def _dropout(kernels: CudaKernels, x: Tensor, p: float, place: Place) -> tuple[Tensor, Tensor]:
    if x.dtype != torch.float32:
        raise RefusedError(str(x.dtype))
    _refuse_unless(kernels.drops(x), "what is not contiguous or has more than 8 dimensions")
    return kernels.dropout(x, p, place)


# ---- products ----


def _matmul(kernels: CudaKernels, self: Tensor, other: Tensor) -> Tensor:
    return _product(kernels, self, other, None)


def _linear(kernels: CudaKernels, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    _refuse_unless(weight.dim() == 2, "a vector")
    if bias is not None and bias.dtype != input.dtype:
        raise RefusedError(_dtypes(input, weight, bias))
    if bias is not None:
        fits = bias.shape == weight.shape[:1] and bias.is_contiguous()
        _refuse_unless(fits, "a bias that is not a number a column side by side")
    return _product(kernels, input, weight.t(), bias)


def _product(kernels: CudaKernels, left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """left @ right + bias: [..., m, k] and [..., k, n] to [..., m, n]."""
    _refuse_unless(left.dim() > 1 and right.dim() > 1, "a vector")
    _refuse_unless(left.shape[-1] == right.shape[-2], "the shapes")
    a, b, batch = _factors(left, right)
    return kernels.gemm(a, b, bias=bias).view(*batch, left.shape[-2], right.shape[-1])


def _factors(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Both operands with two dimensions, or with three; and the leading dimensions of the result.

    Rows are joined where possible, for one product instead of many.
    """
    batch: tuple[int, ...] = left.shape[:-2]
    (m, k), n = left.shape[-2:], right.shape[-1]
    if right.dim() == 2 and (joined := _joined(left, math.prod(batch) * m)) is not None:
        return _dense(joined), _dense(right), batch  # [..., m, k] -> [rows, k]
    if right.shape[:-2] != batch:
        batch = _broadcast(batch, right.shape[:-2])
    count = math.prod(batch)
    a = left.expand(*batch, m, k).reshape(count, m, k)
    b = right.expand(*batch, k, n).reshape(count, k, n)
    return _dense(a), _dense(b), batch


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    pairs = zip_longest(reversed(one), reversed(other), fillvalue=1)
    sizes = [(b if a == 1 else a, a == b or 1 in (a, b)) for a, b in pairs]
    _refuse_unless(all(fits for _, fits in sizes), "the shapes")
    return tuple(size for size, _ in reversed(sizes))


def _joined(x: Tensor, rows: int) -> Tensor | None:
    """[..., m, k] as [rows, k]; None if that takes a copy."""
    try:
        return x.view(rows, x.shape[-1])
    except RuntimeError:
        return None


def _dense(x: Tensor) -> Tensor:
    """A matrix with gapless rows or columns; copied otherwise, as PyTorch does too."""
    row, column = x.stride()[-2:]
    is_stored = row == 1 or column == 1 or min(x.shape[-2:]) <= 1
    return x if is_stored else x.contiguous()


# ---- attention ----


def _attention(
    kernels: CudaKernels,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    seeds: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> tuple[Tensor, Tensor]:
    how = _how((query, key, value), attn_mask, seeds, dropout_p, scale, is_causal=is_causal)
    query, key, value = map(attention.stored, (query, key, value))
    return kernels.attention.forward(query, key, value, how)


def _attention_backward(
    kernels: CudaKernels,
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    attn_mask: Tensor | None,
    seeds: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Takes the operands that `_attention` takes, whose sums it reads: another kernel saves none.

    So dtypes, shapes and options alone decide: a saved operand may have other strides by then.
    """
    how = _how((query, key, value), attn_mask, seeds, dropout_p, scale, is_causal=is_causal)
    if grad.dtype != query.dtype:
        raise RefusedError(_dtypes(grad, query))
    query, key, value, grad = map(attention.stored, (query, key, value, grad))
    saved = (output.contiguous(), logsumexp.contiguous())
    return kernels.attention.backward(grad, (query, key, value), saved, how)


def _how(
    operands: tuple[Tensor, ...],
    attn_mask: Tensor | None,
    seeds: Tensor | None,
    dropout_p: float,
    scale: float,
    *,
    is_causal: bool,
) -> How:
    followed = any(one.requires_grad for one in operands)
    _refuse_unless(not followed, "operands that autograd follows")
    _refuse_unless(attn_mask is None, "a mask")
    _refuse_unless(seeds is None or dropout_p < 1, "a probability of 1")
    used_seeds = None if seeds is None or dropout_p == 0 else seeds.contiguous()
    return How(scale, is_causal, used_seeds, dropout_p)


# ---- rows ----


def _layer_norm(
    kernels: CudaKernels,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    size: tuple[int, ...],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_norm(size, input, weight, bias)
    x, weight, bias = _row_operands(size, input, weight, bias)
    rows_shape = input.shape[: input.dim() - len(size)] + (1,) * len(size)
    mean, rstd = (
        torch.empty(rows_shape, dtype=torch.float32, device=input.device) for _ in range(2)
    )
    out, _ = kernels.rows.layer_norm(x, weight, bias, eps, moments=Moments(mean, rstd))
    return out.view(input.shape), mean, rstd


def _layer_norm_backward(
    kernels: CudaKernels,
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    size: tuple[int, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    _check_norm(size, input, grad, weight)
    if not mean.dtype == rstd.dtype == torch.float32:
        raise RefusedError(f"mean and rstd of {_dtypes(mean, rstd)}")
    x, weight, _ = _row_operands(size, input, weight, None)
    moments = Moments(mean.contiguous(), rstd.contiguous())
    gradients = kernels.rows.layer_norm_backward(
        grad.contiguous().view(x.shape), x, moments, weight
    )
    assert gradients.bias is not None, "LayerNorm has one"
    return gradients.x.view(input.shape), gradients.weight.view(size), gradients.bias.view(size)


def _rms_norm(
    kernels: CudaKernels,
    input: Tensor,
    weight: Tensor | None,
    size: tuple[int, ...],
    eps: float,
) -> tuple[Tensor, Tensor]:
    _check_norm(size, input, weight)
    x, weight, _ = _row_operands(size, input, weight, None)
    rows_shape = input.shape[: input.dim() - len(size)] + (1,) * len(size)
    rstd = torch.empty(rows_shape, dtype=torch.float32, device=input.device)
    out, _ = kernels.rows.rms_norm(x, weight, eps, rstd=rstd)
    return out.view(input.shape), rstd


def _rms_norm_backward(
    kernels: CudaKernels,
    grad: Tensor,
    input: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    size: tuple[int, ...],
) -> tuple[Tensor, Tensor]:
    _check_norm(size, input, grad, weight)
    x, weight, _ = _row_operands(size, input, weight, None)
    grad = grad.contiguous().view(x.shape)
    gradients = kernels.rows.rms_norm_backward(grad, x, rstd.contiguous(), weight)
    return gradients.x.view(input.shape), gradients.weight.view(size)


def _check_norm(size: tuple[int, ...], input: Tensor, *others: Tensor | None) -> None:
    dtypes = {one.dtype for one in (input, *others) if one is not None}
    if len(dtypes) != 1 or input.dtype not in cuda_rows.DTYPES:
        raise RefusedError(_dtypes(input, *others))
    _refuse_unless(math.prod(size) > 0, "rows without elements")


def _row_operands(
    size: tuple[int, ...], input: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Operands with the normalized dimensions as one: [rows, columns]."""
    columns = math.prod(size)
    rows = math.prod(input.shape[: input.dim() - len(size)])
    weight, bias = (None if one is None else one.reshape(columns) for one in (weight, bias))
    weight, bias = (None if one is None else one.contiguous() for one in (weight, bias))
    return input.contiguous().view(rows, columns), weight, bias


def _cross_entropy(
    kernels: CudaKernels,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Tensor, Tensor, Tensor]:
    _check_losses(self, target, weight, label_smoothing)
    target = target.contiguous()
    losses = kernels.rows.cross_entropy(
        self.contiguous(), target, ignore_index=ignore_index, keeps_log_probs=True
    )
    assert losses.log_probs is not None, "it was asked for"
    if reduction == "none":
        return losses.loss.to(self.dtype), losses.log_probs, self.new_zeros(())
    total = (target != ignore_index).sum().to(torch.float32)
    loss = losses.loss.sum()
    loss = loss / total if reduction == "mean" else loss
    return loss.to(self.dtype), losses.log_probs, total.to(self.dtype)


def _cross_entropy_backward(
    kernels: CudaKernels,
    grad: Tensor,
    log_probs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    total_weight: Tensor,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    start: int | None = None,
    _total: int | None = None,
) -> Tensor:
    _refuse_unless(start is None, "a shard of the classes")
    _check_losses(log_probs, target, weight, label_smoothing)
    if grad.dtype != log_probs.dtype:
        raise RefusedError(_dtypes(grad, log_probs))
    each = target.numel() if reduction == "none" else 1
    _refuse_unless(grad.numel() == each, "the shapes")
    total = total_weight.contiguous() if reduction == "mean" else None
    return kernels.rows.cross_entropy_backward(
        grad.contiguous(), log_probs.contiguous(), target.contiguous(), total, ignore_index
    )


def _check_losses(
    scores: Tensor, target: Tensor, weight: Tensor | None, label_smoothing: float
) -> None:
    if scores.dtype not in cuda_rows.DTYPES or target.dtype != torch.int64:
        raise RefusedError(_dtypes(scores, target))
    _refuse_unless(weight is None, "weights of classes")
    _refuse_unless(label_smoothing == 0, "label smoothing")
    fits = scores.dim() == 2 and scores.shape[1] > 0 and target.shape == scores.shape[:1]
    _refuse_unless(fits, "other shapes than rows of scores and a target for each")


# ---- updates ----


def _adamw(
    kernels: CudaKernels,
    members: list[tuple[Tensor | None, ...]],
    numbers: Sequence[Any],
    owned: int,
) -> list[tuple[Tensor, ...]]:
    """AdamW steps of a whole group by one launch."""
    lr, beta1, beta2, eps, weight_decay, step, decoupled, maximize = numbers
    operands = [one for member in members for one in member if one is not None]
    _refuse_unless(all(member[4] is None for member in members), "amsgrad")
    _refuse_unless(not maximize, "maximize")
    _refuse_unless(decoupled or weight_decay == 0, "weight decay of Adam's, which is not AdamW's")
    dtypes = {one.dtype for one in operands}
    if dtypes != {torch.float32}:
        raise RefusedError(" and ".join(sorted(map(str, dtypes))))
    params, means, squares = (
        update_values.contiguous(update_values.written(members, place, owned))
        for place in (0, 2, 3)
    )
    grads = update_values.contiguous([update_values.required(one[1]) for one in members])
    rates = AdamwStep(lr, beta1, beta2, eps, weight_decay, int(step))
    kernels.adamw(params, grads, means, squares, rates)
    states = [update_values.nothing(param) for param in params]
    return list(zip(params, means, squares, states, strict=True))


# Operators by their row in the worker's table of kernels.
ROWS = {
    "matmul": Row(_matmul),
    "linear": Row(_linear),
    "layer_norm": Row(_layer_norm),
    "layer_norm_backward": Row(_layer_norm_backward),
    "rms_norm": Row(_rms_norm),
    "rms_norm_backward": Row(_rms_norm_backward),
    "cross_entropy": Row(_cross_entropy),
    "cross_entropy_backward": Row(_cross_entropy_backward, _cross_entropy_backward_pays),
}
# GT's own operators of the generic rows (gt/tensors/aten/own.txt), and their gradients.
GENERIC = {"attention": Row(_attention), "attention_backward": Row(_attention_backward)}
# Kernels that several rows share: all draws (pytorch/creation.py), steps of one or many parameters.
SHARED = {
    "random": Row(_fill, _always),
    "dropout": Row(_dropout, _always),
    "adamw": Row(_adamw),
}
TABLE = ROWS | GENERIC | SHARED
