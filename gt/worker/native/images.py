"""Convolutions and pools of images, and of lines, in the native backend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gt import _kernels
from gt.worker.native import threads
from gt.worker.native.reductions import sum_over
from gt.worker.native.values import FLOAT32
from gt.worker.reference.values import Array

Named = dict[str, Any]
Size = tuple[int, ...]


def _threads() -> int:
    return threads.count()


def _pair(value: object) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    numbers = list(value)  # type: ignore[call-overload]
    return (numbers[0], numbers[-1])


def _places(size: int, window: Sequence[int], ceil: bool) -> int:
    """Number of windows along a dimension; with `ceil` one may end outside."""
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


def _as_batch(image: Array) -> Array:
    """With a batch of one where there is none."""
    image = np.ascontiguousarray(image)
    return image if image.ndim == 4 else image[None]


def conv(named: Named) -> Array:
    """A convolution, by blocks of what windows see."""
    weight, bias = np.ascontiguousarray(named["weight"]), named["bias"]
    sizes = named | {"input": named["input"].shape, "weight": weight.shape}
    out = np.empty(conv_size(sizes), FLOAT32)
    bias = None if bias is None else np.ascontiguousarray(bias)
    window = _window(named, (weight.shape[2], weight.shape[3]))
    images = _as_batch(named["input"])
    _kernels.conv2d(_as_batch(out), images, weight, bias, window, named["groups"], _threads())
    return out


def conv_backward(named: Named, grad: Array, wanted: Sequence[str]) -> Mapping[str, Array]:
    """Gradients of the image, the weight and the bias."""
    input, weight = named["input"], np.ascontiguousarray(named["weight"])
    window = _window(named, (weight.shape[2], weight.shape[3]))
    rest = (window, named["groups"], _threads())
    grads = _as_batch(grad)
    gradients: dict[str, Array] = {}
    if "bias" in wanted:
        gradients["bias"] = sum_over(grads, (0, 2, 3))
    if "weight" in wanted:
        gradients["weight"] = np.empty(weight.shape, FLOAT32)
        _kernels.conv2d_weight_grad(gradients["weight"], grads, _as_batch(input), *rest)
    if "input" in wanted:
        gradients["input"] = np.empty(input.shape, FLOAT32)
        _kernels.conv2d_input_grad(_as_batch(gradients["input"]), grads, weight, *rest)
    return gradients


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
    _kernels.max_pool(out, places, image, kernel, stride, padding, dilation, _threads())
    return out, places


def max_pool_backward(named: Named, grad: Array, places: Array) -> Array:
    """Each gradient at the place that was the largest."""
    out, places = np.empty(named["self"].shape, FLOAT32), np.ascontiguousarray(places)
    _kernels.max_pool_backward(_planes(out), _planes(grad), _planes(places), _threads())
    return out


def _planes(image: Array) -> Array:
    return image.reshape(math.prod(image.shape[:-2]), *image.shape[-2:])


def _mean_of(named: Named) -> tuple[list[int], bool, int, int]:
    """The window, whether padding counts, the divisor or 0, and threads."""
    window = _window(named, _pair(named["kernel_size"]))
    divisor = named["divisor_override"]
    if divisor is not None and divisor <= 0:
        raise NotImplementedError("avg_pool2d by such a divisor needs a worker with torch")
    return window, named["count_include_pad"], divisor or 0, _threads()


def avg_pool(named: Named) -> Array:
    """The mean of each window."""
    image = np.ascontiguousarray(named["self"])
    out = np.empty(pool_size(named | {"self": image.shape}), FLOAT32)
    _kernels.avg_pool(_planes(out), _planes(image), *_mean_of(named))
    return out


def avg_pool_backward(named: Named, grad: Array) -> Array:
    """Each gradient, spread evenly over its window."""
    out = np.empty(named["self"].shape, FLOAT32)
    _kernels.avg_pool_backward(_planes(out), _planes(grad), *_mean_of(named))
    return out


def of_line(named: Named) -> Named:
    """Arguments of a convolution or pool of lines, for images of one row."""
    image: Named = {"divisor_override": None} | named
    for name in {"input", "weight", "self"} & named.keys():
        value = named[name]
        is_size = isinstance(value, tuple)
        image[name] = (*value[:-1], 1, value[-1]) if is_size else value[..., None, :]
    for name, alone in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
        if name in named and named[name] not in ([], ()):
            image[name] = (alone, _pair(named[name])[1])
    return image
