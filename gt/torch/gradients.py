"""PyTorch's backward operators, as products with the derivative of the operator before `_backward`.

The generic instruction `aten_vjp` names the forward operator, whose gradients a worker computes;
the forward operator does not run again if it has a backward operator
(gt/tensors/aten/backward.txt).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gt
from gt import _core
from gt._core import Tensor
from gt.tensors.aten import binding, schemas
from gt.tensors.aten.call import DTYPES, call
from gt.tensors.aten.cuts import cuts
from gt.tensors.aten.schemas import Schema

Gradients = tuple[Tensor | None, ...]

# Arguments of backward operators that follow from the other arguments.
_DERIVED = frozenset({"buffer", "is_target", "output_mask"})
_END = -1
# Codes that stand for an operand's or result's dimension (ops.toml, the row aten).
_WHOLE, _ADDED, _FIRST = -1, -2, -3


def product(
    schema: Schema, bound: Sequence[object], gradient: Tensor, wanted: Sequence[bool]
) -> Gradients:
    """The gradients of an operator's tensors, in its arguments' order; None for unwanted ones.

    Args:
        schema: Schema of the forward operator, which has one result.
        bound: The forward operator's arguments, in order.
        gradient: Gradient of its result.
        wanted: True for each of its first tensors whose gradient is wanted.
    """
    bound = distinct(bound)
    tensors = [x for x in bound if isinstance(x, Tensor)]
    chosen = [x for x, is_wanted in zip(tensors, wanted, strict=False) if is_wanted]
    if not chosen:
        return (None,) * len(wanted)
    instruction, operands = prepared(schema, bound, chosen, described(gradient))
    results = instruction(*operands, gradient)
    gradients = iter([results] if isinstance(results, Tensor) else results)
    return tuple(next(gradients) if is_wanted else None for is_wanted in wanted)


def distinct(bound: Sequence[object]) -> list[object]:
    """The arguments with a view in place of each repeated tensor, so that each has its own
    gradient.
    """
    seen: list[object] = []
    for x in bound:
        is_again = isinstance(x, Tensor) and any(x is other for other in seen)
        seen.append(x.detach() if isinstance(x, Tensor) and is_again else x)
    return seen


def prepared(
    schema: Schema,
    bound: Sequence[object],
    chosen: Sequence[Tensor],
    results: Sequence[int],
    saved: Sequence[int] = (),
) -> tuple[Callable[..., Any], list[Tensor]]:
    """The instruction that computes the gradients of `chosen`, and the operator's operands.

    Behind these it takes the gradient of each result, and then the results that are `saved`.

    Args:
        schema: Schema of the forward operator.
        bound: The forward operator's arguments, in order.
        chosen: Tensors among them whose gradients are wanted.
        results: Metadata of the results, in the form of an instruction.
        saved: Indices of the results that the gradients read.
    """
    text, operands = binding.written(schema, bound)
    places = [next(at for at, operand in enumerate(operands) if operand is x) for x in chosen]
    forward = cuts(schema, bound, results)
    count = len(schema.results)
    instruction = _core.prepare(
        "aten_vjp",
        overload=schema.overload,
        arguments=text,
        wanted=[*places, _END],
        results=described(*chosen),
        differentiable=False,
        default=_core.get_default_dtype(),
        saves=list(saved) or None,
        cuts=_cuts(forward, (len(operands), count), saved, places) or None,
    )
    return instruction, operands


def described(*tensors: Tensor) -> list[int]:
    """Dtype, number of dimensions and sizes of each tensor, in the form of an instruction's
    results.
    """
    return [number for x in tensors for number in (DTYPES[x.dtype], x.ndim, *x.shape)]


def _cuts(
    forward: Sequence[int], counts: tuple[int, int], saved: Sequence[int], places: Sequence[int]
) -> list[int]:
    """The dimensions along which the product runs on shards, from those of the operator.

    A letter has a dimension of each operand and of each result, `counts` in number: cut dimensions
    stay cut, and the gradient of a whole operand is the sum of the members' gradients.
    """
    numbers: list[int] = []
    operands, results = counts
    for start in range(0, len(forward), operands + results):
        letter = forward[start : start + operands + results]
        operand_dims, result_dims = letter[:operands], letter[operands:]
        if _WHOLE in result_dims:  # its gradient would count once for each member
            continue
        numbers += [max(dim, _WHOLE) for dim in (*letter, *[result_dims[at] for at in saved])]
        numbers += [
            {_WHOLE: _ADDED, _FIRST: _WHOLE}.get(operand_dims[at], operand_dims[at])
            for at in places
        ]
    return numbers


def found(operator: Any) -> Callable[..., object] | None:  # noqa: ANN401 - it has no public type
    """The function for a backward operator whose forward operator takes the same arguments."""
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
    """True if all arguments of the forward are among `words`, and nothing else."""
    names = {x.name for x in forward.arguments}
    needed = {x.name for x in forward.arguments if x.is_required}
    absent = needed - set(words)
    return absent <= {"self", "input"} and set(words) - _DERIVED - {"input_size"} <= names


def _bound(forward: Schema, named: Mapping[str, object]) -> list[object]:
    """The forward operator's arguments; a tensor known only by its sizes is zeros."""
    bound = []
    for argument in forward.arguments:
        value = named.get(argument.name, argument.default)
        if value is None and argument.is_required and "input_size" in named:
            sizes = named["input_size"]
            assert isinstance(sizes, Sequence)
            value = gt.zeros(*sizes)
        bound.append(value)
    return bound


