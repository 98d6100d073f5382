"""The family generic of the native backend: convolutions, pools, attention, without PyTorch.

An operator here says what it results in, computes, and differentiates; any other is refused as the
numpy backend refuses it. Images are float32, [batch, channels, height, width], and lines
[batch, channels, length].

Quick: convolutions, maximum and average pools over one and two dimensions, and attention without
dropout, of float32. Any other operator or dtype is refused, since numpy has none of these.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gt.tensors.aten import arguments, schemas
from gt.worker import parts
from gt.worker.backend import Kernel
from gt.worker.native import attention as native_attention
from gt.worker.native import images
from gt.worker.native.values import FLOAT32
from gt.worker.reference.generic import refuse
from gt.worker.reference.values import DTYPES, Array

# The elements of the answer to a question, one byte each.
_ANSWER_BYTES = 4096
# End mark of the places of one derivative.
_END = -1
_FLOAT, _INT = DTYPES.index("float32"), DTYPES.index("int64")

Named = dict[str, Any]
Shapes = list[tuple[int, tuple[int, ...]]]


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """One overload, of arguments by name."""

    # Names of the arguments that are images or weights, in order.
    tensors: tuple[str, ...]
    # Dtypes and sizes of the results, of the tensors' sizes in place of the tensors.
    results: Callable[[Named], Shapes]
    compute: Callable[[Named], tuple[Array, ...]]
    # Gradients of `tensors` whose names are wanted, of the first result's gradient and of those
    # results that gt/tensors/aten/backward.txt saves: none where it has no line.
    gradients: Callable[[Named, Array, Sequence[Array], Sequence[str]], Mapping[str, Array]]


def _conv_results(named: Named) -> Shapes:
    return [(_FLOAT, images.conv_size(named))]


def _pool_results(named: Named) -> Shapes:
    return [(_FLOAT, images.pool_size(named))]


def _places_results(named: Named) -> Shapes:
    size = images.pool_size(named)
    return [(_FLOAT, size), (_INT, size)]


def _pool_gradients(
    named: Named, grad: Array, saved: Sequence[Array], _wanted: Sequence[str]
) -> Mapping[str, Array]:
    (places,) = saved or images.max_pool(named)[1:]
    return {"self": images.max_pool_backward(named, grad, places)}


def _of_lines(images_of: Operator) -> Operator:
    """The operator for lines, which are images of one row."""

    def results(named: Named) -> Shapes:
        image_values = images_of.results(images.of_line(named))
        return [(dtype, (*size[:-2], size[-1])) for dtype, size in image_values]

    def compute(named: Named) -> tuple[Array, ...]:
        return tuple(one[..., 0, :] for one in images_of.compute(images.of_line(named)))

    def gradients(
        named: Named, grad: Array, saved: Sequence[Array], wanted: Sequence[str]
    ) -> Mapping[str, Array]:
        rows = [x[..., None, :] for x in saved]
        image_values = images_of.gradients(images.of_line(named), grad[..., None, :], rows, wanted)
        return {
            word: one if word == "bias" else one[..., 0, :] for word, one in image_values.items()
        }

    return Operator(images_of.tensors, results, compute, gradients)


_IMAGES = {
    "conv2d": Operator(
        ("input", "weight", "bias"),
        _conv_results,
        lambda named: (images.conv(named),),
        lambda named, grad, _saved, wanted: images.conv_backward(named, grad, wanted),
    ),
    "max_pool2d": Operator(
        ("self",), _pool_results, lambda named: images.max_pool(named)[:1], _pool_gradients
    ),
    "max_pool2d_with_indices": Operator(
        ("self",), _places_results, images.max_pool, _pool_gradients
    ),
    "avg_pool2d": Operator(
        ("self",),
        _pool_results,
        lambda named: (images.avg_pool(named),),
        lambda named, grad, _saved, _wanted: {"self": images.avg_pool_backward(named, grad)},
    ),
}
_ATTENTION = Operator(
    native_attention.TENSORS,
    lambda named: [(_FLOAT, size) for size in native_attention.sizes(named)],
    native_attention.compute,
    native_attention.gradients,
)
_LINES = {"conv1d": "conv2d", "max_pool1d": "max_pool2d", "avg_pool1d": "avg_pool2d"}
_LINES["max_pool1d_with_indices"] = "max_pool2d_with_indices"
_OPERATORS = {
    **_IMAGES,
    **{name: _of_lines(_IMAGES[image]) for name, image in _LINES.items()},
    "attention": _ATTENTION,
}


@functools.lru_cache(maxsize=4096)
def _call(overload: str, text: str) -> tuple[Operator, Callable[[Sequence[Any]], Named], int]:
    """The operator, what names its arguments, and how many operands are its own."""
    operator = _OPERATORS.get(overload)
    if operator is None:
        refuse((), overload)
    build, count = arguments.parse(text, str)
    schema = next(x for x in schemas.of(overload.partition(".")[0]) if x.overload == overload)
    defaults = {argument.name: argument.default for argument in schema.arguments}
    positional = [argument.name for argument in schema.arguments if not argument.is_keyword]

    def named(operands: Sequence[Any]) -> Named:
        args, by_name = build(operands)
        return defaults | dict(zip(positional, args, strict=False)) | by_name

    return operator, named, count


def _aten(
    operands: Sequence[Array | None],
    overload: str,
    text: str,
    wanted: Sequence[int],
    results: Sequence[int],
    _differentiable: bool,
    _default: object,
    saves: Sequence[int] | None = None,
    _cuts: Sequence[int] | None = None,
    _windows: Sequence[int] | None = None,
    part: Sequence[int] | None = None,
) -> tuple[Array, ...]:
    operator, name, count = _call(overload, text)
    _check_dtypes(overload, operands[:count])
    gradients = functools.partial(_gradients, operator, name, count, len(saves or ()))
    if part is not None:
        values = _of_part(part, operator, name, gradients, wanted, operands)
    elif wanted:
        values = gradients(operands, wanted)
    else:
        values = operator.compute(name(operands))
    description = [n for x in values for n in (DTYPES.index(x.dtype.name), x.ndim, *x.shape)]
    if description != list(results):
        raise RuntimeError(
            f"aten::{overload} gives {description} (dtype, dimensions, sizes of each result), "
            f"and {list(results)} was expected"
        )
    return values


def _of_part(
    part: Sequence[int],
    operator: Operator,
    name: Callable[[Sequence[Any]], Named],
    gradients: parts.Backward,
    wanted: Sequence[int],
    operands: Sequence[Array | None],
) -> tuple[Array, ...]:
    """A member's own part of the results or gradients, where windows of an image reach rows that
    others hold.
    """
    if wanted:
        values = parts.backward(part, gradients, operands, wanted, np.pad)
    else:
        values = parts.forward(part, lambda operands: operator.compute(name(operands)), operands)
    return tuple(np.ascontiguousarray(x) for x in values)


def _check_dtypes(overload: str, operands: Sequence[Array | None]) -> None:
    for operand in operands:
        if operand is not None and (type(operand) is not np.ndarray or operand.dtype != FLOAT32):
            raise NotImplementedError(
                f"aten::{overload} of {operand.dtype} needs a worker with torch: the native "
                "backend computes it of float32"
            )


def _gradients(
    operator: Operator,
    name: Callable[[Sequence[Any]], Named],
    count: int,
    saved: int,
    operands: Sequence[Array | None],
    wanted: Sequence[int],
) -> tuple[Array, ...]:
    """Behind `count` operands stand the results' gradients, then `saved` of the results."""
    if list(wanted).count(_END) > 1:
        raise NotImplementedError(
            "the native backend has no gradients of gradients of images and attention"
        )
    grad = operands[count]
    # Operand k stands for itself, so that names are found by places.
    places = {place: word for word, place in name(range(count)).items() if word in operator.tensors}
    words = [places[place] for place in wanted[:-1]]
    named = name(operands)
    if grad is None:
        gradients: Mapping[str, Array] = {word: np.zeros_like(named[word]) for word in words}
    else:
        results = [x for x in operands[len(operands) - saved :] if x is not None]
        gradients = operator.gradients(named, np.ascontiguousarray(grad), results, words)
    return tuple(gradients[word] for word in words)


