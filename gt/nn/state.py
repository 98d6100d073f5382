"""state_dict and load_state_dict over a list of entries, with PyTorch's error texts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import gt
from gt import _core
from gt._core import Tensor
from gt.nn.parameter import Parameter


class Entry(NamedTuple):
    """A parameter or buffer that is saved: where it is, and what its owner calls it."""

    name: str  # dotted, from the module that is saved
    owner: object
    attribute: str
    value: Tensor


class IncompatibleKeys(NamedTuple):
    """Names that a load did not use, and names that it did not find."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        missing, unexpected = self.missing_keys, self.unexpected_keys
        return f"_IncompatibleKeys(missing_keys={missing}, unexpected_keys={unexpected})"

    def __str__(self) -> str:
        return repr(self)


def collect(entries: Iterable[Entry], *, keep_vars: bool) -> dict[str, Tensor]:
    """The entries' values by dotted name."""
    return OrderedDict(
        (entry.name, entry.value if keep_vars else entry.value.detach()) for entry in entries
    )


def load(
    entries: Iterable[Entry],
    state_dict: Mapping[str, Tensor],
    *,
    kind: str,
    strict: bool,
    assign: bool,
) -> IncompatibleKeys:
    """Copy values into the entries; all that fits is copied before what does not fit is raised.

    Args:
        entries: of the module into which to load.
        state_dict: values by dotted name.
        kind: the name of the module's class, for the error.
        strict: whether missing and unexpected names are errors.
        assign: whether the tensors themselves are taken.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    keys = IncompatibleKeys([], [])
    problems: list[str] = []
    expected: set[str] = set()
    for entry in list(entries):
        expected.add(entry.name)
        if entry.name not in state_dict:
            keys.missing_keys.append(entry.name)
            continue
        problem = _load_one(entry, state_dict[entry.name], assign=assign)
        if problem:
            problems.append(problem)
    keys.unexpected_keys.extend(name for name in state_dict if name not in expected)
    if strict:
        problems = _key_problems(keys) + problems
    if problems:
        listed = "\n\t".join(problems)
        raise RuntimeError(f"Error(s) in loading state_dict for {kind}:\n\t{listed}")
    return keys


def _load_one(entry: Entry, source: object, *, assign: bool) -> str | None:
    name, owner, attribute, value = entry
    if not isinstance(source, Tensor):
        return (
            f'While copying the parameter named "{name}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(source)}"
        )
    if tuple(source.shape) != tuple(value.shape):
        return (
            f"size mismatch for {name}: copying a param with shape {_size(source)} from "
            f"checkpoint, the shape in current model is {_size(value)}."
        )
    if not assign:
        with gt.no_grad():
            value.copy_(with_layout_of(source, value))
    elif isinstance(value, Parameter):
        setattr(owner, attribute, Parameter(source, value.requires_grad))
    else:
        setattr(owner, attribute, source)
    return None


def with_layout_of(tensor: Tensor, like: Tensor) -> Tensor:
    """`tensor` in the layout of `like`: a loaded model is cut, and on the stages, as it was before.

    Args:
        tensor: a tensor of the same shape.
        like: what it is going to replace, or to belong to.

    Returns:
        `tensor` itself where there is one worker, or `like` is partial.
    """
    if not _core.has_begun() or len(_core.workers()) < 2 or tensor.shape != like.shape:
        return tensor
    layout = _core.layout(like)
    return tensor if "partial" in layout else _core.distribute(tensor, layout=layout)


def _size(value: Tensor) -> str:
    return f"torch.Size({list(value.shape)})"


def _key_problems(keys: IncompatibleKeys) -> list[str]:
    problems = []
    for title, names in (("Missing", keys.missing_keys), ("Unexpected", keys.unexpected_keys)):
        if names:
            listed = ", ".join(f'"{name}"' for name in names)
            problems.append(f"{title} key(s) in state_dict: {listed}. ")
    return problems
