"""Iterations over trees of modules, of any class. They only read, except clear_gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from gt.nn.parameter import Parameter

if TYPE_CHECKING:
    from gt._core import Tensor

Node = TypeVar("Node")
Member = TypeVar("Member", bound="Tensor")


class ParameterListing:
    """A module's parameters, listed anew by each loop; has a length; `next()` iterates once."""

    def __init__(self, named: Callable[[], Iterator[tuple[str, Parameter]]]) -> None:
        self._named = named
        self._position: Iterator[Parameter] | None = None

    def __iter__(self) -> Iterator[Parameter]:
        return (param for _, param in self._named())

    def __next__(self) -> Parameter:
        if self._position is None:
            self._position = iter(self)
        return next(self._position)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def named_modules(
    module: Node,
    children: Callable[[Node], Mapping[str, Node | None]],
    seen: set[Node],
    prefix: str,
    *,
    unique: bool,
) -> Iterator[tuple[str, Node]]:
    """(dotted name, module) in the order of registration, parents first."""
    if module in seen:
        return
    if unique:
        seen.add(module)
    yield prefix, module
    for name, child in children(module).items():
        if child is not None:
            yield from named_modules(child, children, seen, joined(prefix, name), unique=unique)


def named_children(children: Mapping[str, Node | None]) -> Iterator[tuple[str, Node]]:
    """(name, module) for each child that is not None, each module once."""
    seen: set[Node] = set()
    for name, child in children.items():
        if child is not None and child not in seen:
            seen.add(child)
            yield name, child


def members(
    tables: Iterable[tuple[str, Mapping[str, Member | None]]], *, unique: bool
) -> Iterator[tuple[str, Member]]:
    """(dotted name, entry) of the modules' tables, without absent entries."""
    seen: set[int] = set()
    for owner_name, table in tables:
        for name, member in table.items():
            if member is None or id(member) in seen:
                continue
            if unique:
                seen.add(id(member))
            yield joined(owner_name, name), member


def clear_gradient(param: Tensor, *, to_none: bool) -> None:
    """Drop a gradient, or replace it by zeros in place."""
    if param.grad is None:
        return
    if to_none:
        param.grad = None
    else:
        param.grad.detach().zero_()


def indented(text: str) -> str:
    """`text` with all lines except the first indented by two spaces."""
    return text.replace("\n", "\n  ")


def joined(prefix: str, name: str) -> str:
    """The dotted name of `name` below `prefix`."""
    return f"{prefix}.{name}" if prefix else name
