"""Modules that hold others by position or by name; those of parameters are in
parameter_containers.py.
"""

from __future__ import annotations

import itertools
import operator
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gt._core import Tensor
from gt.nn.listing import indented
from gt.nn.module import Module
from gt.nn.names import foreign, typename
from gt.nn.parameter_containers import pairs_of


class _ModuleSequence(Module):
    """Base of Sequential and ModuleList: children named "0", "1", …"""

    def _items(self) -> list[Module]:
        return [child for child in self._modules.values() if child is not None]

    def _renumber(self, children: Iterable[Module]) -> None:
        self._modules = OrderedDict((str(place), child) for place, child in enumerate(children))

    def _name_at(self, index: int) -> str:
        names = list(self._modules)
        place = operator.index(index)
        if not -len(names) <= place < len(names):
            raise IndexError(f"index {place} is out of range")
        return names[place]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items())

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)
        gone = names[index] if isinstance(index, slice) else [self._name_at(index)]
        for name in gone:
            del self._modules[name]
        self._renumber(self._items())

    def append(self, module: Module) -> _ModuleSequence:
        """Add `module` at the end."""
        self.register_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> _ModuleSequence:
        """Add `module` before the module at `index`.

        Raises:
            IndexError: The index is out of range.
        """
        children = self._items()
        if not -len(children) <= index <= len(children):
            raise IndexError(f"Index out of range: {index}")
        children.insert(index, module)
        self._renumber(children)
        return self

    def pop(self, key: int | slice = -1) -> Module:
        """Remove and return the module at `key`, or those of a slice."""
        child: Module = self[key]
        del self[key]
        return child

    @abstractmethod
    def __getitem__(self, index: int | slice) -> Any: ...  # noqa: ANN401 - a module or several


class Sequential(_ModuleSequence):
    """Calls its children one after the other.

    Args:
        modules: The children, or one dictionary of them by name.
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.register_module(name, module)
            return
        for place, child in enumerate(modules):
            if not isinstance(child, Module):
                raise TypeError(f"{typename(child)} is not a Module subclass{foreign(child)}")
            self.register_module(str(place), child)

    def forward(self, input: Tensor) -> Tensor:
        for child in self._modules.values():
            input = child(input)  # type: ignore[misc]
        return input

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))  # type: ignore[arg-type]
        return self._items()[self._checked(index)]

    def extend(self, sequential: Iterable[Module]) -> Sequential:
        """Add the modules of `sequential` at the end."""
        for module in sequential:
            self.append(module)
        return self

    def _checked(self, index: int) -> int:
        self._name_at(index)
        return index

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *self._checked_other(other, "add"))

    def __iadd__(self, other: Sequential) -> Sequential:
        return self.extend(list(self._checked_other(other, "add")))

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*list(self) * _times(other))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        return self.extend(list(self) * (_times(other) - 1))

    def _checked_other(self, other: object, word: str) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(  # noqa: TRY004 - PyTorch's class
                f"{word} operator supports only objects of Sequential class, but "
                f"{type(other)} is given."
            )
        return other


def _times(count: object) -> int:
    if not isinstance(count, int):
        raise TypeError(f"unsupported operand type(s) for *: {Sequential} and {type(count)}")
    if count <= 0:
        raise ValueError(f"Non-positive multiplication factor {count} for {Sequential}")
    return count


class ModuleList(_ModuleSequence):
    """A list of modules whose parameters count as this module's.

    Args:
        modules: The initial modules.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend([] if modules is None else modules)

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return type(self)(self._items()[index])
        self._name_at(index)
        return self._items()[index]

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add `modules` at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                f"{type(modules).__name__}"
            )
        for module in modules:
            self.append(module)
        return self

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        if not len(self):
            return f"{self._get_name()}()"
        lines = []
        start = 0
        for text, run in itertools.groupby(repr(child) for child in self):
            count = len(list(run))
            label = f"({start})" if count == 1 else f"({start}-{start + count - 1})"
            times = "" if count == 1 else f"{count} x "
            lines.append(f"{label}: {times}{indented(text)}")
            start += count
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dictionary of modules whose parameters count as this module's.

    Args:
        modules: The initial modules, by name.
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update({} if modules is None else modules)

    def __getitem__(self, key: str) -> Module:
        module = self._modules[key]
        if module is None:
            raise KeyError(key)
        return module

    def __setitem__(self, key: str, module: Module) -> None:
        self.register_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module | None]]:
        """(name, module)."""
        return self._modules.items()

    def values(self) -> Iterable[Module | None]:
        """The modules."""
        return self._modules.values()

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Remove and return a module."""
        module = self[key]
        del self[key]
        return module

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, "
                f"but got {type(modules).__name__}"
            )
        is_mapping = isinstance(modules, Mapping | ModuleDict)
        items = OrderedDict(modules.items()) if is_mapping else modules  # type: ignore[union-attr]
        for key, module in pairs_of("ModuleDict", items):
            self[key] = module
