"""Convolutions over a batch, a part of it for each thread, if an instruction is worth several.

OpenMP's threads, which PyTorch's kernels use, sleep between two kernels, and one convolution is
several of them: waking them each time costs as much as they save. gt/worker/aten/batch.cpp does
this without Python, with the same bits.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from gt.worker.pytorch import threads as torch_threads

_Made = TypeVar("_Made")
_Gradients = tuple["Tensor | None", ...]


class _Convolution(Protocol):
    """torch.conv2d and its like; the arguments behind the bias are equal for all parts."""

    def __call__(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *others: object,
        **named: object,
    ) -> Tensor: ...


def _begin_thread() -> None:
    torch.get_num_threads()  # the first call sets the number
    setter = torch_threads.setter()
    assert setter is not None
    setter.call(1)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch_threads.most(), "gt-batch", _begin_thread)


def _parts(input: Tensor, weight: Tensor, *others: Tensor | None) -> list[slice]:
    """The part of the batch for each thread; empty if PyTorch is to run the whole."""
    threads, operands = torch_threads.most(), (input, weight, *others)
    recorded = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands)
    pays = (
        torch.get_num_threads() > 1
        and torch_threads.setter() is not None
        and input.is_cpu
        and weight.is_cpu
        and input.dim() == weight.dim() > 2
        and input.shape[0] >= threads
        and not recorded
    )
    if not pays:
        return []
    edges = [input.shape[0] * part // threads for part in range(threads + 1)]
    return [slice(*pair) for pair in itertools.pairwise(edges)]


def _run(calls: Sequence[Callable[[], _Made]]) -> list[_Made]:
    def one(call: Callable[[], _Made]) -> _Made:
        with torch.inference_mode():
            return call()

    return list(_pool().map(one, calls))


def _forward(operator: _Convolution) -> _Convolution:
    def convolution(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *others: object,
        **named: object,
    ) -> Tensor:
        parts = _parts(input, weight, bias)
        if not parts:
            return operator(input, weight, bias, *others, **named)
        calls = [
            functools.partial(operator, input[part], weight, bias, *others, **named)
            for part in parts
        ]
        return torch.cat(_run(calls))

    return convolution


def backward(grad: Tensor, input: Tensor, weight: Tensor, *others: object) -> _Gradients:
    """Gradients of input, weight and bias, None for unwanted ones, as aten::convolution_backward
    gives.
    """
    operator: Callable[..., _Gradients] = torch.ops.aten.convolution_backward.default
    parts = _parts(input, weight, grad)
    if not parts:
        return operator(grad, input, weight, *others)
    calls = [
        functools.partial(operator, grad[part], input[part], weight, *others) for part in parts
    ]
    columns = list(zip(*_run(calls), strict=True))
    of_input, *sums = (column if column[0] is not None else None for column in columns)
    whole = None if of_input is None else torch.cat(of_input)
    return (whole, *(None if column is None else _sum(column) for column in sums))


def _sum(parts: tuple[Tensor, ...]) -> Tensor:
    total, *others = parts
    for one in others:
        total += one
    return total


FORWARD: dict[str, Callable[..., Tensor]] = {
    "convolution": _forward(torch.ops.aten.convolution.default),
    "conv1d": _forward(torch.ops.aten.conv1d.default),
    "conv2d": _forward(torch.ops.aten.conv2d.default),
    "conv3d": _forward(torch.ops.aten.conv3d.default),
    "conv_transpose1d": _forward(torch.ops.aten.conv_transpose1d.default),
    "conv_transpose2d.input": _forward(torch.ops.aten.conv_transpose2d.input),
    "conv_transpose3d.input": _forward(torch.ops.aten.conv_transpose3d.input),
}
