"""Rows of the family generic for torch: operators by schema, their gradients, queries about both.

An operator runs by `torch.ops.aten`, if gt/tensors/aten/schemas.txt has it. A vector-Jacobian
product runs it again, under torch's autograd, on copies: a worker's values are made without
autograd.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gt.tensors.aten import arguments, schemas
from gt.worker import parts
from gt.worker.backend import Kernel
from gt.worker.pytorch import backward as torch_backward
from gt.worker.pytorch import gradients as torch_gradients
from gt.worker.pytorch import light_dynamo
from gt.worker.pytorch import own as torch_own
from gt.worker.pytorch.dtypes import DTYPES

if TYPE_CHECKING:
    from gt.worker.cuda.operators import CudaOperators

Operands = Sequence["Tensor | None"]
# The results, and the number of operands that belong to the function: the gradients of its results
# follow them.
Results = tuple["tuple[Tensor, ...]", int]
Function = Callable[[Operands], Results]

# Bytes of the answer to a query, one an element.
_ANSWER_BYTES = 4096
# Elements of operands on which a kernel is tried: that takes as long as a round trip.
_TRIAL_ELEMENTS_MAX = 1 << 16
# End mark of the places of one derivative.
END = -1
_PYTHON_CLASSES = {"IndexError", "ValueError", "TypeError", "NotImplementedError"}


class MissingDtypeError(NotImplementedError):
    """A result of a dtype that GT does not have."""


class _Call(NamedTuple):
    """An operator with its arguments except for the operands, and the functions that run it."""

    overload: str
    text: str
    functions: torch_own.Functions


def kernels(device: torch.device, own: CudaOperators | None = None) -> dict[str, Kernel]:
    """Kernels by row.

    Args:
        device: Device of the values.
        own: The device's operators of GT's own, if it has any.
    """
    run = _aten if own is None else functools.partial(_aten, functions=torch_own.functions(own))
    return {
        "aten": run,
        "aten_vjp": run,
        "aten_meta": functools.partial(_aten_meta, device),
    }


def _aten(
    operands: Operands,
    overload: str,
    text: str,
    wanted: Sequence[int],
    results: Sequence[int],
    _differentiable: bool,
    default: torch.dtype,
    _saves: Sequence[int] | None = None,
    _cuts: Sequence[int] | None = None,
    _windows: Sequence[int] | None = None,
    part: Sequence[int] | None = None,
    *,
    functions: torch_own.Functions = torch_own.PLAIN,
) -> tuple[Tensor, ...]:
    call = _Call(overload, text, functions)
    function = operator(*call)
    if part is not None:
        with _default_dtype(default):
            values = _of_part(function, call, wanted, operands, part)
    elif not wanted and default == torch.get_default_dtype():
        values = _own(function(operands)[0], operands)
    elif not wanted:
        with _default_dtype(default):
            values = _own(function(operands)[0], operands)
    else:
        with _default_dtype(default):
            values = _gradients_of(function, call, wanted, operands)
    stated = stated_results(tuple(results))
    if len(stated) == len(values) and all(map(_fits, values, stated)):
        return values
    description = [number for value in values for number in _described(value)]
    if description != list(results):
        raise RuntimeError(
            f"aten::{overload} gives {description} (dtype, dimensions, sizes of each result), "
            f"and {list(results)} was expected"
        )
    return values


def _of_part(
    function: Function,
    call: _Call,
    wanted: Sequence[int],
    operands: Operands,
    part: Sequence[int],
) -> tuple[Tensor, ...]:
    """A member's own part of the results or gradients, if windows of an image reach
    others' rows.
    """

    def gradients(operands: Operands, wanted: Sequence[int]) -> tuple[Tensor, ...]:
        return _gradients_of(function, call, wanted, operands)

    if wanted:
        values = parts.backward(part, gradients, operands, wanted, _padded)
    else:
        values = parts.forward(part, lambda operands: function(operands)[0], operands)
    return tuple(x.contiguous() for x in _own(values, operands))


def _padded(x: Tensor, amounts: list[tuple[int, int]]) -> Tensor:
    return torch.nn.functional.pad(x, [n for pair in reversed(amounts) for n in pair])


def _gradients_of(
    function: Function, call: _Call, wanted: Sequence[int], operands: Operands
) -> tuple[Tensor, ...]:
    """Gradients by a backward operator if PyTorch has one, else by another run of the operator."""
    is_complex = any(x is not None and x.is_complex() for x in operands)
    is_known = not is_complex or call.overload in torch_own.COMPLEX
    backward = _backward(call, tuple(wanted)) if is_known else None
    values = None if backward is None else backward(operands)
    if values is not None:
        return _own(values, operands)
    with torch.inference_mode(False), torch.enable_grad():
        copies = [None if x is None else x.clone() for x in operands]
        gradients = _product(function, wanted)(copies)[0]
        return tuple(_solid(x.detach()) for x in gradients)


@functools.lru_cache(maxsize=4096)
def _backward(call: _Call, wanted: tuple[int, ...]) -> torch_backward.Backward | None:
    """The backward operator of a first derivative; None for higher orders, which torch
    differentiates.
    """
    if wanted.count(END) > 1:
        return None
    overload, text, functions = call
    return torch_backward.backward(overload, text, wanted[:-1], dtype_named, functions)


@functools.lru_cache(maxsize=4096)
def stated_results(results: tuple[int, ...]) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """The dtype and shape of each result that an instruction states."""
    stated, rest = [], results
    while rest:
        dtype, dimensions = DTYPES[rest[0]], rest[1]
        stated.append((dtype, rest[2 : 2 + dimensions]))
        rest = rest[2 + dimensions :]
    return stated


def _fits(value: Tensor, stated: tuple[torch.dtype, tuple[int, ...]]) -> bool:
    return value.dtype == stated[0] and value.shape == stated[1]


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """The client's default dtype in place of the worker's, which is torch's own."""
    before = torch.get_default_dtype()
    if dtype == before:
        yield
        return
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@functools.lru_cache(maxsize=4096)
def operator(
    overload: str, text: str, functions: torch_own.Functions = torch_own.PLAIN
) -> Function:
    """An operator as a function of its operands, with all other arguments bound."""
    if overload not in schemas.overloads_allowed():
        raise ValueError(f"aten::{overload} is no operator that an instruction may name")
    name, _, variant = overload.partition(".")
    function = functions.forward.get(name) or torch_own.FASTER.get(overload)
    if function is None:
        function = getattr(getattr(torch.ops.aten, name), variant or "default")
    build, count = arguments.parse(text, dtype_named)

    def run(operands: Operands) -> Results:
        args, named = build(operands)
        results = function(*args, **named)
        return ((results,) if isinstance(results, Tensor) else tuple(results)), count

    return run


