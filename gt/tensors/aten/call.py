"""Calls of operators without a row: a worker is asked for their results once.

Only PyTorch knows the results of an operator, so a worker is asked, once for each combination of
overload, arguments and operand metadata: the first call of each signature costs a round trip.
Operators with data-dependent result shapes (`unique_dim`, say) cost one at each call.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from gt import _core, errors
from gt._core import Tensor
from gt.amp import casting
from gt.compat import return_types
from gt.tensors.aten import binding
from gt.tensors.aten.backward import saved_results
from gt.tensors.aten.cuts import cuts
from gt.tensors.aten.schemas import Schema
from gt.tensors.aten.windows import windows

# Limit of signatures that are kept; the oldest is dropped.
_SIGNATURES_MAX = 4096
DTYPES = {
    dtype: number
    for number, dtype in enumerate((
        _core.bool, _core.uint8, _core.int8, _core.int16, _core.int32, _core.int64, _core.float16,
        _core.bfloat16, _core.float32, _core.float64, _core.complex64, _core.complex128,
    ))
}  # fmt: skip
_ERRORS: dict[str, type[Exception]] = {
    "IndexError": errors.IndexOutOfRange,
    "ValueError": errors.InvalidValue,
    "TypeError": errors.InvalidType,
    "NotImplementedError": errors.NotSupported,
}
# Result of an operator: a tensor, several, or a named tuple of them.
Returned = Any


@dataclasses.dataclass(frozen=True, slots=True)
class _Signature:
    """Arguments of a call without its tensors, and the results that a worker named for it."""

    schema: Schema
    text: str
    # Positions of its operands among the given tensors.
    order: tuple[int, ...]
    # The instruction without its operands; None if the results depend on data.
    instruction: Callable[..., Any] | None
    # True for each result that has a gradient.
    has_gradient: tuple[bool, ...]
    # True if the operator returns one tensor and no tuple.
    is_single: bool
    # Positions of results without a gradient that PyTorch saves for the gradients of others.
    kept: tuple[int, ...] = ()


_signatures: dict[Hashable, _Signature] = {}


class _Counter:
    """Number of operator queries that this process has sent to workers."""

    queries = 0


def queries() -> int:
    """Number of round trips that asked for an operator's results since the start of the process."""
    return _Counter.queries


def call(
    name: str, args: Sequence[object], named: Mapping[str, object], *, is_method: bool = False
) -> Returned:
    """Calls an operator of schemas.txt, on its operands as an open autocast casts them."""
    region = _core.autocast_region()
    operator = name.partition(".")[0]
    if region is not None and casting.acts(operator, region):
        again = functools.partial(_again, name, is_method)
        return casting.within(region, casting.POLICIES[operator], again, tuple(args), named)
    tensors: list[Tensor] = []
    state = (_core.is_grad_enabled(), _core.get_default_dtype())
    words = _key(tuple(named.items()), tensors) if named else ()
    key: Hashable = (name, state, _key(args, tensors), words)
    if len(tensors) > 1:  # a tensor that is given twice is one operand
        firsts: dict[int, int] = {}
        key = (key, tuple([firsts.setdefault(id(x), at) for at, x in enumerate(tensors)]))
    signature = _signatures.get(key)
    if signature is not None and signature.instruction is not None:
        return _emit(signature, [tensors[place] for place in signature.order])
    schema, bound = binding.bind(name, args, named, is_method=is_method)
    text, operands = binding.written(schema, bound)
    if signature is None:
        answer = {"dependent": True} if schema.is_dependent else _ask(schema, text, operands, ())
        places = {id(x): place for place, x in enumerate(tensors)}
        signature = _signature(schema, bound, text, answer, tuple(places[id(x)] for x in operands))
        _keep(key, signature)
    if signature.instruction is None:
        answer = _ask(schema, text, operands, operands)
        signature = _signature(schema, bound, text, answer, signature.order)
    return _emit(signature, operands)


def _again(name: str, is_method: bool, *args: object, **named: object) -> Returned:
    return call(name, args, named, is_method=is_method)


