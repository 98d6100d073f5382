"""Scopes of backward passes: a gradient is computed in the scope of what it is the gradient of.

PyTorch numbers the nodes that it records in a thread. Where the scope (gt/signal) has changed
between two operators of a thread, the number is kept, so that a node's number says its scope.
Nothing of it runs before the first scope of a process is made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import local

import torch
from torch.autograd.graph import Node

from gt import _core
from gt.config import scopes

# Changes of scope that a thread keeps, a thousand steps of a small pipeline; older nodes have none.
CHANGES_MAX = 1 << 16
_LAST_NUMBER = (1 << 63) - 1  # above it are nodes without one, which add to a parameter's gradient

# PyTorch's own names: nothing public tells which node runs, and how many there are.
_current_node: Callable[[], Node | None] = torch._C._current_autograd_node  # noqa: SLF001
_next_number = torch._C._autograd._get_sequence_nr  # noqa: SLF001

# The scopes that there are: dispatch.py looks whether it is empty.
made: Mapping[int, object] = scopes.state.by_signal


class _History(local):
    """The scopes of the nodes of the thread that asks.

    Args:
        numbers: rising; from each of them nodes are of another scope.
        signals: the ids of these scopes, 0 for none.
        opened: the id that a pass has opened last, which is the current one but where the program
            opens scopes within the pass (a block that is computed again).
    """

    def __init__(self) -> None:
        self.numbers, self.signals = [0], [0]
        self.opened = 0
        self._since = _LAST_NUMBER  # the scope that is opened holds from this number on

    def follow(self, node: Node) -> None:
        """Open the scope of a node that runs, once for all nodes behind one another in it."""
        number = node._sequence_nr()  # noqa: SLF001 - its only name
        if number > _LAST_NUMBER or scopes.current.get() != self.opened:
            return
        place = max(bisect_right(self.numbers, number) - 1, 0)
        if self._since != self.numbers[place]:
            self._since = self.numbers[place]
            self.opened = _core.signal_of_gradients(self.signals[place])
            scopes.current.set(self.opened)

    @contextmanager
    def within_pass(self) -> Iterator[None]:
        """Around a pass, which may be inside of another; the scope is afterwards as before."""
        opened, since, signal = self.opened, self._since, scopes.current.get()
        self.opened, self._since = signal, _LAST_NUMBER
        try:
            yield
        finally:
            self.opened, self._since = opened, since
            scopes.current.set(signal)

    def note(self, number: int, signal: int) -> None:
        """From this number on nodes are of another scope."""
        if len(self.numbers) == CHANGES_MAX:
            half = CHANGES_MAX // 2
            self.numbers, self.signals = [0, *self.numbers[half:]], [0, *self.signals[half:]]
        if self.numbers[-1] == number:
            self.signals[-1] = signal
        else:
            self.numbers.append(number)
            self.signals.append(signal)


history = _History()


def look(args: Sequence[object], kwargs: Mapping[str, object] | None) -> None:
    """Before an operator: open the scope of the node that it is part of, or note its own."""
    node = _current_node()
    if node is not None:
        history.follow(node)
    signal = scopes.current.get()
    if signal != history.signals[-1] and (node is None or torch.is_grad_enabled()):
        operands = (*args, *kwargs.values()) if kwargs else args
        has_node = any(map(_is_recorded, operands))  # it has been made, and has its number
        history.note(_next_number() - has_node, signal)


def of_pass() -> AbstractContextManager[None]:
    """Around a backward pass of this thread: each node runs in its scope."""
    return history.within_pass() if made else nullcontext()


def _is_recorded(operand: object) -> bool:
    if isinstance(operand, list | tuple):
        return any(map(_is_recorded, operand))
    return isinstance(operand, torch.Tensor) and operand.requires_grad
