"""Backward operators of PyTorch's: products with the derivative of the operator before `_backward`.

The generic instruction `aten_vjp` names the forward operator, whose gradients a worker knows; the
forward operator does not run again where it has a backward operator (gt/aten/backward.txt).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gt
from gt import _core
from gt._core import Tensor
from gt.aten import binding, schemas
from gt.aten.call import DTYPES
from gt.aten.schemas import Schema

Gradients = tuple[Tensor | None, ...]

# Arguments of backward operators that say what follows from the others.
_DERIVED = frozenset({"buffer", "is_target", "output_mask"})
_END = -1


def product(
    schema: Schema, bound: Sequence[object], gradient: Tensor, wanted: Sequence[bool]
) -> Gradients:
    """The gradients of an operator's tensors, in its arguments' order; None where none is wanted.

    Args:
        schema: Of the forward operator, which has one result.
        bound: Its arguments, in order.
        gradient: Of its result.
        wanted: Of its first tensors, whether each one's gradient is.
    """
    text, operands = binding.written(schema, bound)
    given = [x for x in bound if isinstance(x, Tensor)]
    chosen = [x for x, is_wanted in zip(given, wanted, strict=False) if is_wanted]
    places = [next(at for at, operand in enumerate(operands) if operand is x) for x in chosen]
    if not places:
        return (None,) * len(wanted)
    found = _core.prepare(
        "aten_vjp",
        overload=schema.overload,
        arguments=text,
        wanted=[*places, _END],
        results=[number for x in chosen for number in (DTYPES[x.dtype], x.ndim, *x.shape)],
        differentiable=False,
        default=_core.get_default_dtype(),
    )(*operands, gradient)
    gradients = iter([found] if isinstance(found, Tensor) else found)
    return tuple(next(gradients) if is_wanted else None for is_wanted in wanted)


def found(operator: Any) -> Callable[..., object] | None:  # noqa: ANN401 - it has no public type
    """What runs a backward operator whose forward operator takes the same arguments."""
    schema = operator._schema  # noqa: SLF001 - PyTorch's only way to ask
    name = schema.name.partition("::")[2]
    title = name.removesuffix("_backward")
    if title == name or title not in schemas.known():
        return None
    words = [x.name for x in schema.arguments]
    forward = next((x for x in schemas.of(title) if _fits(x, words[1:])), None)
    if forward is None:
        return None
    count = len(schema.returns)

    def backward(*args: object, **kwargs: object) -> object:
        named = dict(zip(words, args, strict=False)) | kwargs
        gradient = named[words[0]]
        assert isinstance(gradient, Tensor)
        mask = named.get("output_mask", [True] * count)
        bound = _bound(forward, named)
        gradients = product(forward, bound, gradient, mask)
        return gradients[0] if count == 1 else gradients

    return backward


def _fits(forward: Schema, words: Sequence[str]) -> bool:
    """Whether all arguments are there, under the same names, and nothing else."""
    names = {x.name for x in forward.arguments}
    needed = {x.name for x in forward.arguments if x.is_required}
    absent = needed - set(words)
    return absent <= {"self", "input"} and set(words) - _DERIVED - {"input_size"} <= names


def _bound(forward: Schema, named: Mapping[str, object]) -> list[object]:
    """The forward operator's arguments; a tensor of which only the sizes are known is of zeros."""
    bound = []
    for argument in forward.arguments:
        value = named.get(argument.name, argument.default)
        if value is None and argument.is_required and "input_size" in named:
            sizes = named["input_size"]
            assert isinstance(sizes, Sequence)
            value = gt.zeros(*sizes)
        bound.append(value)
    return bound


def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Gradients:
    """The gradients of input, weight and bias."""
    del bias_sizes
    (forward,) = schemas.of("convolution")
    rest = (list(stride), list(padding), list(dilation), transposed, list(output_padding), groups)
    gradients = product(forward, (input, weight, None, *rest), grad_output, output_mask[:2])
    others = [dim for dim in range(grad_output.ndim) if dim != 1]
    return (*gradients, grad_output.sum(others) if output_mask[2] else None)


def _adaptive_avg_pool2d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    return _pooled("adaptive_avg_pool2d", grad_output, self, 2)


def _adaptive_avg_pool3d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    return _pooled("adaptive_avg_pool3d", grad_output, self, 3)


def _pooled(name: str, gradient: Tensor, self: Tensor, dimensions: int) -> Tensor:
    (forward,) = schemas.of(name)
    sizes = list(gradient.shape[-dimensions:])
    (found,) = product(forward, (self, sizes), gradient, (True,))
    assert found is not None
    return found


FUNCTIONS: dict[str, Callable[..., object]] = {
    "convolution_backward": convolution_backward,
    "_adaptive_avg_pool2d_backward": _adaptive_avg_pool2d_backward,
    "_adaptive_avg_pool3d_backward": _adaptive_avg_pool3d_backward,
}