def _keep(key: Hashable, signature: _Signature) -> None:
    while len(_signatures) >= _SIGNATURES_MAX:
        del _signatures[next(iter(_signatures))]
    _signatures[key] = signature


def _key(value: object, operands: list[Tensor]) -> Hashable:
    """The part of an argument that decides on the results; its tensors are added to `operands`."""
    if isinstance(value, Tensor):
        operands.append(value)
        return (value.dtype, value.shape, value.requires_grad)
    kind = type(value)
    if kind is int or kind is bool or kind is str:
        return (kind, value)  # 1 and True are equal
    if isinstance(value, tuple | list):
        return tuple([_key(item, operands) for item in value])
    if isinstance(value, float):
        return (float, repr(value))  # -0.0 and 0.0 are equal
    try:
        hash(value)
    except TypeError:
        return object()  # equal to no other key
    return (kind, value)


def _signature(
    schema: Schema,
    bound: Sequence[object],
    text: str,
    answer: Mapping[str, Any],
    order: tuple[int, ...],
) -> _Signature:
    if "error" in answer:
        kind, message = answer["error"]
        raise _ERRORS.get(kind, errors.ShapeError)(message)
    if answer.get("dependent"):
        return _Signature(schema, text, order, None, (), is_single=False)
    gradients = answer["gradients"]
    if not answer["results"]:
        return _Signature(schema, text, order, _nothing, (), is_single=False)
    instruction = _core.prepare(
        "aten",
        keeps=answer.get("keeps"),
        overload=schema.overload,
        arguments=text,
        wanted=[],
        results=answer["results"],
        differentiable="missing" not in gradients,
        default=_core.get_default_dtype(),
        saves=saved_results(schema.overload) or None,
        cuts=cuts(schema, bound, answer["results"]) or None,
        windows=windows(schema, bound, answer["results"]) or None,
    )
    has_gradient = tuple(word != "none" for word in gradients)
    is_single = len(schema.results) == 1 and schema.results != ("[]",)
    places = [-1 - place for place in answer.get("keeps", ()) if place < 0]
    hidden = tuple(place for place in places if not has_gradient[place])
    return _Signature(
        schema, text, order, instruction, has_gradient, is_single=is_single, kept=hidden
    )


def _nothing(*_operands: Tensor) -> tuple[Tensor, ...]:
    """Stands for an instruction without results, such as the gradient of a number."""
    return ()


def _ask(
    schema: Schema, text: str, operands: Sequence[Tensor], values: Sequence[Tensor]
) -> dict[str, Any]:
    _Counter.queries += 1
    wanted = [place for place, x in enumerate(operands) if x.requires_grad]
    described = [number for x in operands for number in (DTYPES[x.dtype], x.ndim, *x.shape)]
    metadata = _core.call(
        "aten_meta",
        *(value.detach() for value in values),
        overload=schema.overload,
        arguments=text,
        operands=[] if values else described,
        wanted=wanted if _core.is_grad_enabled() else [],
        default=_core.get_default_dtype(),
    )
    answer: dict[str, Any] = json.loads(_core.read_bytes(metadata).tobytes())
    return answer


def _emit(signature: _Signature, operands: Sequence[Tensor]) -> Returned:
    assert signature.instruction is not None, "the results are known"
    results = signature.instruction(*operands)
    if signature.is_single and (signature.has_gradient[0] or not results.requires_grad):
        return results
    listed = _listed(results)
    tensors = [
        result if has_gradient or not result.requires_grad else result.detach()
        for result, has_gradient in zip(listed, signature.has_gradient, strict=True)
    ]
    for place in signature.kept if any(x.requires_grad for x in listed) else ():
        _core.keep(listed[place], tensors[place])
    schema = signature.schema
    if signature.is_single:
        return tensors[0]
    if schema.results == ("[]",):
        return tuple(tensors)
    return _result_type(schema.overload, schema.results)(*tensors)


def _listed(results: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, Tensor) else results


@functools.cache
def _result_type(overload: str, names: tuple[str, ...]) -> Callable[..., tuple[Tensor, ...]]:
    if not all(names):
        return lambda *results: results
    kind = return_types.of(overload.partition(".")[0], names)
    return lambda *results: kind(results)
