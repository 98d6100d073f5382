"""State of a parameter, whose numbers are tensors to a reader and numbers to an update.

PyTorch holds the count of steps, and a few factors, as tensors without dimensions. A step of GT
needs them as numbers, and one more instruction for each parameter would be felt. So a tensor is
made when somebody asks for it; from then on tensor and number follow each other's writes, until
nobody has the tensor any more.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import gt
from gt._core import Tensor

NUMBERS = frozenset({"step", "mu_product", "eta", "mu"})
_WRITTEN = -1  # no version: the value is read before its next use
_get, _put = dict.__getitem__, dict.__setitem__


class Entries(dict[str, Any]):
    """State that an optimizer keeps of one parameter."""

    __slots__ = ("_dtypes", "_shown")

    def __init__(self, entries: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__()
        # The tensors that stand for numbers, with the count of writes at which both were equal.
        self._shown: dict[str, tuple[Tensor, int]] = {}
        self._dtypes: dict[str, gt.dtype] = {}  # of these tensors
        self.update(entries)

    def number(self, name: str) -> Any:  # noqa: ANN401 - int or float; a tensor with a gradient
        """A number, with the writes into the tensor that stands for it."""
        if self._shown:
            self._take_writes()
        return _get(self, name)

    def set_number(self, name: str, value: Any) -> Any:  # noqa: ANN401 - as above
        """Rounds a number to its dtype, and writes the tensor that stands for it, if any."""
        if name != "step":
            value = _rounded(value, self._dtypes[name])
        _put(self, name, value)
        if name in self._shown:
            self._show_again(name, value)
        return value

    def dtype(self, name: str) -> gt.dtype:
        """The dtype of the tensor that stands for a number."""
        return self._dtypes[name]

    def _take_writes(self) -> None:
        for name, (tensor, version) in self._shown.items():
            if tensor._version != version:  # noqa: SLF001 - autograd's count of writes
                value = tensor.item()
                _put(self, name, int(value) if name == "step" else value)
                self._shown[name] = (tensor, tensor._version)  # noqa: SLF001

    def _show_again(self, name: str, value: float) -> None:
        held = weakref.ref(self._shown.pop(name)[0])
        tensor = held()  # None if nobody else has it
        if tensor is not None:
            with gt.no_grad():
                tensor.fill_(value)
            self._shown[name] = (tensor, tensor._version)  # noqa: SLF001

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a dictionary's
        value = _get(self, name)
        if name not in NUMBERS or not isinstance(value, int | float):
            return value
        if name not in self._shown:
            tensor = gt.tensor(float(value), dtype=self._dtypes[name])
            self._shown[name] = (tensor, tensor._version)  # noqa: SLF001
        return self._shown[name][0]

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401 - a dictionary's
        self._shown.pop(name, None)
        if name in NUMBERS:
            value = self._number(name, value)
        _put(self, name, value)

    def _number(self, name: str, value: Any) -> Any:  # noqa: ANN401 - as above
        is_tensor = isinstance(value, Tensor)
        self._dtypes[name] = dtype = value.dtype if is_tensor else _scalar_dtype()
        if is_tensor and not value.ndim and not value.requires_grad:
            self._shown[name] = (value, _WRITTEN)
            return 0
        is_rounded = name != "step" and isinstance(value, int | float)
        return _rounded(value, dtype) if is_rounded else value

    def __delitem__(self, name: str) -> None:
        self._shown.pop(name, None)
        super().__delitem__(name)

    def __iter__(self) -> Iterator[str]:  # without it, `dict()` of such a class reads each entry
        return iter(self.keys())

    def items(self) -> Any:  # noqa: ANN401 - a dictionary's
        """Names and values, numbers as tensors."""
        return self.copy().items()

    def values(self) -> Any:  # noqa: ANN401 - a dictionary's
        """The entries' values, numbers as tensors."""
        return self.copy().values()

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - a dictionary's
        """The value of `name`, a number as a tensor; else `default`."""
        return self[name] if name in self else default  # noqa: SIM401 - this is its definition

    def pop(self, name: str, *default: Any) -> Any:  # noqa: ANN401 - a dictionary's
        """The value of `name`, which is removed."""
        value = self[name] if name in self else default[0] if default else _get(self, name)
        if name in self:
            del self[name]
        return value

    def setdefault(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - a dictionary's
        """The value of `name`; a missing one is set to `default`."""
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *entries: Any, **named: Any) -> None:  # noqa: ANN401 - a dictionary's
        """Takes entries from other mappings."""
        for name, value in dict(*entries, **named).items():
            self[name] = value

    def clear(self) -> None:
        """Removes all entries."""
        self._shown.clear()
        super().clear()

    def copy(self) -> dict[str, Any]:
        """A dictionary with the same tensors."""
        return {name: self[name] for name in self}

    def __repr__(self) -> str:
        return repr(self.copy())

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, Entries) else other)

    def __reduce__(self) -> tuple[object, ...]:
        return Entries, (self.copy(),)

    __hash__ = None


