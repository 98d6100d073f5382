"""Operands of several optimizer steps in the form of one kernel; no step is made here."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

# Models have a few dozen shapes of parameters; evicted tensors are made again.
_SHAPES_MAX = 256
Operands = tuple[Tensor | None, ...]


def nothing(param: Tensor) -> Tensor:
    """A placeholder for a state that this step does not have: the parameter's shape
    over one zero.
    """
    if param.numel() > 1:
        return _zero_over(param.shape, param.dtype, param.device)
    return torch.zeros_like(param)  # no two elements overlap, so kernels could write to it


@functools.lru_cache(maxsize=_SHAPES_MAX)
def _zero_over(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros((), dtype=dtype, device=device).expand(shape)


def required(operand: Tensor | None) -> Tensor:
    """An operand that every step has."""
    assert operand is not None, "only a state may be absent"
    return operand


def written(members: list[Operands], place: int, owned: int) -> list[Tensor]:
    """Buffers that a step writes: the operands' own, or copies."""
    operands = [required(one[place]) for one in members]
    return operands if owned >> place & 1 else [one.clone() for one in operands]


def contiguous(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, made contiguous: fused kernels ignore strides."""
    return [one.contiguous() for one in tensors]
