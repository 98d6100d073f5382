"""Activations as modules; each calls the function of its name."""

from __future__ import annotations

import warnings

import gt
from gt import signal
from gt._core import Tensor
from gt.nn import functional
from gt.nn.module import Module
from gt.nn.parameter import Parameter
from gt.tensors.aten.call import call


class _Inplace(Module):
    """An activation whose only option is `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """max(input, 0)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input, self.inplace)


class SiLU(_Inplace):
    """input * sigmoid(input)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(input, self.inplace)


class Mish(_Inplace):
    """input * tanh(softplus(input))."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.mish(input, self.inplace)


class SELU(_Inplace):
    """Scaled elu."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.selu(input, self.inplace)


class Hardsigmoid(_Inplace):
    """(input + 3) / 6 limited to [0, 1]."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardsigmoid(input, self.inplace)


class Hardswish(_Inplace):
    """input * hardsigmoid(input)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardswish(input, self.inplace)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        return input.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-input))."""

    def forward(self, input: Tensor) -> Tensor:
        return input.sigmoid()


class LogSigmoid(Module):
    """log(sigmoid(input))."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.logsigmoid(input)


class Softsign(Module):
    """input / (1 + |input|)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softsign(input)


class Tanhshrink(Module):
    """input - tanh(input)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.tanhshrink(input)


class GELU(Module):
    """input * P(standard normal <= input)."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class PReLU(Module):
    """input where positive, else weight * input, with a trained weight.

    Args:
        num_parameters: One weight for all, or one for each channel (dimension 1).
        init: Initial value of the weight.
        device: Accepted and ignored.
        dtype: Dtype of the weight.
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        del device
        self.num_parameters, self.init = num_parameters, init
        with signal.part("whole"):
            self.weight = Parameter(gt.full((num_parameters,), init, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class LeakyReLU(Module):
    """input where positive, else negative_slope * input."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class _Alpha(Module):
    """An activation with an `alpha`."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class ELU(_Alpha):
    """input where positive, else alpha * (exp(input) - 1)."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.elu(input, self.alpha, self.inplace)


class CELU(_Alpha):
    """max(0, input) + min(0, alpha * (exp(input / alpha) - 1))."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.celu(input, self.alpha, self.inplace)


class Softplus(Module):
    """log(1 + exp(beta * input)) / beta."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Hardtanh(Module):
    """input limited to [min_val, max_val]."""

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for older, newer in ((min_value, "min"), (max_value, "max")):
            if older is not None:
                warnings.warn(
                    f"keyword argument `{newer}_value` is deprecated and rename to `{newer}_val`",
                    FutureWarning,
                    stacklevel=2,
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.min_val >= self.max_val:
            raise AssertionError("max_val must be greater than min_val")

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        ends = f"min_val={self.min_val}, max_val={self.max_val}"
        return ends + (", inplace=True" if self.inplace else "")


class ReLU6(Hardtanh):
    """input limited to [0, 6]."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class GLU(Module):
    """The first half of `dim` times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class _AlongDim(Module):
    """A function along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(input) / sum(exp(input)) along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, self.dim)


class LogSoftmax(_AlongDim):
    """log(softmax(input)) along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.log_softmax(input, self.dim)


class Softmin(_AlongDim):
    """softmax of -input along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmin(input, self.dim)


class Softmax2d(Module):
    """softmax over the channels of [batch, channels, height, width] or [channels, height, width].

    Raises:
        ValueError: Another number of dimensions, at the call.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return functional.softmax(input, -3)


class RReLU(Module):
    """leaky_relu with slopes drawn from [lower, upper) in training, else with their mean."""

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (
            ", inplace=True" if self.inplace else ""
        )


class Threshold(Module):
    """input where it is above `threshold`, else `value`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (
            ", inplace=True" if self.inplace else ""
        )


class _Shrink(Module):
    """A function with a threshold `lambd`."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """input where its magnitude is above `lambd`, else 0."""

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = call("hardshrink", (input, self.lambd), {})
        return result


class Softshrink(_Shrink):
    """input moved toward 0 by `lambd`; 0 where its magnitude is less."""

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = call("softshrink", (input, self.lambd), {})
        return result