def number(state: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - int or float
    """A number of a state, which a program may have replaced by a plain dictionary."""
    if isinstance(state, Entries):
        return state.number(name)
    value = state[name]
    return value.item() if isinstance(value, Tensor) and not value.requires_grad else value


def set_number(state: dict[str, Any], name: str, value: Any) -> Any:  # noqa: ANN401 - as above
    """Stores a number in a state, and returns it in the stored dtype."""
    if isinstance(state, Entries):
        return state.set_number(name, value)
    state[name] = value
    return value


def multiplied(state: dict[str, Any], name: str, by: Any) -> Any:  # noqa: ANN401 - as above
    """Multiplies a number of a state as PyTorch multiplies the tensor, in whose dtype the factor is
    taken.
    """
    is_double = isinstance(state, Entries) and state.dtype(name) == gt.float64
    by = by if is_double else _rounded(by, gt.float32)
    return set_number(state, name, number(state, name) * by)


def plain(state: dict[str, Any]) -> dict[str, Any]:
    """The entries, with numbers as numbers."""
    if not isinstance(state, Entries):
        return dict(state)
    return {name: state.number(name) for name in state}


def put_back(state: dict[str, Any], before: dict[str, Any]) -> None:
    """Restores the entries that plain() returned; tensors that stand for numbers stay the same
    objects.
    """
    for name in [*state]:
        if name not in before:
            del state[name]
    for name, value in before.items():
        if name in NUMBERS and name in state and not isinstance(value, Tensor):
            set_number(state, name, value)
        else:
            state[name] = value


def tensors(states: list[dict[str, Any]], name: str) -> list[Tensor]:
    """An entry of each state that is no number, without a Python call for each."""
    return [*map(_get, states, itertools.repeat(name))]


def next_step(state: dict[str, Any]) -> int:
    """Increments the step count, and returns it."""
    return next_steps([state])[0]


def next_steps(states: list[dict[str, Any]]) -> list[int]:
    """Increments the step count of each state, and returns them."""
    steps = []
    for state in states:
        if type(state) is Entries and not state._shown:  # noqa: SLF001 - the common case
            step = _get(state, "step") + 1
            _put(state, "step", step)
        else:
            step = int(number(state, "step")) + 1
            set_number(state, "step", step)
        steps.append(step)
    return steps


def _scalar_dtype() -> gt.dtype:
    """The dtype of numbers without one, as PyTorch's optimizers choose it."""
    return gt.float64 if gt.get_default_dtype() == gt.float64 else gt.float32


def _rounded(value: Any, dtype: gt.dtype) -> Any:  # noqa: ANN401 - float; or a tensor, as it is
    if isinstance(value, Tensor) or dtype == gt.float64:
        return value
    if dtype == gt.float32:
        return ctypes.c_float(value).value
    return gt.tensor(value, dtype=dtype).item()
