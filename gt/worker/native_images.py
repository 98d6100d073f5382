"""Convolutions and pools of images in the native backend: windows as columns, and products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gt import _kernels
from gt.worker.native_values import FLOAT32
from gt.worker.reference_values import Array

Named = dict[str, Any]
Size = tuple[int, ...]


def _pair(value: object) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    numbers = list(value)  # type: ignore[call-overload]
    return (numbers[0], numbers[-1])


def _places(size: int, window: Sequence[int], ceil: bool) -> int:
    """How many windows there are along a dimension; with `ceil` one may end outside."""
    kernel, stride, padding, dilation = window
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (span + stride - 1 if ceil else span) // stride + 1
    if ceil and (count - 1) * stride >= size + padding:
        count -= 1  # it would begin behind the image
    return count


def _window(named: Named, kernel: tuple[int, int]) -> list[int]:
    """Kernel, stride, padding and dilation along both dimensions."""
    stride = named["stride"]
    pairs = (
        kernel,
        kernel if stride in ([], ()) else _pair(stride),
        _pair(named["padding"]),
        _pair(named.get("dilation", 1)),
    )
    return [number for pair in pairs for number in pair]


def _along(size: Size, window: Sequence[int], *, ceil: bool = False) -> tuple[int, int]:
    places = [_places(size[dim - 2], window[dim::2], ceil) for dim in range(2)]
    if min(places) < 1:
        raise ValueError(
            f"windows of {window[0]} x {window[1]} do not fit into an image of "
            f"{size[-2]} x {size[-1]} with padding {window[4]} x {window[5]}"
        )
    return places[0], places[1]


def conv_size(named: Named) -> Size:
    """The result's size, of sizes in place of tensors."""
    input, weight = named["input"], named["weight"]
    if len(input) not in (3, 4) or len(weight) != 4:
        raise ValueError(f"expected an image of 3 or 4 dimensions and a weight of 4, not {input}")
    if input[-3] != weight[1] * named["groups"]:
        raise ValueError(
            f"weight {list(weight)} in {named['groups']} groups takes {weight[1] * named['groups']}"
            f" channels, and the image {list(input)} has {input[-3]}"
        )
    if weight[0] % named["groups"]:
        raise ValueError(f"{weight[0]} output channels do not make {named['groups']} groups")
    window = _window(named, (weight[2], weight[3]))
    return (*input[:-3], weight[0], *_along(input, window))


def _columns(image: Array, window: Sequence[int], places: Size) -> Array:
    count = image.shape[0] * window[0] * window[1]
    out = np.empty((count, places[0] * places[1]), FLOAT32)
    _kernels.unfold(image, window, out)
    return out