def dtype_named(name: str) -> torch.dtype:
    """The dtype of a name in an instruction's text; ValueError for another name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name} is no dtype")  # noqa: TRY004 - what a text says
    return dtype


def _own(values: tuple[Tensor, ...], operands: Operands) -> tuple[Tensor, ...]:
    """Results in memory of their own: some operators return an operand if nothing is to do.

    In a program that is compiled no step writes, so its steps may share memory.
    """
    if torch.compiler.is_exporting():
        return tuple(map(_solid, values))
    taken = {x.untyped_storage().data_ptr() for x in operands if x is not None}
    owned = []
    for result in values:
        value = _solid(result)
        place = value.untyped_storage().data_ptr()
        owned.append(value.clone() if place in taken else value)
        taken.add(place)
    return tuple(owned)


def _solid(value: Tensor) -> Tensor:
    """The elements as they are to stand in memory, since their bytes are sent.

    PyTorch defers conjugations and signs, and gives some zeros (a second derivative of a linear
    function, say) as a tensor without memory, whose reader ends the process.
    """
    if value._is_zerotensor():  # noqa: SLF001 - it has no other name
        return torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return value.resolve_conj().resolve_neg()


def _product(function: Function, wanted: Sequence[int]) -> Function:
    """The gradients of the operands at `wanted`; -1 ends each derivative's places."""
    end = wanted.index(END)
    places, rest = wanted[:end], wanted[end + 1 :]

    def differentiate(operands: Operands) -> Results:
        return _gradients(function, places, operands, bool(rest))

    return _product(differentiate, rest) if rest else differentiate


