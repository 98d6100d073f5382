"""Undoes a step of an optimizer where a tensor on the workers says so, without reading that tensor.

Parameters and state get their former values by `where`. Values that are no tensors, such as a count
of steps, and state that the step made need a read of the tensor.
"""

from typing import Any, TypeAlias

import gt
from gt._core import Tensor
from gt.optim import Optimizer
from gt.optim.entries import plain, put_back

State: TypeAlias = dict[str, Any]


class Undo:
    """Saved state of an optimizer and its parameters before a step; the copies share the tensors'
    values.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = [_options(group) for group in optimizer.param_groups]
        self._params = [
            (param, _copied(param))
            for group in optimizer.param_groups
            for param in group["params"]
            if param.grad is not None
        ]
        # The optimizer's own dictionaries, and their entries with copies of the tensors.
        self._state: list[tuple[Tensor, State, State]] = [
            (param, entries, {name: _kept(value) for name, value in plain(entries).items()})
            for param, entries in optimizer.state.items()
        ]

    def undo_where(self, is_skipped: Tensor) -> bool:
        """Undoes the step where the tensor is true; returns True if this program knows
        that it did.
        """
        if self._is_of_tensors():
            for now, before in self._tensors():
                _restore(now, gt.where(is_skipped, before, now.detach()))
            return False
        if not is_skipped.item():
            return False
        for param, before in self._params:
            _restore(param, before)
        self._optimizer.state.clear()
        for param, entries, values in self._state:
            put_back(entries, {name: _opened(value) for name, value in values.items()})
            self._optimizer.state[param] = entries
        for group, options in zip(self._optimizer.param_groups, self._groups, strict=True):
            group.update(options)
        return True

    def _is_of_tensors(self) -> bool:
        """True if the step changed tensors only, and made none."""
        now = self._optimizer.state
        if len(now) != len(self._state):
            return False
        for param, _, before in self._state:
            entries = now.get(param)
            if entries is None or entries.keys() != before.keys():
                return False
            for name, value in plain(entries).items():
                previous = before[name]
                if isinstance(value, Tensor) != isinstance(previous, _Copy):
                    return False
                if not isinstance(value, Tensor) and value != previous:
                    return False
        groups = self._optimizer.param_groups
        return self._groups == [_options(group) for group in groups]

    def _tensors(self) -> list[tuple[Tensor, Tensor]]:
        """Each tensor that may have changed, and its former value."""
        tensors = list(self._params)
        for param, _, before in self._state:
            entries = self._optimizer.state[param]
            tensors += [
                (entries[name], previous.copy)
                for name, previous in before.items()
                if isinstance(previous, _Copy)
            ]
        return tensors


class _Copy:
    """Saved value of a tensor of the state."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.copy = tensor, _copied(tensor)


def _kept(value: object) -> object:
    return _Copy(value) if isinstance(value, Tensor) else value


def _opened(value: object) -> object:
    if not isinstance(value, _Copy):
        return value
    _restore(value.tensor, value.copy)
    return value.tensor


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _restore(tensor: Tensor, value: Tensor) -> None:
    with gt.no_grad():
        tensor.copy_(value)


def _options(group: State) -> State:
    return {name: value for name, value in group.items() if name != "params"}
