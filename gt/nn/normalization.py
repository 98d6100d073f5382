"""LayerNorm, RMSNorm and Dropout."""

from __future__ import annotations

from collections.abc import Sequence

import gt
from gt import signal
from gt._core import Tensor
from gt.composite.common import sizes
from gt.nn import functional, init
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class LayerNorm(Module):
    """(input - mean) / sqrt(variance + eps) * weight + bias over the last dimensions.

    Args:
        normalized_shape: The sizes of those dimensions.
        eps: Added to the variance.
        elementwise_affine: Whether weight and bias exist.
        bias: Whether a bias exists beside the weight.
        device: Accepted and ignored.
        dtype: Dtype of weight and bias.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, present in (
            ("weight", elementwise_affine),
            ("bias", elementwise_affine and bias),
        ):
            parameter = None
            if present:
                with signal.part("whole"):
                    parameter = Parameter(
                        gt.empty(*self.normalized_shape, device=device, dtype=dtype)
                    )
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight one, bias zero."""
        with signal.part("whole"):
            if self.weight is not None:
                init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(Module):
    """input / sqrt(mean(input ** 2) + eps) * weight over the last dimensions.

    Args:
        normalized_shape: The sizes of those dimensions.
        eps: Added to the mean; the dtype's smallest step at 1 if not given.
        elementwise_affine: Whether a weight exists.
        device: Accepted and ignored.
        dtype: Dtype of the weight.
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            with signal.part("whole"):
                value = gt.empty(*self.normalized_shape, device=device, dtype=dtype)
            self.weight = Parameter(value)
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight one."""
        if self.weight is not None:
            with signal.part("whole"):
                init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class Dropout(Module):
    """In training, zeroes each element with probability `p` and scales the rest by 1 / (1 - p)."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


def _as_shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return sizes((normalized_shape,), "LayerNorm")
