"""Optimizer steps of the native backend: one loop of gt._kernels over a parameter and its state."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gt import _kernels
from gt.worker.backend import InPlace, Kernel
from gt.worker.native_values import FLOAT32, is_float32, rows
from gt.worker.reference import NUMPY
from gt.worker.reference_values import Array

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
    """What the step writes: the operand's own buffer, or a copy."""
    return value if is_own and _may_be_written(value) else value.copy()


def _are_float32(*values: Array | None) -> bool:
    return all(value is None or is_float32(value) for value in values)


def _sgd_step(owned: int) -> Kernel:
    """Bit k of `owned` says that operand k may be written over."""

    def kernel(
        param: Array,
        grad: Array,
        buffer: Array | None,
        lr: float,
        momentum: float,
        dampening: float,
        weight_decay: float,
        nesterov: bool,
        maximize: bool,
        first_step: bool,
    ) -> object:
        numbers = (lr, momentum, dampening, weight_decay, nesterov, maximize)
        if not _are_float32(param, grad, buffer):
            return NUMPY["sgd"](param, grad, buffer, *numbers, first_step)
        param = _written(param, bool(owned & 0b001))
        if momentum == 0:
            _kernels.sgd(param, rows(grad), None, *numbers, first_step)
            return param, _nothing(param) if buffer is None else buffer
        first_step = first_step or buffer is None
        if buffer is None:
            state = np.empty(param.shape, FLOAT32)
        else:
            state = _written(buffer, bool(owned & 0b100))
        if first_step:
            state.fill(0)  # zero times what no number is would be no number
        _kernels.sgd(param, rows(grad), state, *numbers, first_step)
        return param, state

    return kernel


def _adamw_step(owned: int) -> Kernel:
    def kernel(
        param: Array,
        grad: Array,
        exp_avg: Array,
        exp_avg_sq: Array,
        max_exp_avg_sq: Array | None,
        *numbers: Any,  # noqa: ANN401 - the row's attributes, in its order
    ) -> object:
        if not _are_float32(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq):
            return NUMPY["adamw"](param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, *numbers)
        param, first, second = (
            _written(value, bool(owned >> place & 1))
            for place, value in ((0, param), (2, exp_avg), (3, exp_avg_sq))
        )
        largest = None
        if max_exp_avg_sq is not None:
            largest = _written(max_exp_avg_sq, bool(owned >> 4 & 1))
        _kernels.adam(param, rows(grad), first, second, largest, *numbers)
        return param, first, second, _nothing(param) if largest is None else largest

    return kernel


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {"sgd": _sgd_step(0), "adamw": _adamw_step(0)}


def in_place() -> dict[str, list[InPlace]]:
    """Kernels that write over the parameter and its state: with the optional state, and without."""
    table: dict[str, list[InPlace]] = {}
    for name, step, bits in (
        ("sgd", _sgd_step, (0b101, 0b001)),
        ("adamw", _adamw_step, (0b11101, 0b01101)),
    ):
        table[name] = [(owned, step(owned), False) for owned in bits]
    return table
