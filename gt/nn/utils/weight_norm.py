"""Weight norm by a hook before each forward: `weight` is `weight_g * weight_v / |weight_v|`.

Salimans and Kingma, Weight Normalization (2016). The form as a parametrization is in
parametrizations.py.
"""

from __future__ import annotations

import warnings
from typing import TypeVar, cast

from gt._core import Tensor
from gt.nn.module import Module
from gt.nn.parameter import Parameter, is_lazy

T = TypeVar("T", bound=Module)

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norms(v: Tensor, dim: int) -> Tensor:
    """The norms of `v` over all dimensions except `dim`, which stay with size 1; -1 for
    one norm.
    """
    if dim == -1:
        return v.norm()
    return v.norm(2.0, [d for d in range(v.ndim) if d != dim], keepdim=True)


def scaled(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """`v` scaled to the norms `g` over all dimensions except `dim`; -1 for one norm of the whole
    tensor.
    """
    return v * (g / norms(v, dim))


class WeightNorm:
    """The hook, which sets a module's weight before each forward.

    Args:
        name: the weight's name.
        dim: dimension whose indices have a norm each; None for one norm of the whole tensor.
    """

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight from the parameters `…_g` and `…_v`."""
        g = cast("Tensor", getattr(module, f"{self.name}_g"))
        return scaled(cast("Tensor", getattr(module, f"{self.name}_v")), g, self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Replace the parameter by its norm and its direction.

        Raises:
            RuntimeError: the parameter has weight norm already.
            ValueError: it waits for its shape.
        """
        warnings.warn(
            "`torch.nn.utils.weight_norm` is deprecated in favor of "
            "`torch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        if any(isinstance(h, WeightNorm) and h.name == name for h in _hooks(module).values()):
            raise RuntimeError(
                f"Cannot register two weight_norm hooks on the same parameter {name}"
            )
        weight = cast("Tensor", getattr(module, name))
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. "
                "Make sure to run the dummy forward before applying weight normalization"
            )
        hook = WeightNorm(name, dim)
        del module._parameters[name]
        g = norms(weight.detach(), hook.dim)
        module.register_parameter(f"{name}_g", Parameter(g))
        module.register_parameter(f"{name}_v", Parameter(weight.detach()))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[f"{self.name}_g"]
        del module._parameters[f"{self.name}_v"]
        setattr(module, self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, _inputs: object) -> None:
        setattr(module, self.name, self.compute_weight(module))


def _hooks(module: Module) -> dict[int, object]:
    return cast("dict[int, object]", module._forward_pre_hooks)


def weight_norm(module: T, name: str = "weight", dim: int | None = 0) -> T:
    """Train the norm and the direction of a weight separately, as `weight_g` and `weight_v`.

    Args:
        module: the module with the weight.
        name: the parameter's name.
        dim: dimension whose indices have a norm each; None for one norm of the whole tensor.
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: T, name: str = "weight") -> T:
    """Make the weight a parameter again, with its present value.

    Raises:
        ValueError: it has no weight norm.
    """
    for key, hook in _hooks(module).items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
