"""Parameter: a tensor that a module trains. Nothing here knows modules."""

from __future__ import annotations

import gt
from gt._core import Tensor


class Parameter(Tensor):
    """A tensor that a Module registers when assigned; it shares the value it is made from.

    Args:
        data: The value, of any shape; an empty tensor if not given.
        requires_grad: Whether backward() fills its grad.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        value = gt.empty(0) if data is None else data.detach()
        return super().__new__(cls, value, requires_grad=requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __str__(self) -> str:
        return repr(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Parameter:
        known = memo.get(id(self))
        if isinstance(known, Parameter):
            return known
        copied = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copied
        return copied
