"""state_dict and load_state_dict over a list of entries, with PyTorch's error texts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import gt
from gt import _core
from gt._core import Tensor
from gt.nn.parameter import (
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
    is_lazy,
)
from gt.tensors.conversion import Recorded
from gt.tensors.creation import as_tensor


class Entry(NamedTuple):
    """A parameter or buffer that is saved: its table, and its name there."""

    name: str  # dotted, relative to the saved module
    owner: object
    attribute: str
    value: Tensor


class IncompatibleKeys(NamedTuple):
    """Names that a load did not find, and names that it did not use."""

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


def finish(
    kind: str, keys: IncompatibleKeys, problems: list[str], *, strict: bool
) -> IncompatibleKeys:
    """The names that a load did not use and did not find; raises if something did not match.

    Args:
        kind: name of the module's class, for the error.
        keys: the names.
        problems: messages about mismatches.
        strict: whether the names are errors.
    """
    problems = [*(_key_problems(keys) if strict else []), *problems]
    if problems:
        listed = "\n\t".join(problems)
        raise RuntimeError(f"Error(s) in loading state_dict for {kind}:\n\t{listed}")
    return keys


def load_one(entry: Entry, source: object, *, assign: bool) -> str | None:
    """Copy one value, or put it in the entry's place; returns a message if it does not match."""
    name, owner, attribute, value = entry
    if isinstance(source, Recorded) and not isinstance(source, Tensor):  # PyTorch's
        source = as_tensor(source)  # type: ignore[arg-type]
    if not isinstance(source, Tensor):
        return (
            f'While copying the parameter named "{name}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(source)}"
        )
    if isinstance(value, UninitializedParameter | UninitializedBuffer) and is_lazy(value):
        value.materialize(source.shape)
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
    """`tensor` in the layout of `like`: a loaded model is cut, and on the stages, as before.

    Args:
        tensor: a tensor of the same shape.
        like: the tensor that it will replace or belong to.

    Returns:
        `tensor` itself if there is one worker, or `like` is partial.
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