def _gradients(
    function: Function, places: Sequence[int], operands: Operands, create_graph: bool
) -> Results:
    leaves, chosen = list(operands), list[Tensor]()
    for place in places:
        leaf = leaves[place]
        assert leaf is not None, f"operand {place} is absent"
        # A later derivative has made it depend on another leaf.
        leaf = leaf if leaf.requires_grad else leaf.detach().requires_grad_()
        leaves[place] = leaf
        chosen.append(leaf)
    results, count = function(leaves)
    end = count + len(results)
    pairs = [
        (result, grad)
        for result, grad in zip(results, leaves[count:end], strict=True)
        if grad is not None and result.requires_grad
    ]
    # Outputs without elements give zeros; some of PyTorch's backward kernels end the process on
    # them.
    if not any(grad.numel() for _, grad in pairs):
        return tuple(torch.zeros_like(leaf) for leaf in chosen), end
    outputs, cotangents = zip(*pairs, strict=True)
    gradients = torch_gradients.recorded(outputs, chosen, cotangents, create_graph=create_graph)
    return gradients, end


def _described(value: Tensor) -> tuple[int, ...]:
    if value.dtype not in DTYPES:
        raise MissingDtypeError(f"a result of {value.dtype}, which GT does not have")
    return (DTYPES.index(value.dtype), value.dim(), *value.shape)


def _aten_meta(
    device: torch.device,
    values: Sequence[Tensor],
    overload: str,
    text: str,
    described: Sequence[int],
    wanted: Sequence[int],
    default: torch.dtype,
) -> Tensor:
    with _default_dtype(default):
        answer = json.dumps(_asked(values, overload, text, described, wanted)).encode()
    if len(answer) > _ANSWER_BYTES:
        message = f"aten::{overload}: the description of its results takes {len(answer)} bytes"
        answer = json.dumps({"error": ["RuntimeError", message]}).encode()
    padded = bytearray(answer.ljust(_ANSWER_BYTES))
    return torch.frombuffer(padded, dtype=torch.uint8).to(device, copy=True)


def _asked(
    values: Sequence[Tensor],
    overload: str,
    text: str,
    described: Sequence[int],
    wanted: Sequence[int],
) -> dict[str, object]:
    """The results' metadata, which of them have a gradient, and which PyTorch saves for it.

    Or PyTorch's error; or that the results depend on data.
    """
    with torch.inference_mode(False), torch.enable_grad():
        try:
            function = operator(overload, text)
            if values:
                answer = _answer([x.clone() for x in values], function, wanted)
            elif overload in torch_own.FORWARD:
                answer = _answer_of_own(described, function, wanted)
            else:
                answer = _answer_of_metadata(described, function, wanted)
        except Exception as error:  # noqa: BLE001 - whatever torch raises is the answer
            names = [cls.__name__ for cls in type(error).__mro__]
            kind = next((name for name in names if name in _PYTHON_CLASSES), "RuntimeError")
            return {"error": [kind, _clipped(str(error))]}
        else:
            if overload in torch_own.FORWARD:
                answer.pop("keeps", None)  # that of the operators of its composition
            return answer


def _answer_of_own(
    described: Sequence[int], function: Function, wanted: Sequence[int]
) -> dict[str, object]:
    """The answer from a run on zeros, if they are few: PyTorch's kernels without values import many
    modules.
    """
    operands = _tensors(described, "cpu")
    if sum(x.numel() for x in operands) <= _TRIAL_ELEMENTS_MAX:
        with contextlib.suppress(Exception):  # an error may be due to the zeros
            return _answer(operands, function, wanted)
    return _answer_of_metadata(described, function, wanted)


