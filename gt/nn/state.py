"""state_dict and load_state_dict of modules, with PyTorch's error texts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import gt
from gt import _core
from gt._core import Tensor
from gt.nn.parameter import Parameter

if TYPE_CHECKING:
    from gt.nn.module import Module


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


def collect(module: Module, prefix: str, *, keep_vars: bool) -> dict[str, Tensor]:
    """Parameters and persistent buffers by dotted name; shared modules under each name."""
    found: dict[str, Tensor] = OrderedDict()
    for name, _, _, value in _entries(module, prefix):
        found[name] = value if keep_vars else value.detach()
    return found


def load(
    module: Module, state_dict: Mapping[str, Tensor], *, strict: bool, assign: bool
) -> IncompatibleKeys:
    """Copy values into the module; all that fits is copied before what does not fit is raised."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    keys = IncompatibleKeys([], [])
    problems: list[str] = []
    expected: set[str] = set()
    for name, owner, local_name, value in list(_entries(module, "")):
        expected.add(name)
        if name not in state_dict:
            keys.missing_keys.append(name)
            continue
        problem = _load_one(owner, local_name, name, value, state_dict[name], assign=assign)
        if problem:
            problems.append(problem)
    keys.unexpected_keys.extend(name for name in state_dict if name not in expected)
    if strict:
        problems = _key_problems(keys) + problems
    if problems:
        listed = "\n\t".join(problems)
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{listed}"
        )
    return keys


def _entries(module: Module, prefix: str) -> Iterator[tuple[str, Module, str, Tensor]]:
    """(dotted name, owner, the owner's name for it, value) of all that is saved."""
    for owner_name, owner in module.named_modules(remove_duplicate=False):
        start = f"{prefix}{owner_name}." if owner_name else prefix
        for name, param in owner._parameters.items():
            if param is not None:
                yield start + name, owner, name, param
        for name, buffer in owner._buffers.items():
            if buffer is not None and name not in owner._transient:
                yield start + name, owner, name, buffer


def _load_one(
    owner: Module, local_name: str, name: str, value: Tensor, given: object, *, assign: bool
) -> str | None:
    if not isinstance(given, Tensor):
        return (
            f'While copying the parameter named "{name}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(given)}"
        )
    if tuple(given.shape) != tuple(value.shape):
        return (
            f"size mismatch for {name}: copying a param with shape {_size(given)} from checkpoint, "
            f"the shape in current model is {_size(value)}."
        )
    if not assign:
        with gt.no_grad():
            value.copy_(with_layout_of(given, value))
    elif isinstance(value, Parameter):
        setattr(owner, local_name, Parameter(given, value.requires_grad))
    else:
        setattr(owner, local_name, given)
    return None


def with_layout_of(given: Tensor, like: Tensor) -> Tensor:
    """`given` in the layout of `like`: a loaded model is cut, and on the stages, as it was before.

    Args:
        given: a tensor of the same shape.
        like: what it is going to replace, or to belong to.

    Returns:
        `given` itself where there is one worker, or `like` is partial.
    """
    if not _core.has_begun() or len(_core.workers()) < 2 or given.shape != like.shape:
        return given
    layout = _core.layout(like)
    return given if "partial" in layout else _core.distribute(given, layout=layout)


def _size(value: Tensor) -> str:
    return f"torch.Size({list(value.shape)})"


def _key_problems(keys: IncompatibleKeys) -> list[str]:
    problems = []
    for title, names in (("Missing", keys.missing_keys), ("Unexpected", keys.unexpected_keys)):
        if names:
            listed = ", ".join(f'"{name}"' for name in names)
            problems.append(f"{title} key(s) in state_dict: {listed}. ")
    return problems
