"""Runs an entry's samples in GT and in PyTorch: values, in-place forms, gradients, errors."""

import functools
import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import gt
from gt import _core
from gt.errors import NotSupported
from harness.compare import difference, identical, value_difference
from harness.convert import (
    NotConvertible,
    convert,
    from_gt,
    map_tensors,
    quietly,
    tensors,
    to_gt,
    to_gt_view,
)
from harness.entries import (
    LOOSER,
    TERMS,
    UNSPECIFIED,
    call_of,
    dtypes_of,
    gradient_dtype,
    title,
    unspecified,
)
from harness.errors import errors
from harness.exact import are_as_exact, in_double, is_as_exact
from harness.outcome import Outcome, Skip, shown

IN_PLACE_DTYPES = (torch.float32, torch.int64)
# Operators for which strides decide whether a view exists; uploads do not keep strides.
STRIDES_MATTER = {"view", "view_as", "as_strided", "as_strided_copy", "as_strided_scatter"}


def drive(op: OpInfo, *, looser: float = 1.0) -> dict[str, Outcome]:
    """All kinds: by dtype's name, "in place", "gradients", "errors".

    The float64 samples stand in views, the others as uploaded.
    """
    outcomes = {}
    for dtype in dtypes_of(op):
        value = functools.partial(_value, op, dtype, looser=looser)
        outcomes[str(dtype).removeprefix("torch.")] = _each(op, dtype, value)
        if dtype in IN_PLACE_DTYPES and _inplace(op) is not None:
            written = functools.partial(_value_in_place, op, looser=looser)
            outcomes.setdefault("in place", Outcome()).add(_each(op, dtype, written))
    dtype = gradient_dtype(op)
    if dtype is not None:
        gradient = functools.partial(_gradient, op, looser=looser)
        outcomes["gradients"] = _each(op, dtype, gradient, grad=True)
    if op.error_inputs_func is not None:
        outcomes["errors"] = errors(op)
    return outcomes


def values(op: OpInfo, dtype: torch.dtype, *, looser: float, terms: float = 1.0) -> Outcome:
    """The values of one dtype alone; `terms` as in `difference`."""
    return _each(op, dtype, functools.partial(_value, op, dtype, looser=looser, terms=terms))


def _each(
    op: OpInfo,
    dtype: torch.dtype,
    check: Callable[[SampleInput, Outcome], str | None],
    *,
    grad: bool = False,
) -> Outcome:
    """The outcome of `check` over an entry's samples."""
    outcome = Outcome()
    for number, sample in samples(op, dtype, grad=grad):
        try:
            what = check(sample, outcome)
        except Skip:
            continue
        except (NotSupported, NotConvertible) as error:
            outcome.total += 1
            outcome.refuse(error)
            continue
        except Exception as error:  # noqa: BLE001 - any other is a finding
            what = f"{type(error).__name__}: {error}"
        outcome.total += 1
        outcome.ran += 1
        if what:
            where = f"{title(op)} {dtype} sample {number}"
            outcome.wrong.append(f"{where}: {what}\n    {shown(sample)}")
    return outcome


SEED = 0


def seed() -> None:
    """The generators that op_db draws samples from."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002 - the one that op_db uses
    torch.manual_seed(SEED)


def samples(op: OpInfo, dtype: torch.dtype, *, grad: bool) -> Iterator[tuple[int, SampleInput]]:
    seed()  # once: op_db would do it for each sample, which takes longer than to run it
    return enumerate(quietly(lambda: list(op.sample_inputs("cpu", dtype, grad, set_seed=False))))


def _theirs(call: Callable[[], object]) -> object:
    try:
        return quietly(call)
    except Exception as error:  # whatever PyTorch raises: not a sample
        raise Skip from error


def call_ours(
    call: Callable[..., object], sample: SampleInput, tensor: Callable[[torch.Tensor], object]
) -> object:
    args = [convert(x, tensor) for x in (sample.input, *sample.args)]
    return quietly(lambda: call(*args, **convert(sample.kwargs, tensor)))


def _value(
    op: OpInfo,
    dtype: torch.dtype,
    sample: SampleInput,
    outcome: Outcome,
    *,
    looser: float,
    terms: float = 1.0,
) -> str | None:
    theirs = _theirs(lambda: op(sample.input, *sample.args, **sample.kwargs))
    in_views = dtype == torch.float64 and op.name not in STRIDES_MATTER
    ours = call_ours(call_of(op), sample, to_gt_view if in_views else to_gt)
    if op.name == "kthvalue":
        theirs = _same_tie(sample, ours, theirs)
    compared = not unspecified(op, sample)
    what = difference(
        ours,
        theirs,
        values=compared,
        looser=looser * _looser(op, sample),
        terms=max(terms, TERMS.get(op.name, 1.0)),
    )
    if dtype == torch.float32 and compared:
        outcome.compared += 1
        outcome.exact += identical(ours, theirs) or identical(ours, _of_contiguous(op, sample))
        if what and difference(ours, theirs, values=False) is None:
            return None if _is_as_exact(op, sample, ours, theirs) else what
    return what


def _is_as_exact(op: OpInfo, sample: SampleInput, ours: object, theirs: object) -> bool:
    """True where our values are no further from float64's than PyTorch's are."""
    args = [map_tensors(x, in_double) for x in (sample.input, *sample.args)]
    exact = _theirs(lambda: op(*args, **map_tensors(sample.kwargs, in_double)))
    mine = [from_gt(x) for x in tensors(ours, gt.Tensor)]
    others = [[x.detach() for x in tensors(tree, torch.Tensor)] for tree in (theirs, exact)]
    return are_as_exact(mine, *others)


def _of_contiguous(op: OpInfo, sample: SampleInput) -> object:
    """PyTorch's result where its operands have our strides: kernels differ by strides."""
    args = [map_tensors(x, torch.Tensor.contiguous) for x in (sample.input, *sample.args)]
    return _theirs(lambda: op(*args, **map_tensors(sample.kwargs, torch.Tensor.contiguous)))


