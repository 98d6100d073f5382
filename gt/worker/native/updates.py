"""Optimizer steps of the native backend: loops of gt._kernels over parameters and their state.

Quick: parameters, gradients and states of float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gt import _kernels
from gt.worker.backend import InPlace, Kernel
from gt.worker.native.values import FLOAT32, is_float32, rows
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array

_Operands = tuple[Array | None, ...]
_Results = tuple[Array, ...]
_Numbers = Sequence[Any]
_Step = Callable[[list[_Operands], _Numbers, int], list[_Results]]

# Models have a few dozen shapes of parameters; what falls out is only made again.
_SHAPES_MAX = 256


def _nothing(param: Array) -> Array:
    """Stands for a state that this step does not have: the parameter's shape over one zero."""
    return _zero_over(param.shape) if param.size > 1 else np.zeros(param.shape, FLOAT32)


@functools.lru_cache(maxsize=_SHAPES_MAX)
def _zero_over(shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.zeros((), FLOAT32), shape)


def _may_be_written(value: Array) -> bool:
    return value.flags.c_contiguous and value.flags.writeable


def _written(value: Array, is_own: bool) -> Array:
    """Buffer that the step writes: the operand's own, or a copy."""
    return value if is_own and _may_be_written(value) else value.copy()


def _are_float32(members: list[_Operands]) -> bool:
    return all(value is None or is_float32(value) for one in members for value in one)


def _sgd_step(members: list[_Operands], numbers: _Numbers, owned: int) -> list[_Results]:
    """Steps with equal attributes; bit k of `owned` says that operands k may be written over."""
    if not _are_float32(members):
        return [NUMPY["sgd"](*one, *numbers) for one in members]  # type: ignore[misc]
    lr, momentum, dampening, weight_decay, nesterov, maximize, first_step = numbers
    params, grads = _column_written(members, 0, owned), _column_read(members, 1)
    buffers = _column_written(members, 2, owned)
    states = []
    if momentum != 0:
        first_step = first_step or not buffers
        states = buffers or [np.empty(param.shape, FLOAT32) for param in params]
        for state in states if first_step else []:
            state.fill(0)  # zero times what no number is would be no number
    rates = (lr, momentum, dampening, weight_decay)
    _kernels.sgd(params, grads, states, *rates, nesterov, maximize, first_step)
    results = states or buffers or [_nothing(param) for param in params]
    return list(zip(params, results, strict=True))


def _adamw_step(members: list[_Operands], numbers: _Numbers, owned: int) -> list[_Results]:
    if not _are_float32(members):
        return [NUMPY["adamw"](*one, *numbers) for one in members]  # type: ignore[misc]
    params, first, second, largest = (
        _column_written(members, place, owned) for place in (0, 2, 3, 4)
    )
    _kernels.adam(params, _column_read(members, 1), first, second, largest, *numbers)
    largest = largest or [_nothing(param) for param in params]
    return list(zip(params, first, second, largest, strict=True))


def _column_written(members: list[_Operands], place: int, owned: int) -> list[Array]:
    """Buffers that the steps write; none for a state that they do not have."""
    values = [one[place] for one in members]
    return [_written(one, bool(owned >> place & 1)) for one in values if one is not None]


def _column_read(members: list[_Operands], place: int) -> list[Array]:
    return [rows(value) for one in members if (value := one[place]) is not None]


# By row: a list of steps, how many operands the row has, and which are written over: with the
# optional state, and without.
_STEPS: dict[str, tuple[_Step, int, tuple[int, int]]] = {
    "sgd": (_sgd_step, 3, (0b101, 0b001)),
    "adamw": (_adamw_step, 5, (0b11101, 0b01101)),
}


def _single(step: _Step, operands: int, owned: int) -> Kernel:
    return lambda *given: step([given[:operands]], given[operands:], owned)[0]


def _grouped(step: _Step, owned: int) -> Kernel:
    return lambda members, *numbers: step(members, numbers, owned)


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {row: _single(step, operands, 0) for row, (step, operands, _) in _STEPS.items()}


def in_place() -> dict[str, list[InPlace]]:
    """Kernels that write over the parameter and its state."""
    return {
        row: [(over, _single(step, operands, over), False) for over in bits]
        for row, (step, operands, bits) in _STEPS.items()
    }


def grouped() -> dict[str, dict[int, Kernel]]:
    """Kernels for lists of steps with equal attributes, by the operands that they write over."""
    return {
        row: {over: _grouped(step, over) for over in bits}
        for row, (step, _, bits) in _STEPS.items()
    }
