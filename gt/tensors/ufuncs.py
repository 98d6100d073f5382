"""numpy's functions on tensors: `array * x` is the tensor's operator, `np.sqrt(x)` reads it.

numpy calls this whenever one of its element-wise functions gets a tensor.
"""

from typing import Any

import numpy as np

from gt._core import Tensor
from gt.tensors.creation import from_numpy

# By numpy's name: the tensor's method, and the one for a tensor on the right.
_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
}


def array_ufunc(
    self: Tensor,  # noqa: ARG001 - one of `inputs`
    ufunc: np.ufunc,
    method: str,
    *inputs: Any,  # noqa: ANN401 - numpy's
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """The result of `ufunc`: a tensor for a plain call, else numpy's result.

    Raises:
        RuntimeError: A tensor requires a gradient, and there is no operator.
    """
    if method == "__call__" and not options and len(inputs) == 2 and ufunc.__name__ in _OPERATORS:
        forward, reflected = _OPERATORS[ufunc.__name__]
        left, right = inputs
        if isinstance(left, Tensor):
            return getattr(left, forward)(right)
        return getattr(right, reflected)(left)
    arrays = [np.asarray(x) if isinstance(x, Tensor) else x for x in inputs]
    result = getattr(ufunc, method)(*arrays, **options)
    if method != "__call__" or "out" in options:
        return result
    if isinstance(result, tuple):
        return tuple(from_numpy(np.asarray(x)) for x in result)
    return from_numpy(np.asarray(result))


def install() -> None:
    """Attach the method to the tensor class."""
    setattr(Tensor, "__array_ufunc__", array_ufunc)  # noqa: B010 - the stub has the core's
