"""Values as Python objects: numpy arrays, lists, formatting, copies. Reads wait for
their values.
"""

import copy
from collections.abc import Iterator
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidType, InvalidUse

__all__ = ["install"]


def numpy(self: Tensor, *, force: bool = False) -> npt.NDArray[np.generic]:
    """A numpy array with a copy of the values."""
    if self.requires_grad and not force and _core.is_grad_enabled():
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if self.dtype == _core.bfloat16:
        raise InvalidType("Got unsupported ScalarType BFloat16; convert with .float() first")
    return _core.read_bytes(self).view(self.dtype.name).reshape(tuple(self.shape))


def tolist(self: Tensor) -> Any:  # noqa: ANN401 - a number, or lists as deep as there are dimensions
    """Nested lists of Python numbers; a number for a 0-d tensor."""
    if self.dtype == _core.bfloat16:
        return tolist(self.detach().float())
    return numpy(self, force=True).tolist()


def to_array(
    self: Tensor,
    dtype: npt.DTypeLike | None = None,
    copy: bool | None = None,  # noqa: ARG001 - a read is a copy already
) -> npt.NDArray[np.generic]:
    """The array for `numpy.asarray(tensor)`."""
    array = numpy(self)
    return array if dtype is None else array.astype(dtype, copy=False)


def iterate(self: Tensor) -> Iterator[Tensor]:
    """The tensors along the first dimension, as views."""
    if self.ndim == 0:
        raise InvalidType("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def backwards(self: Tensor) -> Tensor:
    """`reversed(x)`: the rows from the last to the first; a number unchanged."""
    return self.flip(0) if self.ndim else self


def contains(self: Tensor, element: object) -> bool:
    """`3 in x`: True if an element is equal, which is read; for a tensor, any after broadcasting.

    Raises:
        RuntimeError: the element is neither a tensor nor a number.
    """
    if not isinstance(element, Tensor | int | float | complex):
        raise InvalidUse(
            "Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
            f"{type(element)}."
        )
    equal = element == self if isinstance(element, Tensor) else self == element
    return bool(equal.any().item())


def formatted(self: Tensor, spec: str) -> str:
    """`f"{x:.3f}"`: formats the number of a 0-d tensor of the class Tensor itself; else
    `str(x)`.
    """
    if self.ndim == 0 and type(self) is Tensor:
        return format(self.item(), spec)
    if not spec:
        return str(self)
    raise InvalidType(f"unsupported format string passed to {type(self).__name__}.__format__")


def deep_copy(self: Tensor, memo: dict[int, object]) -> Tensor:
    """A leaf with a copied value and attributes, and the same requires_grad."""
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
            "because of a torch.nn.utils.weight_norm usage, see "
            "https://github.com/pytorch/pytorch/pull/103001"
        )
    copied = made(type(self), memory_copy(self, memo), self.requires_grad)
    memo[id(self)] = copied
    if attributes := vars(self):
        vars(copied).update(copy.deepcopy(attributes, memo))
    if self.grad is not None:
        copied.grad = deep_copy(self.grad, memo)
    return copied


def memory_copy(self: Tensor, memo: dict[int, object]) -> Tensor:
    """A copy of the values; copies in one `memo` share memory if their originals do."""
    # Keys of other copies are addresses of objects, too.
    memories = memo.setdefault(id(_core.memory_copy), {})
    assert isinstance(memories, dict)
    return _core.memory_copy(self, memories)


def shallow_copy(self: Tensor) -> Tensor:
    """A leaf of the same class that shares value and attributes, as with PyTorch's `copy.copy`."""
    copied = made(type(self), self.detach(), self.requires_grad)
    if attributes := vars(self):
        vars(copied).update(attributes)
    return copied


def reduced(self: Tensor, protocol: SupportsIndex) -> tuple[object, ...]:  # noqa: ARG001 - all are alike
    """The tensor's pickled form: class, values, requires_grad and attributes, but no gradient."""
    data = _core.read_bytes(self).tobytes()
    name = repr(self.dtype).removeprefix("gt.")
    parts = type(self), data, name, tuple(self.shape), self.requires_grad
    return (rebuilt, parts, attributes) if (attributes := vars(self)) else (rebuilt, parts)


def rebuilt(
    kind: type[Tensor], data: bytes, dtype: str, shape: tuple[int, ...], requires_grad: bool
) -> Tensor:
    """The tensor that `reduced` has described, in the session of the reader."""
    return made(kind, _core.from_bytes(data, shape, getattr(_core, dtype)), requires_grad)


def made(kind: type[Tensor], value: Tensor, requires_grad: bool) -> Tensor:
    """A tensor of class `kind`; a subclass's constructor may have other parameters."""
    if kind is Tensor:
        return value.requires_grad_(requires_grad)
    return Tensor.__new__(kind, value, requires_grad=requires_grad)


def install() -> None:
    """Attach the methods to the tensor class."""
    methods = {
        "numpy": numpy,
        "tolist": tolist,
        "__array__": to_array,
        "__contains__": contains,
        "__iter__": iterate,
        "__reversed__": backwards,
        "__format__": formatted,
        "__copy__": shallow_copy,
        "__deepcopy__": deep_copy,
        "__reduce_ex__": reduced,
    }
    for name, method in methods.items():
        setattr(Tensor, name, method)
