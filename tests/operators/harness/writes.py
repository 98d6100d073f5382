"""Checks that a backward pass detects a write to an operand or a result after its use.

The values that an operation saves show in no other way: PyTorch and GT must refuse the same passes,
and give the same gradients in all others.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import gt
from gt import _core
from gt.errors import InvalidUse, NotSupported
from harness.compare import value_difference
from harness.convert import (
    NotConvertible,
    convert,
    from_gt,
    map_tensors,
    quietly,
    tensors,
    to_gt,
)
from harness.drive import samples
from harness.entries import LOOSER, call_of, gradient_dtype, title, unspecified

SAMPLES_MAX = 4
OPERANDS_MAX = 6
# Factors on the comparison's tolerance: a gradient that is another one is far off.
TOLERANCE, TERMS = 100.0, 1e3
MODIFIED = "modified by an inplace operation"
LAX = "GT does not raise"
# A call of some operands; the trees of PyTorch and of GT have the same order.
Call = Callable[[Sequence[object]], object]
# The gradients of the operands that require one, or a refusal's text.
Pass = list[torch.Tensor | None] | str


@dataclasses.dataclass(frozen=True)
class Case:
    """One call: which of its tensors require a gradient, which one is written before the pass."""

    entry: str
    sample: int
    wanted: tuple[int, ...]
    # Operands from 0, results from -1 down.
    written: int

    def __str__(self) -> str:
        place = self.written
        target = f"operand {place}" if place >= 0 else f"result {-1 - place}"
        return f"{self.entry} sample {self.sample}, gradients of {self.wanted}, {target} written"


def differences(op: OpInfo) -> Iterator[tuple[Case, str | None]]:
    """Each case of an entry and in what GT differs from PyTorch, None where in nothing."""
    dtype = gradient_dtype(op)
    if dtype is None:
        return
    chosen = itertools.islice(samples(op, dtype, grad=True), SAMPLES_MAX)
    for number, sample in chosen:
        if not unspecified(op, sample):
            yield from _of_sample(op, number, sample)


def _of_sample(op: OpInfo, number: int, sample: SampleInput) -> Iterator[tuple[Case, str | None]]:
    operands: list[torch.Tensor] = []

    def place(x: torch.Tensor) -> torch.Tensor:
        if not any(x is y for y in operands):
            operands.append(x)
        return x

    tree = ([sample.input, *sample.args], sample.kwargs)
    map_tensors(tree, place)
    places = {id(x): at for at, x in enumerate(operands)}
    differentiable = [at for at, x in enumerate(operands) if x.requires_grad]
    if not differentiable or len(operands) > OPERANDS_MAX:
        return

    def theirs(copies: Sequence[torch.Tensor]) -> object:
        args, named = map_tensors(tree, lambda x: copies[places[id(x)]])
        return op(*args, **named)

    def ours(copies: Sequence[gt.Tensor]) -> object:
        args, named = convert(tree, lambda x: copies[places[id(x)]])
        return call_of(op)(*args, **named)

    yield from cases(title(op), number, operands, differentiable, theirs, ours)


def cases(
    entry: str,
    number: int,
    operands: Sequence[torch.Tensor],
    differentiable: Sequence[int],
    theirs: Call,
    ours: Call,
) -> Iterator[tuple[Case, str | None]]:
    """All subsets of one operand, and all operands; each operand and result written."""
    plain = [x.detach() for x in operands]
    subsets = {(at,) for at in differentiable} | {tuple(differentiable)}
    for wanted in sorted(subsets):
        try:
            results = len(
                tensors(quietly(lambda w=wanted: theirs(_theirs(plain, w))), torch.Tensor)
            )
        except Exception:  # noqa: BLE001 - whatever PyTorch raises: not a case
            continue
        for written in (*range(len(operands)), *range(-1, -1 - results, -1)):
            case = Case(entry, number, wanted, written)
            expected = _pass(theirs, _theirs(plain, wanted), case, torch)
            if expected is not None:
                yield case, _difference(ours, theirs, plain, case, expected)


def _theirs(plain: Sequence[torch.Tensor], wanted: Sequence[int]) -> list[torch.Tensor]:
    copies = [x.clone(memory_format=torch.contiguous_format) for x in plain]
    for at in wanted:
        copies[at].requires_grad_()
    return copies


def _ours(plain: Sequence[torch.Tensor], wanted: Sequence[int]) -> list[gt.Tensor]:
    copies = [to_gt(x) for x in plain]
    for at in wanted:
        copies[at].requires_grad_()
    return copies


def _difference(
    ours: Call, theirs: Call, plain: Sequence[torch.Tensor], case: Case, expected: Pass
) -> str | None:
    """The difference as text. If PyTorch alone refuses, GT's gradients must predate the write."""
    try:
        actual = _pass(ours, _ours(plain, case.wanted), case, gt)
    except (InvalidUse, NotSupported, NotConvertible):
        return None  # the operation or the write is one that GT has not
    except Exception as error:  # noqa: BLE001 - any other is a finding
        return f"{type(error).__name__}: {error}"
    if actual is None:
        return "GT refuses the write, or has no gradient"
    if isinstance(actual, str):
        return None if isinstance(expected, str) else f"GT raises: {actual}"
    if isinstance(expected, str):
        unwritten = _pass(theirs, _theirs(plain, case.wanted), case, torch, writes=False)
        assert isinstance(unwritten, list), f"{case}: {unwritten}"
        return _other_gradients(case, actual, unwritten) or LAX
    return _other_gradients(case, actual, expected)


def _other_gradients(
    case: Case, actual: list[torch.Tensor | None], expected: list[torch.Tensor | None]
) -> str | None:
    for place, (mine, other) in enumerate(zip(actual, expected, strict=True)):
        if mine is None or other is None:
            some = mine if other is None else other
            if some is not None and some.any():
                return f"gradient {place}: one is none, the other not zero"
            continue
        looser = TOLERANCE * LOOSER.get((case.entry, other.dtype), 1.0)
        if what := value_difference(mine, other, looser, TERMS):
            return f"gradient {place}: {what}"
    return None


def _pass(
    call: Call, copies: Sequence[object], case: Case, library: object, *, writes: bool = True
) -> Pass | None:
    """Uses, writes, goes back; None where there is no such case."""
    try:
        made = tensors(quietly(lambda: call(copies)), library.Tensor)
        target = copies[case.written] if case.written >= 0 else made[-1 - case.written]
        outputs = [x for x in made if x.requires_grad]
        if not outputs or not target.numel():
            return None
        if writes:
            with library.no_grad():
                _write(target.detach())
    except Exception:
        if library is gt:
            raise
        return None
    wanted = [copies[at] for at in case.wanted]
    weights = [library.ones_like(x.detach()) for x in outputs]
    try:
        if library is torch:
            return list(torch.autograd.grad(outputs, wanted, weights, allow_unused=True))
        grads = _core.grad(outputs, weights, wanted, False, False)
        return [None if x is None else from_gt(x) for x in grads]
    except RuntimeError as error:
        if MODIFIED in str(error):
            return str(error)
        if library is torch:
            return None
        raise


def _write(x: object) -> None:
    if x.dtype.is_floating_point or x.dtype.is_complex:
        x.mul_(0.75)
    else:
        x.zero_()
