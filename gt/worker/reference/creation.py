"""Rows of the families create, random and update in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gt.worker.backend import Kernel
from gt.worker.random_place import Place, Size
from gt.worker.reference import random_numbers
from gt.worker.reference.values import (
    Array,
    Bfloat16,
    cast,
    dtype_name,
    is_float,
    narrowed,
    wide_name,
    widened,
)

Number = int | float | bool
Floats = npt.NDArray[np.floating]

_INTEGERS_DRAWN = ("int64", "int32")
_BERNOULLI_DRAWN = ("bool", "int64", "int32")


def _full(size: Size, value: Number, dtype: str) -> Array:
    return cast(np.full(size, value), dtype)


def _full_like(_like: Array, size: Size, value: Number, dtype: str) -> Array:
    return _full(size, value, dtype)


def _arange(start: Number, end: Number, step: Number, dtype: str) -> Array:
    count = max(int(np.ceil((float(end) - float(start)) / float(step))), 0)
    exact = np.float64 if is_float(dtype) else np.int64
    return narrowed(np.asarray(start, exact) + np.arange(count) * np.asarray(step, exact), dtype)


def _eye(n: int, m: int, dtype: str) -> Array:
    return narrowed(np.eye(n, m), dtype)


def _linspace(start: Number, end: Number, steps: int, dtype: str) -> Array:
    return narrowed(np.linspace(float(start), float(end), steps), dtype)


def _drawn(kind: str, size: Size, name: str, place: Place, *limits: float) -> Array:
    draws = getattr(random_numbers, kind)
    out = np.asarray(draws(size, name, *place.words, *limits, *place.box(size)))
    return out.view(Bfloat16) if name == "bfloat16" else out


class Random:
    """Rows of the family random for a function that draws: (kind, size, dtype, place, limits) ->
    values.
    """

    def __init__(self, drawn: Callable[..., Array] = _drawn) -> None:
        self._drawn = drawn

    def uniform(
        self,
        size: Size,
        dtype: str,
        low: float,
        high: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> Array:
        return self._drawn("uniform", size, dtype, Place(seed, draw, whole, start), low, high)

    def normal(
        self,
        size: Size,
        dtype: str,
        mean: float,
        std: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> Array:
        return self._drawn("normal", size, dtype, Place(seed, draw, whole, start), mean, std)

    def randint(
        self,
        size: Size,
        dtype: str,
        low: int,
        high: int,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> Array:
        name = dtype if dtype in _INTEGERS_DRAWN else "int64"
        place = Place(seed, draw, whole, start)
        return cast(self._drawn("integers", size, name, place, low, high), dtype)

    def bernoulli(
        self,
        size: Size,
        dtype: str,
        p: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> Array:
        name = dtype if dtype in _BERNOULLI_DRAWN or is_float(dtype) else "bool"
        place = Place(seed, draw, whole, start)
        return cast(self._drawn("bernoulli", size, name, place, p), dtype)

    def like(
        self,
        _like: Array,
        size: Size,
        dtype: str,
        kind: str,
        first: Number,
        second: Number,
        *place: int | Size | None,
    ) -> Array:
        parameters = (first,) if kind == "bernoulli" else (first, second)
        draws: Callable[..., Array] = getattr(self, kind)
        return draws(size, dtype, *parameters, *place)

    def dropout(
        self,
        value: Array,
        p: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> tuple[Array, Array]:
        place = Place(seed, draw, whole, start)
        mask = self._drawn("dropout_mask", value.shape, "bool", place, p)
        scale = 0.0 if p == 1 else 1 / (1 - p)
        name = dtype_name(value)
        # Rounded after each product, as two kernels would.
        product = widened(narrowed(widened(value) * mask, name))
        return narrowed(product * np.asarray(scale, wide_name(name)), name), mask

    def rows(self) -> dict[str, Kernel]:
        """Kernels by row."""
        return {
            "uniform": self.uniform,
            "normal": self.normal,
            "randint": self.randint,
            "bernoulli": self.bernoulli,
            "random_like": self.like,
            "dropout": self.dropout,
        }


def _state(value: Array | None, like: Floats) -> Floats:
    return np.zeros_like(like) if value is None else np.asarray(widened(value))


def _sgd(
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
) -> tuple[Array, Array]:
    name, p = dtype_name(param), widened(param)
    g = -widened(grad) if maximize else widened(grad)
    g = g + weight_decay * p
    state = _state(buffer, p)
    if momentum != 0:
        first = first_step or buffer is None
        state = g if first else momentum * state + (1 - dampening) * g
        g = g + momentum * state if nesterov else state
    return narrowed(p - lr * g, name), narrowed(state, name)


def _adamw(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    max_exp_avg_sq: Array | None,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    decoupled: bool,
    maximize: bool,
) -> tuple[Array, Array, Array, Array]:
    name, p = dtype_name(param), widened(param)
    g = -widened(grad) if maximize else widened(grad)
    if decoupled:
        p = p - lr * weight_decay * p
    else:
        g = g + weight_decay * p
    first = beta1 * widened(exp_avg) + (1 - beta1) * g
    second = beta2 * widened(exp_avg_sq) + (1 - beta2) * g * g
    largest = _state(max_exp_avg_sq, p)
    largest = largest if max_exp_avg_sq is None else np.maximum(largest, second)
    chosen = second if max_exp_avg_sq is None else largest
    scale = np.sqrt(chosen) / np.sqrt(1 - beta2**step) + eps
    p = p - lr / (1 - beta1**step) * first / scale
    new = (narrowed(p, name), narrowed(first, name), narrowed(second, name))
    return *new, narrowed(largest, name)


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    rows = (_full, _full_like, _arange, _eye, _linspace, _sgd, _adamw)
    return {row.__name__.removeprefix("_"): row for row in rows} | Random().rows()
