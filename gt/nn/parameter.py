"""Parameter: a tensor that a module trains. It does not depend on modules."""

from __future__ import annotations

from collections.abc import Sequence

import gt
from gt import _core
from gt._core import Tensor
from gt.compat import misses
from gt.tensors.reading import memory_copy


def _writable(value: Tensor) -> Tensor:
    """The value in memory of its own if it is a part of a complex tensor, which could not be
    written.
    """
    return value.clone() if _core.is_read_only(value) else value


class Parameter(Tensor):
    """A tensor that a Module registers when it is assigned; it shares its source's value.

    Args:
        data: The value, of any shape; an empty tensor if not given.
        requires_grad: Whether backward() fills its grad.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        value = gt.empty(0) if data is None else _writable(data.detach())
        return super().__new__(cls, value).requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __str__(self) -> str:
        return repr(self)

    def __deepcopy__(self, memo: dict[int, object]) -> Parameter:
        previous = memo.get(id(self))
        if isinstance(previous, Parameter):
            return previous
        copied = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copied
        return copied


class UninitializedParameter(Parameter):
    """A parameter that gets its shape in a lazy module's first call; until then it has no elements.

    Args:
        requires_grad: Whether backward() fills its grad.
        device: Accepted and ignored.
        dtype: Dtype of the later values.
    """

    def __new__(
        cls, requires_grad: bool = True, device: object = None, dtype: gt.dtype | None = None
    ) -> UninitializedParameter:
        value = gt.empty(0, device=device, dtype=dtype)
        return super().__new__(cls, value, requires_grad)  # type: ignore[return-value]

    def materialize(
        self, shape: Sequence[int], device: object = None, dtype: gt.dtype | None = None
    ) -> None:
        """Become a Parameter of `shape` with values still to be set."""
        self.data = gt.empty(tuple(shape), device=device, dtype=dtype or self.dtype)
        self.__class__ = Parameter  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, object]) -> UninitializedParameter:
        previous = memo.get(id(self))
        if isinstance(previous, UninitializedParameter):
            return previous
        copied = type(self)(self.requires_grad, dtype=self.dtype)
        memo[id(self)] = copied
        return copied


class Buffer(Tensor):
    """A tensor that a Module registers as a buffer when it is assigned; it shares its source's
    value.

    Args:
        data: The value, of any shape; an empty tensor if not given.
        persistent: Whether state_dict contains it.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        value = gt.empty(0) if data is None else _writable(data.detach())
        requires_grad = data is not None and data.requires_grad
        buffer = super().__new__(cls, value, requires_grad=requires_grad)
        buffer.persistent = persistent
        return buffer

    def __deepcopy__(self, memo: dict[int, object]) -> Buffer:
        previous = memo.get(id(self))
        if isinstance(previous, Buffer):
            return previous
        copied = type(self)(memory_copy(self, memo), persistent=self.persistent)
        memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return copied


class UninitializedBuffer(Tensor):
    """A buffer that gets its shape in a lazy module's first call; until then it has no elements."""

    is_initialized = False

    def __new__(
        cls,
        requires_grad: bool = False,
        device: object = None,
        dtype: gt.dtype | None = None,
        persistent: bool = True,
    ) -> UninitializedBuffer:
        del persistent  # register_buffer has it
        value = gt.empty(0, device=device, dtype=dtype)
        return super().__new__(cls, value, requires_grad=requires_grad)

    def materialize(
        self, shape: Sequence[int], device: object = None, dtype: gt.dtype | None = None
    ) -> None:
        """Become a tensor of `shape` with values still to be set."""
        self.data = gt.empty(tuple(shape), device=device, dtype=dtype or self.dtype)
        self.is_initialized = True

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        previous = memo.get(id(self))
        if isinstance(previous, Tensor):
            return previous
        waits = not self.is_initialized
        copied = UninitializedBuffer(dtype=self.dtype) if waits else self.detach().clone()
        memo[id(self)] = copied
        return copied


def is_lazy(value: object) -> bool:
    """True if a parameter or buffer still waits for its shape."""
    if isinstance(value, UninitializedBuffer):
        return not value.is_initialized
    return isinstance(value, UninitializedParameter)


__getattr__ = misses.hook(__name__)
