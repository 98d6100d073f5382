"""Attention that never holds the whole matrix of scores, by GT's kernel or PyTorch's."""

import functools

import torch
from torch import Tensor
from torch.nn import functional

from gt.worker.pytorch import dropout_attention, own_kernels
from gt.worker.pytorch import gradients as torch_gradients

_Result = tuple[Tensor, Tensor]
_CONTIGUOUS = torch.contiguous_format
_FLASH_DTYPES = (torch.bfloat16, torch.float16)
# Largest head size whose gradients every GPU with flash attention takes.
_FLASH_SIZE_MAX = 128


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    seeds: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> _Result:
    """softmax(query @ key.T * scale + mask) @ value, and the scores' logarithm of the sum of exp.

    Args:
        query: [b, h, t, k].
        key: [b, h, s, k].
        value: [b, h, s, k].
        attn_mask: Summand of the scores in the dtype of `query`; it broadcasts to [b, h, t, s].
        seeds: [b, h, t] of int64, from which each query's weights are dropped; None drops none.
        is_causal: Position t sees positions up to t only.
        dropout_p: Probability of dropping a weight; unused without seeds.
        scale: Factor of the scores.

    Returns:
        [b, h, t, k], and [b, h, t]. The second is NaN on a GPU where PyTorch runs another kernel
        than flash attention: there the gradient runs that kernel again, since these kernels save
        different things. NaN makes a wrong use visible.
    """
    if seeds is None and query.is_cuda:
        query, key, value = map(_aligned, (query, key, value))
        if _is_flash(query, key, value, attn_mask, is_causal=is_causal):
            results = torch.ops.aten._scaled_dot_product_flash_attention.default(  # noqa: SLF001
                query, key, value, 0.0, is_causal, scale=scale
            )
            return results[0].contiguous(), results[1].contiguous()
        output = functional.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale
        )
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        return output.contiguous(), query.new_full(query.shape[:-1], torch.nan, dtype=dtype)
    options = (attn_mask, seeds, is_causal, dropout_p, scale)
    if results := own_kernels.run("attention", query, key, value, *options):
        return results[0], results[1]
    if seeds is not None:
        how = dropout_attention.How(attn_mask, seeds, is_causal, dropout_p, scale)
        return dropout_attention.attention(query, key, value, how)
    query, key, value = map(_dense, (query, key, value))
    mask = _expanded(attn_mask, query, key)
    output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(  # noqa: SLF001
        query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale
    )
    return output.contiguous(), logsumexp.contiguous()


def attention_backward(
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
    """Gradients of query, key and value, from the sums that `attention` returned.

    A query that the mask lets see nothing contributes nothing.
    """
    operands = (grad, query, key, value, output, logsumexp)
    options = (attn_mask, seeds, is_causal, dropout_p, scale)
    if results := own_kernels.run("attention_backward", *operands, *options):
        return results[0], results[1], results[2]
    # These are strided for a worker that takes its part of a whole value.
    output, logsumexp = output.contiguous(), logsumexp.contiguous()
    if seeds is None and query.is_cuda:
        if grad.numel() and _is_flash(query, key, value, attn_mask, is_causal=is_causal):
            saved = (*map(_aligned, (grad, query, key, value, output)), logsumexp)
            return _flash_backward(*saved, is_causal=is_causal, scale=scale)
        return rerun_backward(grad, query, key, value, attn_mask, is_causal, scale)
    if seeds is not None:
        how = dropout_attention.How(attn_mask, seeds, is_causal, dropout_p, scale)
        return dropout_attention.attention_backward(grad, query, key, value, output, logsumexp, how)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001
    grad, query, key, value = map(_dense, (grad, query, key, value))
    mask = _expanded(attn_mask, query, key)
    grads: tuple[Tensor, Tensor, Tensor] = kernel(
        grad, query, key, value, output, logsumexp, 0.0, is_causal, attn_mask=mask, scale=scale
    )
    return grads


@functools.cache
def _has_flash(device: torch.device) -> bool:
    """Flash attention is for GPUs from Ampere on."""
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)


def _is_flash(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, *, is_causal: bool
) -> bool:
    """True if PyTorch's flash attention takes the operands, forward and backward.

    Dtypes, shapes and options alone decide: the gradient reads what the forward kernel saved.
    """
    fits = attn_mask is None and query.dtype in _FLASH_DTYPES and query.dim() == 4
    fits = fits and query.dtype == key.dtype == value.dtype and key.shape == value.shape
    if not fits or query.shape[:2] != key.shape[:2] or query.shape[3] != key.shape[3]:
        return False
    targets, size, sources = query.shape[2], query.shape[3], key.shape[2]
    is_full = query.numel() > 0 and key.numel() > 0 and (not is_causal or targets == sources)
    return is_full and size <= _FLASH_SIZE_MAX and size % 8 == 0 and _has_flash(query.device)


def _flash_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    *,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients from the sums that flash attention saved; nothing was drawn for dropout."""
    counts, sizes = (None, None), (query.shape[2], key.shape[2])
    seeds = torch.empty(2, dtype=torch.uint64, device=query.device)  # not read
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_backward.default  # noqa: SLF001
    saved = (output, logsumexp, *counts, *sizes)
    grads: tuple[Tensor, Tensor, Tensor] = kernel(
        grad, query, key, value, *saved, 0.0, is_causal, seeds, seeds.new_empty(()), scale=scale
    )
    return grads


def rerun_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients without saved results: PyTorch's kernel runs again, under its autograd."""
    with torch.inference_mode(False), torch.enable_grad():
        if not grad.numel():  # some of PyTorch's backward kernels end the process there
            return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
        mask = None if attn_mask is None else attn_mask.clone()
        query, key, value = (x.clone().requires_grad_() for x in (query, key, value))
        output = functional.scaled_dot_product_attention(
            query, key, value, mask, 0.0, is_causal, scale=scale
        )
        gradients = torch_gradients.recorded([output], (query, key, value), [grad.clone()])
    return gradients[0], gradients[1], gradients[2]


def _expanded(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """The mask expanded to a row for each target and a column for each source."""
    if mask is None:
        return None
    return _dense(mask.expand(*mask.shape[:-2], query.shape[2], key.shape[2]))


def _aligned(x: Tensor) -> Tensor:
    """The operand with rows aligned to loads of 16 bytes.

    PyTorch's CUDA kernels assume it without a check: with head size 16 sliced out of 17 in bfloat16
    they return wrong numbers or end the context by a misaligned address.
    """
    step = max(16 // x.element_size(), 1)
    steps = zip(x.shape[:-1], x.stride()[:-1], strict=True)
    is_aligned = x.data_ptr() % 16 == 0 and all(n <= 1 or at % step == 0 for n, at in steps)
    return x if is_aligned and x.stride(-1) == 1 else x.clone(memory_format=_CONTIGUOUS)


def _dense(x: Tensor) -> Tensor:
    """The operand with neighbours in the last dimension adjacent, as the kernel assumes."""
    return x if x.stride(-1) == 1 else x.contiguous()
