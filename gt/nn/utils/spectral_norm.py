"""Spectral norm by a hook before each forward: `weight` is `weight_orig` divided by its spectral
norm.

Miyato et al., Spectral Normalization for Generative Adversarial Networks (2018). The largest
singular value comes from a power iteration, with a step in each forward in training. The form as a
parametrization is in parametrizations.py.
"""

from __future__ import annotations

from typing import TypeVar, cast

import gt
from gt._core import Tensor
from gt.nn import functional
from gt.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from gt.nn.module import Module
from gt.nn.parameter import Parameter, is_lazy

T = TypeVar("T", bound=Module)

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


def output_dim(module: Module) -> int:
    """The dimension of a module's weight that stands for its outputs."""
    return int(isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d))


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """`weight` with `dim` as rows and all others as columns."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.ndim) if d != dim))
    return weight.reshape(weight.shape[0], -1)  # [rows, columns]


class SpectralNorm:
    """The hook, which sets a module's weight before each forward.

    Args:
        name: the weight's name.
        n_power_iterations: steps of the power iteration in each forward of training.
        dim: the dimension that becomes the rows.
        eps: lower bound of norms.

    Raises:
        ValueError: n_power_iterations is below 1.
    """

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but "
                f"got n_power_iterations={n_power_iterations}"
            )
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The weight as a matrix."""
        return as_matrix(weight, self.dim)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The weight from `…_orig`, `…_u` and `…_v`; the iteration writes the last two in place."""
        weight, u, v = (cast("Tensor", getattr(module, self.name + s)) for s in _SUFFIXES)
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with gt.no_grad():
                new_u, new_v = u, v
                for _ in range(self.n_power_iterations):
                    new_v = functional.normalize(gt.mv(matrix.t(), new_u), dim=0, eps=self.eps)
                    new_u = functional.normalize(gt.mv(matrix, new_v), dim=0, eps=self.eps)
                u.copy_(new_u)
                v.copy_(new_v)
                u, v = new_u, new_v  # new tensors: a later forward writes the buffers
        return weight / gt.dot(u, gt.mv(matrix, v))

    @staticmethod
    def apply(
        module: Module, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """Replace the parameter by the tensors from which it is computed.

        Raises:
            RuntimeError: the parameter has spectral norm already.
            ValueError: it is None or waits for its shape.
        """
        if _find(module, name) is not None:
            raise RuntimeError(
                f"Cannot register two spectral_norm hooks on the same parameter {name}"
            )
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. "
                "Make sure to run the dummy forward before applying spectral normalization"
            )
        with gt.no_grad():
            rows, columns = as_matrix(weight, dim).shape
            u, v = (
                functional.normalize(gt.randn(size, dtype=weight.dtype), dim=0, eps=eps)
                for size in (rows, columns)
            )
        delattr(module, name)
        module.register_parameter(f"{name}_orig", weight)
        setattr(module, name, weight.detach())
        module.register_buffer(f"{name}_u", u)
        module.register_buffer(f"{name}_v", v)
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        with gt.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        for suffix in _SUFFIXES:
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, _inputs: object) -> None:
        weight = self.compute_weight(module, do_power_iteration=module.training)
        setattr(module, self.name, weight)


_SUFFIXES = ("_orig", "_u", "_v")


def _find(module: Module, name: str) -> tuple[int, SpectralNorm] | None:
    hooks = cast("dict[int, object]", module._forward_pre_hooks)
    for key, hook in hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            return key, hook
    return None


def spectral_norm(
    module: T,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> T:
    """Divide a weight by its largest singular value; the parameter becomes `weight_orig`.

    Args:
        module: the module with the weight.
        name: the parameter's name.
        n_power_iterations: steps of the power iteration in each forward of training.
        eps: lower bound of norms.
        dim: the dimension that becomes the rows of the matrix; by default the outputs'.
    """
    chosen = output_dim(module) if dim is None else dim
    SpectralNorm.apply(module, name, n_power_iterations, chosen, eps)
    return module


def remove_spectral_norm(module: T, name: str = "weight") -> T:
    """Make the weight a parameter again, with its present value.

    Raises:
        ValueError: it has no spectral norm.
    """
    if (entry := _find(module, name)) is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    key, hook = entry
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module
