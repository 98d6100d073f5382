"""Attention by GT's CUDA kernels: checks of the operands, and memory for the results."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from gt.worker.cuda.device import CudaDevice, RefusedError, spanned

HALVES = (torch.bfloat16, torch.float16)
# Head sizes are multiples of what a copy takes, up to the wider tile (csrc/cuda/attention.h).
WIDTH_MAX = 128
WIDTH_STEP = 8
_Rows = tuple[int, int, int, int]
_Operands = tuple[_Rows, _Rows, _Rows]


@dataclasses.dataclass(frozen=True)
class How:
    """Options of attention beside its three operands.

    Args:
        scale: Factor of the scores.
        is_causal: Query i sees keys up to i only.
        seeds: [b, h, t] of int64, from which each query's weights are dropped; None drops none.
        dropout_p: Probability of dropping a weight; unused without seeds.
    """

    scale: float
    is_causal: bool = False
    seeds: Tensor | None = None
    dropout_p: float = 0.0


class CudaAttention:
    """Attention on one device, in bfloat16 and float16. Nothing waits for a launch.

    Args:
        on: The device.
    """

    def __init__(self, on: CudaDevice) -> None:
        self._cuda, _, self._address, self._stream = on

    @staticmethod
    def takes(query: Tensor, key: Tensor, value: Tensor) -> bool:
        """True if `forward` takes these operands."""
        return _unfit(query, key, value) is None and all(map(_is_stored, (query, key, value)))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, how: How) -> tuple[Tensor, Tensor]:
        """softmax(query @ key.mT * scale) @ value, and the scores' logarithm of the sum of exp.

        Args:
            query: [b, h, t, k] of bfloat16 or float16; neighbours in k stand side by side, other
                dims in steps of multiples of 8 elements.
            key: [b, h / n, s, k], of which n heads of queries share each.
            value: [b, h / n, s, k], as `key`.
            how: The options.

        Returns:
            [b, h, t, k], and [b, h, t] of float32.
        """
        sizes = _sizes(query, key, value)
        output = query.new_empty(query.shape)
        logsumexp = query.new_empty(query.shape[:-1], dtype=torch.float32)
        operands = self._operands(query, key, value)
        options = self._options(query, how)
        results = (
            self._address("output", output, query.dtype),
            self._address("logsumexp", logsumexp, torch.float32),
        )
        dtype = _name(query)
        self._cuda.attention(dtype, sizes, operands, options, results, self._stream())
        return output, logsumexp

    def backward(
        self,
        grad: Tensor,
        operands: tuple[Tensor, Tensor, Tensor],
        results: tuple[Tensor, Tensor],
        how: How,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value; the same bits at each run.

        Args:
            grad: Gradient of the output, with strides as the operands may have.
            operands: query, key and value.
            results: The results of `forward`.
            how: The options of `forward`.
        """
        query, key, value = operands
        sizes = _sizes(query, key, value)
        output, logsumexp = results
        if grad.shape != query.shape or output.shape != query.shape:
            shapes = f"{tuple(grad.shape)}, of the output {tuple(output.shape)}"
            raise ValueError(f"attention: grad {shapes}, query {tuple(query.shape)}")
        dtype = query.dtype
        outputs = tuple(x.new_empty(x.shape) for x in operands)
        names = ("grad_query", "grad_key", "grad_value")
        gradients = [self._address(name, x, dtype) for name, x in zip(names, outputs, strict=True)]
        products = torch.empty_like(logsumexp)
        self._cuda.attention_backward(
            _name(query),
            sizes,
            self._operands(query, key, value),
            self._options(query, how),
            (
                self._address("saved output", output, dtype),
                self._address("saved logsumexp", logsumexp, torch.float32),
            ),
            self._rows("grad", grad, dtype),
            self._address("products", products, torch.float32),
            (gradients[0], gradients[1], gradients[2]),
            self._stream(),
        )
        return outputs[0], outputs[1], outputs[2]

    def _operands(self, query: Tensor, key: Tensor, value: Tensor) -> _Operands:
        return (
            self._rows("query", query, query.dtype),
            self._rows("key", key, query.dtype),
            self._rows("value", value, query.dtype),
        )

    def _rows(self, name: str, x: Tensor, dtype: torch.dtype) -> _Rows:
        """Address of an operand, and its steps from row to row, head to head and batch to batch."""
        shape, steps = x.shape, x.stride()
        if not _is_stored(x):
            text = f"attention: {name} {tuple(shape)} with strides {steps} has rows that 16 bytes"
            raise ValueError(f"{text} do not copy")
        address = self._address(name, x.as_strided((spanned(shape, steps),), (1,)), dtype)
        batch, head, row = (0 if shape[dim] <= 1 else steps[dim] for dim in range(3))
        return address, row, head, batch

    def _options(self, query: Tensor, how: How) -> tuple[int, float, bool, float]:
        seeds = how.seeds
        if seeds is not None and seeds.shape != query.shape[:-1]:
            raise ValueError(f"attention: seeds {tuple(seeds.shape)}, query {tuple(query.shape)}")
        address = self._address("seeds", seeds, torch.int64)
        return address, how.dropout_p, how.is_causal, how.scale


def _name(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _unfit(query: Tensor, key: Tensor, value: Tensor) -> str | None:
    """The property of the operands, however they are stored, that no kernel takes; None if one
    does.
    """
    dtypes = {x.dtype for x in (query, key, value)}
    if len(dtypes) != 1 or query.dtype not in HALVES:
        return " and ".join(sorted(map(str, dtypes)))
    if query.dim() != 4 or key.dim() != 4 or value.shape != key.shape:
        return "the shapes"
    b, h, _, k = query.shape
    heads = key.shape[1]
    if key.shape[0] != b or key.shape[3] != k or heads == 0 or h == 0 or h % heads:
        return "the shapes"
    if not 0 < k <= WIDTH_MAX or k % WIDTH_STEP:
        return f"a head size that is no multiple of {WIDTH_STEP} up to {WIDTH_MAX}"
    return None


def stored(x: Tensor) -> Tensor:
    """The operand with rows that are copied by 16 bytes; a copy if need be."""
    return x if _is_stored(x) else x.clone(memory_format=torch.contiguous_format)


def _sizes(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, int, int, int, int, int]:
    """Batches, heads, heads of keys, queries, keys, head size. RefusedError: no kernel
    takes them.
    """
    if (reason := _unfit(query, key, value)) is not None:
        named = zip(("query", "key", "value"), (query, key, value), strict=True)
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in named)
        raise RefusedError(reason, f"attention: no CUDA kernel takes {reason}: {shapes}")
    b, h, t, k = query.shape
    return b, h, key.shape[1], t, key.shape[2], k


def _is_stored(x: Tensor) -> bool:
    """True if rows can be copied by 16 bytes."""
    shape, steps = x.shape, x.stride()
    if steps[-1] != 1 or x.data_ptr() % 16:
        return False
    return all(
        size <= 1 or step % WIDTH_STEP == 0
        for size, step in zip(shape[:-1], steps[:-1], strict=True)
    )