def conv(named: Named) -> Array:
    """Each image's windows as columns, times the weights as a matrix."""
    weight, bias, groups = named["weight"], named["bias"], named["groups"]
    input = np.ascontiguousarray(named["input"])
    sizes = named | {"input": input.shape, "weight": weight.shape}
    window = _window(named, (weight.shape[2], weight.shape[3]))
    out = np.empty(conv_size(sizes), FLOAT32)
    batch = input.reshape(-1, groups, input.shape[-3] // groups, *input.shape[-2:])
    filled = out.reshape(len(batch), groups, weight.shape[0] // groups, -1)
    matrices = weight.reshape(groups, weight.shape[0] // groups, -1)
    for image, result in zip(batch, filled, strict=True):
        for part, matrix, to in zip(image, matrices, result, strict=True):
            np.matmul(matrix, _columns(part, window, out.shape[-2:]), out=to)
    return out if bias is None else np.add(out, bias.reshape(-1, 1, 1), out=out)


def conv_backward(named: Named, grad: Array, wanted: Sequence[str]) -> Mapping[str, Array]:
    """Gradients of the image, the weight and the bias."""
    weight, groups = np.ascontiguousarray(named["weight"]), named["groups"]
    input = np.ascontiguousarray(named["input"])
    window = _window(named, (weight.shape[2], weight.shape[3]))
    found: dict[str, Array] = {}
    if "bias" in wanted:
        dims = (0, 2, 3) if grad.ndim == 4 else (1, 2)
        found["bias"] = np.asarray(np.add.reduce(grad, axis=dims))
    batch = input.reshape(-1, groups, input.shape[-3] // groups, *input.shape[-2:])
    grads = grad.reshape(len(batch), groups, weight.shape[0] // groups, -1)
    matrices = weight.reshape(groups, weight.shape[0] // groups, -1)
    if "weight" in wanted:
        total = np.zeros_like(matrices)
        for image, one in zip(batch, grads, strict=True):
            for part, rows, to in zip(image, one, total, strict=True):
                np.add(to, np.matmul(rows, _columns(part, window, grad.shape[-2:]).T), out=to)
        found["weight"] = total.reshape(weight.shape)
    if "input" in wanted:
        out = np.empty(batch.shape, FLOAT32)
        for image, one in zip(out, grads, strict=True):
            for to, rows, matrix in zip(image, one, matrices, strict=True):
                _kernels.fold(np.matmul(matrix.T, rows), window, to)
        found["input"] = out.reshape(input.shape)
    return found


def pool_size(named: Named) -> Size:
    """The result's size, of a size in place of the image."""
    size = named["self"]
    if len(size) not in (3, 4):
        raise ValueError(f"expected an image of 3 or 4 dimensions, not {list(size)}")
    window = _window(named, _pair(named["kernel_size"]))
    if any(2 * pad > kernel for kernel, pad in zip(window[:2], window[4:6], strict=True)):
        raise ValueError(
            f"pad should be at most half of effective kernel size, but got {window[4:6]} "
            f"of {window[:2]}"
        )
    return (*size[:-2], *_along(size, window, ceil=named["ceil_mode"]))


def max_pool(named: Named) -> tuple[Array, Array]:
    """The largest number of each window, and its place in the plane."""
    image = np.ascontiguousarray(named["self"])
    size = pool_size(named | {"self": image.shape})
    out, places = np.empty(size, FLOAT32), np.empty(size, np.int64)
    window = _window(named, _pair(named["kernel_size"]))
    kernel, stride, padding, dilation = (window[at : at + 2] for at in range(0, 8, 2))
    _kernels.max_pool(out, places, image, kernel, stride, padding, dilation)
    return out, places


def max_pool_backward(named: Named, grad: Array) -> Array:
    """Each gradient at the place that was the largest."""
    image = named["self"]
    _, places = max_pool(named)
    plane = image.shape[-2] * image.shape[-1]
    windows = places.shape[-2] * places.shape[-1]
    firsts = np.arange(places.size // windows)[:, None] * plane
    index = places.reshape(-1, windows) + firsts
    out = np.zeros((image.size, 1), FLOAT32)
    _kernels.add_rows(out, index.reshape(-1), grad.reshape(-1, 1))
    return out.reshape(image.shape)


def _mean_weight(named: Named) -> tuple[list[int], Array]:
    """The window, and what each element of it counts, as a kernel."""
    if named["ceil_mode"] or named["divisor_override"] is not None:
        raise NotImplementedError(
            "avg_pool2d with ceil_mode or divisor_override needs a worker with torch"
        )
    kernel = _pair(named["kernel_size"])
    return _window(named, kernel), np.full(kernel, 1 / (kernel[0] * kernel[1]), FLOAT32)


def _inside(named: Named, window: Sequence[int], plane: Size) -> Array | None:
    """Which share of each window is inside the image; None where padding counts."""
    if named["count_include_pad"] or not any(window[4:6]):
        return None
    ones = np.ones((1, *plane), FLOAT32)
    columns = _columns(ones, window, _along(plane, window))
    return np.asarray(np.mean(columns, axis=0, dtype=FLOAT32))


def avg_pool(named: Named) -> Array:
    """The mean of each window."""
    image = np.ascontiguousarray(named["self"])
    size = pool_size(named | {"self": image.shape})
    window, weight = _mean_weight(named)
    share = _inside(named, window, image.shape[-2:])
    out = np.empty((image.size // max(image.shape[-2] * image.shape[-1], 1), *size[-2:]), FLOAT32)
    for plane, to in zip(image.reshape(-1, 1, *image.shape[-2:]), out, strict=True):
        np.matmul(weight.reshape(-1), _columns(plane, window, size[-2:]), out=to.reshape(-1))
    if share is not None:
        out.reshape(len(out), -1)[...] /= share
    return out.reshape(size)


def avg_pool_backward(named: Named, grad: Array) -> Array:
    """Each gradient, spread evenly over its window."""
    image = named["self"]
    window, weight = _mean_weight(named)
    share = _inside(named, window, image.shape[-2:])
    planes = grad.reshape(-1, grad.shape[-2] * grad.shape[-1])
    planes = planes if share is None else planes / share
    out = np.empty((len(planes), 1, *image.shape[-2:]), FLOAT32)
    for row, to in zip(planes, out, strict=True):
        _kernels.fold(np.ascontiguousarray(np.multiply.outer(weight.reshape(-1), row)), window, to)
    return out.reshape(image.shape)
