"""Error inputs of an entry: GT raises PyTorch's class, with a text that begins with PyTorch's."""

import re

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import gt
from gt import _core
from gt.errors import NotSupported
from harness.convert import NotConvertible, convert, quietly, tensors, to_gt
from harness.entries import call_of, title
from harness.outcome import Outcome, shown

# PyTorch reads the probabilities to find these; GT reads no value that it was not asked for.
NEEDS_VALUES = {"multinomial": re.compile(r"probabilit(y|ies)")}


def errors(op: OpInfo) -> Outcome:
    """Outcome of all error inputs on which PyTorch raises."""
    outcome = Outcome()
    torch.manual_seed(0)
    for number, error in enumerate(quietly(lambda: list(op.error_inputs("cpu")))):
        sample = error.sample_input
        if not isinstance(sample, SampleInput):
            continue
        try:
            quietly(lambda sample=sample: op(sample.input, *sample.args, **sample.kwargs))
        except Exception as raised:  # noqa: BLE001 - the oracle's error, whatever it is
            expected = raised
        else:
            continue
        outcome.total += 1
        try:
            what = _difference(op, sample, expected, outcome)
        except (NotConvertible, NotSupported) as refusal:
            outcome.refuse(refusal)
            continue
        outcome.ran += 1
        if what:
            outcome.wrong.append(f"{title(op)} error {number}: {what}\n    {shown(sample)}")
    return outcome


def _difference(
    op: OpInfo, sample: SampleInput, expected: Exception, outcome: Outcome
) -> str | None:
    _check_applies(op, sample, expected)
    text = _plain(expected).split("\n")[0].rstrip(" .")
    called = False
    try:
        args = [convert(x, to_gt) for x in (sample.input, *sample.args)]
        ours = quietly(lambda: call_of(op)(*args, **convert(sample.kwargs, to_gt)))
        called = True
        for x in tensors(ours, gt.Tensor):
            _core.read_bytes(x)
    except NotConvertible:
        raise
    except Exception as raised:  # ours, to be compared
        begins = _plain(raised).startswith(text)
        if isinstance(raised, NotSupported) and not begins:
            raise
        if not isinstance(raised, _class_of(expected)):
            return f"{type(raised).__name__}: {raised}\n    for {type(expected).__name__}: {text}"
        outcome.late += called
        return None if begins else f"text {str(raised)!r}\n    for  {text!r}"
    return f"no error, for {type(expected).__name__}: {text}"


def _check_applies(op: OpInfo, sample: SampleInput, expected: Exception) -> None:
    if "out" in sample.kwargs:
        raise NotConvertible("out=")
    if op.name.startswith("__r") and not isinstance(sample.input, torch.Tensor):
        raise NotConvertible("a number where a slot wants its tensor: Python's own error")
    if op.name in NEEDS_VALUES and NEEDS_VALUES[op.name].search(str(expected)):
        raise NotConvertible("probabilities are not read to be checked")


def _plain(error: Exception) -> str:
    """An error's text with GT's names, without the place that a method counts differently."""
    text = (
        str(error)
        .replace("torch._C.TensorBase", "gt.Tensor")
        .replace("torch.sparse_", "gt.sparse_")
    )
    return re.sub(r" \(position \d+\)", "", text)


def _class_of(error: Exception) -> type[BaseException]:
    """The public class: PyTorch raises private subclasses of RuntimeError here and there."""
    return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
