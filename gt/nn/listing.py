"""Walks over the tree of modules. Read only, but for clear_gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from gt.nn.parameter import Parameter

if TYPE_CHECKING:
    from gt._core import Tensor
    from gt.nn.module import Module

Member = TypeVar("Member", bound="Tensor")


class ParameterListing:
    """A module's parameters, read anew by each loop; has a length; `next()` walks them once."""

    def __init__(self, module: Module, *, recurse: bool) -> None:
        self._module = module
        self._recurse = recurse
        self._position: Iterator[Parameter] | None = None

    def __iter__(self) -> Iterator[Parameter]:
        return (param for _, param in self._module.named_parameters(recurse=self._recurse))

    def __next__(self) -> Parameter:
        if self._position is None:
            self._position = iter(self)
        return next(self._position)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def named_modules(
    module: Module, seen: set[Module], prefix: str, *, unique: bool
) -> Iterator[tuple[str, Module]]:
    """(dotted name, module) in the order of registration, parents first."""
    if module in seen:
        return
    if unique:
        seen.add(module)
    yield prefix, module
    for name, child in module._modules.items():
        if child is not None:
            yield from named_modules(child, seen, _joined(prefix, name), unique=unique)


def named_children(module: Module) -> Iterator[tuple[str, Module]]:
    """(name, module) directly below, each module once."""
    seen: set[Module] = set()
    for name, child in module._modules.items():
        if child is not None and child not in seen:
            seen.add(child)
            yield name, child


def members(
    module: Module,
    table: Callable[[Module], Mapping[str, Member | None]],
    prefix: str,
    *,
    recurse: bool,
    unique: bool,
) -> Iterator[tuple[str, Member]]:
    """(dotted name, entry) of one of the modules' tables; absent entries are left out."""
    owners = (
        module.named_modules(prefix=prefix, remove_duplicate=unique)
        if recurse
        else iter([(prefix, module)])
    )
    seen: set[int] = set()
    for owner_name, owner in owners:
        for name, member in table(owner).items():
            if member is None or id(member) in seen:
                continue
            if unique:
                seen.add(id(member))
            yield _joined(owner_name, name), member


def submodule(module: Module, target: str) -> Module:
    """The module below with this dotted name."""
    from gt.nn.module import Module

    for name in target.split(".") if target else []:
        below = getattr(module, name, None)
        if below is None:
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if not isinstance(below, Module):
            raise AttributeError(f"`{name}` is not an nn.Module")  # noqa: TRY004 (PyTorch's class)
        module = below
    return module


def clear_gradient(param: Tensor, *, to_none: bool) -> None:
    """Drop a gradient, or replace it by zeros in place."""
    if param.grad is None:
        return
    if to_none:
        param.grad = None
    else:
        param.grad.detach().zero_()


def indented(text: str) -> str:
    """`text` with all lines but the first moved right by two."""
    return text.replace("\n", "\n  ")


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
