"""Parameters by position or by name, as a part of a module; those of modules are in
containers.py.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from typing import Any, TypeAlias

from gt._core import Tensor
from gt.nn.module import Module
from gt.nn.parameter import Parameter

Value: TypeAlias = Any  # a parameter, or anything that is no tensor


class ParameterList(Module):
    """A list of parameters that count as this module's; tensors become parameters.

    Args:
        values: The initial values. Those that are no tensors are kept unchanged.
    """

    def __init__(self, values: Iterable[Value] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _get_abs_string_index(self, idx: int) -> str:
        """The attribute's name for an index, which may count from the end."""
        place = operator.index(idx)
        if not -self._size <= place < self._size:
            raise IndexError(f"index {place} is out of range")
        return str(place % self._size)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Value]:
        return (self[place] for place in range(self._size))

    def __getitem__(self, index: int | slice) -> Value:
        if isinstance(index, slice):
            return type(self)(self[place] for place in range(self._size)[index])
        return getattr(self, self._get_abs_string_index(index))

    def __setitem__(self, index: int, value: Value) -> None:
        setattr(self, self._get_abs_string_index(index), _as_parameter(value))

    def append(self, value: Value) -> ParameterList:
        """Append a value."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Value]) -> ParameterList:
        """Append several values."""
        source: object = values
        if not isinstance(source, Iterable) or isinstance(source, Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def __iadd__(self, values: Iterable[Value]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        return "\n".join(
            _line(str(place), value, lambda x: x.dtype) for place, value in enumerate(self)
        )

    def __call__(self, *_args: object, **_kwargs: object) -> object:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters that count as this module's; tensors become parameters.

    Args:
        parameters: The initial parameters, by name, or pairs. The names of a plain dictionary are
            sorted, as in PyTorch.
    """

    def __init__(
        self, parameters: Mapping[str, Value] | Iterable[tuple[str, Value]] | None = None
    ) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key: str) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}')"
            )
        return key

    def __getitem__(self, key: str) -> Value:
        if self._key_to_attr(key) not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Value) -> None:
        name = self._key_to_attr(key)
        self._keys[name] = None
        setattr(self, name, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        joined = other.copy()
        joined.update(self)
        return joined

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """A dictionary of the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Value]]:
        """(name, parameter)."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Value]:
        """The parameters."""
        return (self[key] for key in self._keys)

    def get(self, key: str, default: Value = None) -> Value:
        """The parameter of this name, or `default`."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Value = None) -> Value:
        """The parameter of this name; a missing one is set to `default`."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Value:
        """Remove and return a parameter."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Value]:
        """Remove the last parameter; returns its name and the parameter."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all parameters."""
        for key in list(self._keys):
            del self[key]

    def fromkeys(self, keys: Iterable[str], default: Value = None) -> ParameterDict:
        """A dictionary with `default` for each of these names."""
        return ParameterDict((key, default) for key in keys)

    def update(
        self, parameters: Mapping[str, Value] | ParameterDict | Iterable[tuple[str, Value]]
    ) -> None:
        """Add or replace parameters; those of a plain dictionary in the order of their names."""
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, "
                f"but got {type(parameters).__name__}"
            )
        for key, value in pairs_of("ParameterDict", parameters):
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_line(key, value, lambda x: x.type()) for key, value in self.items())

    def __call__(self, *_args: object, **_kwargs: object) -> object:
        raise RuntimeError("ParameterDict should not be called.")


def pairs_of(kind: str, given: Any) -> list[tuple[str, Value]]:  # noqa: ANN401 - it is checked
    """The pairs of a dictionary or of a sequence of pairs.

    Raises:
        TypeError: an element is not a pair.
        ValueError: one does not have two elements.
    """
    if isinstance(given, OrderedDict | ParameterDict):
        return list(given.items())
    if isinstance(given, Mapping):
        return sorted(given.items(), key=lambda pair: pair[0])
    pairs = []
    for place, pair in enumerate(given):
        element = f"{kind} update sequence element #{place}"
        if not isinstance(pair, Iterable):
            raise TypeError(f"{element} should be Iterable; is{type(pair).__name__}")
        items = tuple(pair)
        if len(items) != 2:
            raise ValueError(f"{element} has length {len(items)}; 2 is required")
        pairs.append((items[0], items[1]))
    return pairs


def _line(name: str, value: Value, type_of: Callable[[Tensor], object]) -> str:
    """The line for one entry in a container's repr."""
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(map(str, value.shape))
    return f"  ({name}): {kind} containing: [{type_of(value)} of size {size}]"


def _as_parameter(value: Value) -> Value:
    wrapped = isinstance(value, Tensor) and not isinstance(value, Parameter)
    return Parameter(value) if wrapped else value