def _same_tie(sample: SampleInput, ours: object, theirs: object) -> object:
    """PyTorch's result with our indices where they name equal values: which one is unspecified."""
    values, indices = theirs
    mine = from_gt(ours[1])
    if mine.shape != indices.shape or not sample.input.ndim:
        return theirs
    dim, keepdim = sample.args[1] if len(sample.args) > 1 else -1, indices.ndim == sample.input.ndim
    named = sample.input.gather(dim, mine if keepdim else mine.unsqueeze(dim))
    same = (named if keepdim else named.squeeze(dim)) == values
    return values, torch.where(same, mine, indices)


def _looser(op: OpInfo, sample: SampleInput) -> float:
    dtypes = {x.dtype for x in tensors([sample.input, list(sample.args)], torch.Tensor)}
    return max((LOOSER.get((op.name, dtype), 1.0) for dtype in dtypes), default=1.0)


def _inplace(op: OpInfo) -> Callable[..., object] | None:
    if op.inplace_variant is None or op.name in UNSPECIFIED or "." in op.name:
        return None
    return getattr(gt.Tensor, f"{op.name}_", None)


def _value_in_place(
    op: OpInfo, sample: SampleInput, outcome: Outcome, *, looser: float
) -> str | None:
    if sample.broadcasts_input or not isinstance(sample.input, torch.Tensor):
        raise Skip
    copy = sample.input.detach().clone(memory_format=torch.contiguous_format)
    _theirs(lambda: op.inplace_variant(copy, *sample.args, **sample.kwargs))
    mine = to_gt(sample.input.detach())
    args = [convert(x, to_gt) for x in sample.args]
    returned = _inplace(op)(mine, *args, **convert(sample.kwargs, to_gt))
    if returned is not mine:
        return "an in-place method must return its tensor"
    return difference(mine, copy, values=True, looser=looser)


def _gradient(op: OpInfo, sample: SampleInput, outcome: Outcome, *, looser: float) -> str | None:
    """Gradients of a sum of the outputs with random weights, for every tensor that requires one."""
    theirs = _theirs(lambda: op(sample.input, *sample.args, **sample.kwargs))
    outputs = [x for x in tensors(theirs, torch.Tensor) if x.requires_grad]
    leaves = leaves_of(sample)
    if not outputs or not leaves:
        raise Skip
    generator = torch.Generator().manual_seed(1)
    weights = [
        torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in outputs
    ]
    expected = _theirs(lambda: torch.autograd.grad(outputs, leaves, weights, allow_unused=True))
    twins = [to_gt(x) for x in leaves]

    def twin(x: torch.Tensor) -> gt.Tensor:
        places = [place for place, leaf in enumerate(leaves) if leaf is x]
        return twins[places[0]] if places else to_gt(x)

    ours = tensors(call_ours(call_of(op), sample, twin), gt.Tensor)
    tracked = [x for x in ours if x.requires_grad]
    if len(tracked) != len(outputs):
        return f"{len(tracked)} results require a gradient, not {len(outputs)}"
    actual = _core.grad(tracked, [to_gt(x) for x in weights], twins, False, False)
    if unspecified(op, sample):
        return None
    looser *= _looser(op, sample)
    for place, (mine, other) in enumerate(zip(actual, expected, strict=True)):
        if other is None and leaves[place]._is_view():
            continue
        what = _gradient_difference(mine, other, looser, TERMS.get(op.name, 1.0))
        if what and None not in (mine, other) and other.dtype == torch.float32:
            exact = _gradients_in_double(op, sample, weights)[place]
            what = None if is_as_exact(from_gt(mine), other, exact) else what
        if what:
            return f"gradient {place}: {what}"
    return None


def _gradients_in_double(
    op: OpInfo, sample: SampleInput, weights: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """PyTorch's gradients of `leaves_of(sample)` where operands and weights are float64."""
    twins: dict[int, torch.Tensor] = {}

    def twin(x: torch.Tensor) -> torch.Tensor:
        return twins.setdefault(id(x), in_double(x))

    args = [map_tensors(x, twin) for x in (sample.input, *sample.args)]
    made = _theirs(lambda: op(*args, **map_tensors(sample.kwargs, twin)))
    outputs = [x for x in tensors(made, torch.Tensor) if x.requires_grad]
    leaves = [twin(x) for x in leaves_of(sample)]
    return torch.autograd.grad(outputs, leaves, [x.double() for x in weights], allow_unused=True)


def leaves_of(sample: SampleInput) -> list[torch.Tensor]:
    leaves: list[torch.Tensor] = []
    for x in tensors([sample.input, list(sample.args), sample.kwargs], torch.Tensor):
        if x.requires_grad and not any(x is seen for seen in leaves):
            leaves.append(x)
    return leaves


def _gradient_difference(
    ours: gt.Tensor | None, theirs: torch.Tensor | None, looser: float, terms: float
) -> str | None:
    if ours is None or theirs is None:  # no gradient means zero
        mine = theirs if ours is None else from_gt(ours)
        return "one is none, the other not zero" if mine is not None and mine.any() else None
    if tuple(ours.shape) != tuple(theirs.shape):
        return f"shape {tuple(ours.shape)} for {tuple(theirs.shape)}"
    return value_difference(from_gt(ours), theirs, looser, terms)
