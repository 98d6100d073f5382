"""Scopes of backward passes: a gradient is computed in the scope of its forward operator.

PyTorch numbers the nodes that it records in a thread. When the scope (gt/signal) changes between
two operators of a thread, the number is kept, so that a node's number determines its scope. None of
this runs before the first scope of a process is made.
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

# Limit of scope changes that a thread keeps, a thousand steps of a small pipeline; older nodes have
# no scope.
CHANGES_MAX = 1 << 16
_LAST_NUMBER = (1 << 63) - 1  # nodes above have no number: they add to a parameter's gradient

# PyTorch's private functions for the running node and the number of nodes; it has no public ones.
_current_node: Callable[[], Node | None] = torch._C._current_autograd_node  # noqa: SLF001
_next_number = torch._C._autograd._get_sequence_nr  # noqa: SLF001

# The existing scopes; dispatch.py tests if there are any.
made: Mapping[int, object] = scopes.state.by_signal


class _History(local):
    """The scopes of the calling thread's nodes.

    Args:
        numbers: rising numbers; the scope changes at a node of such a number.
        signals: the ids of the scopes from these numbers on, 0 for none.
        opened: the id that a pass has opened last; it is the current one unless the program opens
            scopes within the pass (a block that is computed again).
    """

    def __init__(self) -> None:
        self.numbers, self.signals = [0], [0]
        self.opened = 0
        self._since = _LAST_NUMBER  # number from which the open scope holds

    def follow(self, node: Node) -> None:
        """Opens the scope of a running node, once for successive nodes in it."""
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
        """Context of a pass, which may be nested; restores the scope afterwards."""
        opened, since, signal = self.opened, self._since, scopes.current.get()
        self.opened, self._since = signal, _LAST_NUMBER
        try:
            yield
        finally:
            self.opened, self._since = opened, since
            scopes.current.set(signal)

    def note(self, number: int, signal: int) -> None:
        """Records that nodes have another scope from this number on."""
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
    """Called before an operator: opens the scope of the running node, or records the operator's
    own.
    """
    node = _current_node()
    if node is not None:
        history.follow(node)
    signal = scopes.current.get()
    if signal != history.signals[-1] and (node is None or torch.is_grad_enabled()):
        operands = (*args, *kwargs.values()) if kwargs else args
        has_node = any(map(_is_recorded, operands))  # the node exists, with its number
        history.note(_next_number() - has_node, signal)


def of_pass() -> AbstractContextManager[None]:
    """Context of this thread's backward pass, in which each node runs in its scope."""
    return history.within_pass() if made else nullcontext()


def _is_recorded(operand: object) -> bool:
    if isinstance(operand, list | tuple):
        return any(map(_is_recorded, operand))
    return isinstance(operand, torch.Tensor) and operand.requires_grad
