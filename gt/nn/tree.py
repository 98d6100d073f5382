"""Iterations over the tree of modules, and look-ups by dotted names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from gt._core import Tensor
from gt.nn import listing
from gt.nn.listing import ParameterListing
from gt.nn.members import Members
from gt.nn.parameter import Parameter

M = TypeVar("M", bound="Tree[Any]")  # the class of modules


class Tree(Members[M]):
    """The part of Module that lists the members here and below."""

    def parameters(self, recurse: bool = True) -> ParameterListing:
        """All parameters; may be iterated again, has a length, and supports next()."""
        return ParameterListing(lambda: self.named_parameters(recurse=recurse))

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) of this module and the modules below."""
        owners = self._owners(prefix, recurse=recurse, unique=remove_duplicate)
        tables = ((name, owner._parameters) for name, owner in owners)
        return listing.members(tables, unique=remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer) of this module and the modules below."""
        owners = self._owners(prefix, recurse=recurse, unique=remove_duplicate)
        tables = ((name, owner._buffers) for name, owner in owners)
        return listing.members(tables, unique=remove_duplicate)

    def _owners(self, prefix: str, *, recurse: bool, unique: bool) -> Iterator[tuple[str, M]]:
        """This module, and those below if `recurse`, by dotted name."""
        if recurse:
            return self.named_modules(prefix=prefix, remove_duplicate=unique)
        return iter([(prefix, cast("M", self))])

    def children(self) -> Iterator[M]:
        """The modules directly below."""
        return (child for _, child in self.named_children())

    def named_children(self) -> Iterator[tuple[str, M]]:
        """(name, module) directly below, each module once."""
        return listing.named_children(self._modules)

    def modules(self, remove_duplicate: bool = True) -> Iterator[M]:
        """This module and all below, each once if `remove_duplicate`."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def named_modules(
        self, memo: set[M] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, M]]:
        """(dotted name, module) of this module and all below."""
        seen: set[M] = set() if memo is None else memo
        return listing.named_modules(
            cast("M", self), lambda module: module._modules, seen, prefix, unique=remove_duplicate
        )

    def _named_members(
        self,
        get_members_fn: Callable[[M], Iterable[tuple[str, Any]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        """(dotted name, member) for each member that `get_members_fn` returns, for PyTorch's
        extensions.
        """
        owners = self._owners(prefix, recurse=recurse, unique=remove_duplicate)
        tables = ((name, dict(get_members_fn(owner))) for name, owner in owners)
        return listing.members(tables, unique=remove_duplicate)

    def get_submodule(self, target: str) -> M:
        """The module with this dotted name."""
        module = cast("M", self)
        for name in target.split(".") if target else []:
            below = _attribute(module, name)
            if not isinstance(below, Tree):
                raise AttributeError(f"`{name}` is not an nn.Module")  # noqa: TRY004 (PyTorch's class)
            module = cast("M", below)
        return module

    def set_submodule(self, target: str, module: M, strict: bool = False) -> None:
        """Put `module` at this dotted name; `strict` requires that something is there already."""
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Tree):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")  # noqa: TRY004
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if strict:
            _attribute(owner, name)
        if hasattr(owner, name) and not isinstance(getattr(owner, name), Tree):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(owner, name, module)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with this dotted name."""
        owner, _, name = target.rpartition(".")
        module = self.get_submodule(owner)
        _attribute(module, name)
        buffer = module._buffers.get(name)
        if buffer is None:
            raise AttributeError(f"`{name}` is not a buffer")
        return buffer

    def get_parameter(self, target: str) -> Parameter:
        """The parameter with this dotted name."""
        owner, _, name = target.rpartition(".")
        parameter = _attribute(self.get_submodule(owner), name)
        if not isinstance(parameter, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")  # noqa: TRY004 (PyTorch's class)
        return parameter

    def _get_name(self) -> str:
        return type(self).__name__


def _attribute(module: Tree[Any], name: str) -> object:
    if not hasattr(module, name):
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    return getattr(module, name)
