"""Operators that PyTorch composes of others, as single operators of the device with gradients.

PyTorch's autograd has kernels that record `linear` and `matmul` whole, for devices with kernels of
their own, and composes them of half a dozen operators elsewhere. The former are called here if the
result is the same: forward mode, transforms and complex numbers know only the composition.
Attention has its own choice (`attention`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from gt.torch import attention, dispatch, functions, products
from gt.torch.tensor import MuxTensor

_Formula = Callable[..., tuple[Any, ...]]
_RECORDS = torch._C.DispatchKey.Autograd  # noqa: SLF001 - its only name
WHOLE = ("linear", "matmul")
# Gradients as PyTorch's operators, which its autograd and its transforms can follow.
PRODUCTS: dict[str, _Formula] = {
    "linear_backward": products.linear_backward,
    "matmul_backward": products.matmul_backward,
}
_GRADIENTS = PRODUCTS | {
    "_scaled_dot_product_fused_attention_overrideable_backward": attention.composed_gradients
}
# Registrations, which end with their library objects.
_libraries: list[torch.library.Library] = []


def install() -> None:
    """Registers the device's operators with PyTorch."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name in WHOLE:
        library.impl(name, _recorded(functions.overload(name)), "AutogradPrivateUse1")
    function = attention.scaled_dot_product_attention
    library.impl("scaled_dot_product_attention", function, "AutogradPrivateUse1")
    for name, formula in _GRADIENTS.items():
        gradient = functools.partial(_gradient, functions.overload(name), formula)
        library.impl(name, gradient, "AutogradPrivateUse1")
    for name, formula in PRODUCTS.items():
        library.impl(name, formula, "FuncTorchBatched")
    _libraries.append(library)


def _recorded(operator: Any) -> Callable[..., object]:  # noqa: ANN401 - it has no public type
    """The operator as one node of autograd's graph, or as its composition."""
    record = operator._op_dk  # noqa: SLF001 - PyTorch's only way to a kernel

    def run(*operands: torch.Tensor | None) -> object:
        if forward_ad._current_level >= 0:  # noqa: SLF001 - nothing public tells
            return operator.decompose(*operands)
        for x in operands:
            if x is not None and (type(x) is not MuxTensor or x.dtype.is_complex):
                return operator.decompose(*operands)
        # Autograd does not pass the shape of its bias to the gradient of `linear`.
        if len(operands) == 3 and operands[2] is not None and operands[2].ndim > 1:
            return operator.decompose(*operands)
        return record(_RECORDS, *operands)

    return run


def _gradient(
    operator: Any,  # noqa: ANN401 - PyTorch has no public type of an overload
    formula: _Formula,
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> object:
    """The gradient on GT's tensors; on PyTorch's if its autograd records or a transform runs."""
    if torch.is_grad_enabled() or not all(type(x) is MuxTensor for x in args[:3]):
        return formula(*args, **kwargs)
    return dispatch.run(operator, args, kwargs)
