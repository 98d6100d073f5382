"""Linear, and layers that only change shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import gt
from gt import signal
from gt._core import Tensor
from gt.nn import functional, init
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class Identity(Module):
    """Returns its input; any arguments are accepted and ignored."""

    def __init__(self, *ignored: object, **also_ignored: object) -> None:
        super().__init__()
        del ignored, also_ignored

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """input @ weight.T + bias.

    Args:
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.
        bias: Whether to add one.
        device: Accepted and ignored.
        dtype: Dtype of weight and bias.
    """

    weight: Parameter
    bias: Parameter | None
    _orientation = "[out, in]"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        with signal.part("transposed"):
            self.weight = Parameter(gt.empty(out_features, in_features, device=device, dtype=dtype))
        if bias:
            with signal.part("bias"):
                self.bias = Parameter(gt.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias from the uniform distribution within 1 / sqrt(in_features)."""
        with signal.part("transposed"):
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
            with signal.part("bias"):
                init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name of PyTorch's class for an attention's output projection."""


class Flatten(Module):
    """Joins the dimensions from start_dim to end_dim into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits one dimension into several.

    Args:
        dim: The dimension to split.
        unflattened_size: The resulting sizes.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