def _answer_of_metadata(
    described: Sequence[int], function: Function, wanted: Sequence[int]
) -> dict[str, object]:
    try:
        with light_dynamo.in_place_of_dynamo():
            answer = _answer(_tensors(described, "meta"), function, wanted)
    except MissingDtypeError:
        raise
    except NotImplementedError:
        return {"dependent": True}
    except Exception:  # noqa: BLE001 - users know the text of the CPU's kernel
        return _answer(_tensors(described, "cpu"), function, wanted)
    computed = _computed(function, described)
    return answer if computed is None else answer | {"results": computed}


def _computed(function: Function, described: Sequence[int]) -> list[int] | None:
    """Results of the CPU's kernel on zeros, from which some meta kernels differ.

    Raises if the CPU has no kernel for the dtypes, which shapes alone do not show.
    """
    operands = _tensors(described, "cpu")
    if sum(x.numel() for x in operands) > _TRIAL_ELEMENTS_MAX:
        return None
    try:
        results, _ = function(operands)
        return [number for value in results for number in _described(value)]
    except Exception as error:
        # Other errors may come from the zeros (they have no inverse, say) and not from the
        # operands.
        if "not implemented for" in str(error):
            raise
        return None


def _clipped(text: str) -> str:
    """The text without torch's C++ stack and without the places where its kernels are
    registered.
    """
    text = re.sub(r"\nException raised from[\s\S]*", "", text)
    no_kernel = r"\1, for which PyTorch has no kernel"
    return re.sub(r"(Could not run .* backend)\. This could be[\s\S]*", no_kernel, text)[:1500]


def _tensors(described: Sequence[int], device: str) -> list[Tensor]:
    """Operands with this metadata; on the host one element stands for all."""
    tensors, rest = [], list(described)
    while rest:
        dtype, dimensions = DTYPES[rest[0]], rest[1]
        size, rest = rest[2 : 2 + dimensions], rest[2 + dimensions :]
        if device == "meta":
            tensors.append(torch.empty(size, dtype=dtype, device=device))
        else:
            tensors.append(torch.zeros((), dtype=dtype).expand(size))
    return tensors


def _answer(operands: list[Tensor], function: Function, wanted: Sequence[int]) -> dict[str, object]:
    for place in wanted:
        operands[place].requires_grad_()
    addresses = list[int]()

    def pack(x: Tensor) -> Tensor:
        addresses.append(_memory(x))
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        results, _ = function(operands)
    places = [*enumerate(operands), *((-1 - place, x) for place, x in enumerate(results))]
    gradients = [_gradient(value) for value in results]
    if "there" in gradients and _lacks_derivative(results, [operands[place] for place in wanted]):
        gradients = ["missing" if word == "there" else word for word in gradients]
    return {
        "results": [number for value in results for number in _described(value)],
        "gradients": gradients,
        "keeps": [place for place, x in places if _memory(x) in addresses],
    }


def _memory(x: Tensor) -> int:
    """Identity of a tensor's memory; tensors without values have one too."""
    return x.untyped_storage()._cdata  # noqa: SLF001 - it has no other name


def _gradient(result: Tensor) -> str:
    """State of a result's gradient; PyTorch lacks that of some operators, and says so
    in backward.
    """
    if not result.requires_grad:
        return "none"
    node = result.grad_fn
    return "missing" if node is not None and node.name() == "NotImplemented" else "there"


def _lacks_derivative(results: Sequence[Tensor], operands: Sequence[Tensor]) -> bool:
    """True if PyTorch lacks the derivative by one of these operands, which only backward shows."""
    chosen = [value for value in results if value.requires_grad]
    try:
        grads = [torch.ones_like(value) for value in chosen]
        torch_gradients.recorded(chosen, operands, grads)
    except Exception as error:  # noqa: BLE001 - other errors are raised when the gradient is asked for
        return "derivative for" in str(error)
    return False