def _aten_meta(
    values: Sequence[Array],
    overload: str,
    text: str,
    described: Sequence[int],
    wanted: Sequence[int],
    _default: object,
) -> Array:
    try:
        answer = _answer(values, overload, text, described, wanted)
    except NotImplementedError as error:
        answer = {"error": ["NotImplementedError", str(error)]}
    except Exception as error:  # noqa: BLE001 - a mistake in the arguments is the answer
        answer = {"error": ["RuntimeError", f"{overload}: {error}"[:1500]]}
    return np.frombuffer(json.dumps(answer).encode().ljust(_ANSWER_BYTES), np.uint8).copy()


def _answer(
    values: Sequence[Array],
    overload: str,
    text: str,
    described: Sequence[int],
    wanted: Sequence[int],
) -> dict[str, object]:
    operator, name, _ = _call(overload, text)
    sizes: list[tuple[int, ...]] = [x.shape for x in values]
    rest = list(described)
    while rest:
        dtype, dimensions = rest[:2]
        if dtype != _FLOAT:
            raise NotImplementedError(
                f"aten::{overload} of {DTYPES[dtype]} needs a worker with torch: the native "
                "backend computes it of float32"
            )
        sizes.append(tuple(rest[2 : 2 + dimensions]))
        rest = rest[2 + dimensions :]
    shapes = operator.results(name(sizes))
    return {
        "results": [number for dtype, size in shapes for number in (dtype, len(size), *size)],
        "gradients": ["there" if wanted and dtype == _FLOAT else "none" for dtype, _size in shapes],
    }


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {"aten": _aten, "aten_vjp": _aten, "aten_meta": _aten_meta}
