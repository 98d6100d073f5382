"""`gt.autograd.Variable`: the former name of tensors with gradients; every tensor is one."""

import warnings

from gt._core import Tensor
from gt.errors import DtypeError, InvalidType

__all__ = ["Variable"]


class _VariableType(type):
    def __call__(
        cls, data: Tensor, requires_grad: bool = False, volatile: bool | None = None
    ) -> Tensor:
        if not isinstance(data, Tensor):
            raise InvalidType(f"Variable data has to be a tensor, but got {type(data).__name__}")
        if volatile:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                stacklevel=2,
            )
        if requires_grad and not (data.is_floating_point() or data.is_complex()):
            raise DtypeError(
                "Only Tensors of floating point and complex dtype can require gradients"
            )
        return data.detach().requires_grad_(requires_grad)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableType):
    """A tensor that shares the value of `data` and is a leaf of a new graph.

    `requires_grad`: whether backward() fills its grad. Every tensor is an instance.
    """