def _convolution(
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> tuple[Schema, list[object]]:
    """The convolution operator for this number of dimensions, and the arguments behind the bias."""
    dimensions = weight.ndim - 2
    if transposed:
        name = f"conv_transpose{dimensions}d{'.input' if dimensions > 1 else '.default'}"
        rest = [list(stride), list(padding), list(output_padding), groups, list(dilation)]
    else:
        name = f"conv{dimensions}d.default"
        rest = [list(stride), list(padding), list(dilation), groups]
    (schema,) = schemas.of(name)
    return schema, rest


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *rest: Any,  # noqa: ANN401 - as `_convolution` has them
) -> Tensor:
    """A convolution, or a transposed one, of one to three dimensions."""
    schema, arguments = _convolution(weight, *rest)
    name = schema.overload if "." in schema.overload else f"{schema.overload}.default"
    return call(name, (input, weight, bias, *arguments), {})  # type: ignore[no-any-return]


def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    *rest: Any,  # noqa: ANN401 - as `_convolution` has them, and a mask
) -> Gradients:
    """The gradients of input, weight and bias."""
    del bias_sizes
    *arguments, output_mask = rest
    forward, after = _convolution(weight, *arguments)
    gradients = product(forward, (input, weight, None, *after), grad_output, output_mask[:2])
    others = [dim for dim in range(grad_output.ndim) if dim != 1]
    return (*gradients, grad_output.sum(others) if output_mask[2] else None)


def _adaptive_avg_pool2d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    return _pooled("adaptive_avg_pool2d", grad_output, self, 2)


def _adaptive_avg_pool3d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    return _pooled("adaptive_avg_pool3d", grad_output, self, 3)


def _pooled(name: str, gradient: Tensor, self: Tensor, dimensions: int) -> Tensor:
    (forward,) = schemas.of(name)
    sizes = list(gradient.shape[-dimensions:])
    (result,) = product(forward, (self, sizes), gradient, (True,))
    assert result is not None
    return result


def _to_places(gradient: Tensor, self: Tensor, indices: Tensor, dimensions: int) -> Tensor:
    """Scatters a maximum's gradient to its place among the last dimensions."""
    flat = gt.zeros_like(self).flatten(-dimensions)
    moved = flat.scatter_add(-1, indices.flatten(-dimensions), gradient.flatten(-dimensions))
    return moved.view(self.shape)


def _of_maxima(dimensions: int) -> Callable[..., object]:
    """The backward operator of a pool with indices, which are its last argument."""

    def backward(grad_output: Tensor, self: Tensor, *rest: object, **named: object) -> Tensor:
        indices = named.get("indices", rest[-1] if rest else None)
        assert isinstance(indices, Tensor)
        return _to_places(grad_output, self, indices, dimensions)

    return backward


def _cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient of `x1`."""
    del cdist
    (forward,) = schemas.of("cdist")
    (result,) = product(forward, (x1, x2, p, None), grad, (True,))
    assert result is not None
    return result


def _pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    del pdist
    (forward,) = schemas.of("_pdist_forward")
    (result,) = product(forward, (self, p), grad, (True,))
    assert result is not None
    return result


def masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradient of the source, whose first elements were used; reads their number."""
    taken = grad_output.masked_select(mask.expand(grad_output.shape))
    result = gt.zeros(math.prod(sizes), dtype=grad_output.dtype)
    result[: taken.shape[0]] = taken
    return result.view(tuple(sizes))


FUNCTIONS: dict[str, Callable[..., object]] = {
    "convolution": convolution,
    "convolution_backward": convolution_backward,
    "_adaptive_avg_pool2d_backward": _adaptive_avg_pool2d_backward,
    "_adaptive_avg_pool3d_backward": _adaptive_avg_pool3d_backward,
    "_cdist_backward": _cdist_backward,
    "_pdist_backward": _pdist_backward,
    "masked_scatter_backward": masked_scatter_backward,
    **dict.fromkeys(
        (
            "adaptive_max_pool2d_backward",
            "fractional_max_pool2d_backward",
            "max_pool2d_with_indices_backward",
        ),
        _of_maxima(2),
    ),
    **dict.fromkeys(
        (
            "adaptive_max_pool3d_backward",
            "fractional_max_pool3d_backward",
            "max_pool3d_with_indices_backward",
        ),
        _of_maxima(3),
    ),
}
