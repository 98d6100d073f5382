"""Functions of `torch` itself that are no tensor methods, under the same names in `gt`."""

import warnings

import gt
from gt._core import Tensor
from gt.compat import missing
from gt.errors import ShapeError
from gt.nn import functional
from gt.tensors.dtypes import check_layout

__all__ = [
    "alpha_dropout",
    "alpha_dropout_",
    "chain_matmul",
    "dropout",
    "dropout_",
    "feature_alpha_dropout",
    "feature_dropout",
    "range",
    "rrelu",
    "typename",
]


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Zeros with probability `p`, the rest times 1 / (1 - p); `input` itself unless `train`."""
    return functional.dropout(input, _share(p), train)


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """dropout, written into `input`."""
    return functional.dropout(input, _share(p), train, inplace=True)


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """dropout of whole channels: all elements of input[i, j] are dropped together, or kept."""
    if input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    drop = functional.dropout if input.ndim == 2 else functional.dropout2d
    return drop(input, _share(p), train)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout that keeps mean and variance after selu: dropped elements become selu's
    lowest value.
    """
    return functional.alpha_dropout(input, _share(p), train)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """alpha_dropout, written into `input`."""
    return functional.alpha_dropout(input, _share(p), train, inplace=True)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """alpha_dropout of whole channels."""
    return functional.feature_alpha_dropout(input, _share(p), train)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the order with the fewest multiplications; a copy of a single
    one.
    """
    if len(matrices) == 1 and matrices[0].ndim != 2:
        raise ShapeError(f"Tensor dimension is {matrices[0].ndim}, expected 2 instead.")
    return matrices[0].clone() if len(matrices) == 1 else gt.linalg.multi_dot(list(matrices))


def range(
    start: float,
    end: float,
    step: float = 1,
    *,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,  # noqa: ARG001 - PyTorch's
    requires_grad: bool = False,
    pin_memory: bool = False,  # noqa: ARG001
) -> Tensor:
    """start, start + step, … up to `end` inclusive: a vector in the default dtype.

    PyTorch keeps it for old programs and warns; use arange.
    """
    check_layout(layout, "range")
    warnings.warn(
        "gt.range is deprecated, as torch.range is: its end is inclusive. Use gt.arange",
        stacklevel=2,
    )
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    count = int((end - start) / step) + 1
    chosen = gt.get_default_dtype() if dtype is None else dtype
    line = gt.arange(count, dtype=gt.float64) * step + start
    return line.to(chosen).requires_grad_(requires_grad)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: gt.Generator | None = None,
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper) in training, else with their mean."""
    return functional.rrelu(input, lower, upper, training, generator=generator)


def typename(obj: object) -> str:
    """Name of the type with its module; for a tensor the name that `x.type()` returns."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    named = obj if hasattr(obj, "__name__") or hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    name = str(getattr(named, "__qualname__", None) or getattr(named, "__name__", ""))
    return name if module in {"", "builtins"} else f"{module}.{name}"


def _share(p: float) -> float:
    """A probability; PyTorch's error for others differs from that of nn.functional."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")
    return p


def __getattr__(name: str) -> object:
    """Names of torch.functional that `gt` has elsewhere: einsum, norm, stft, …"""
    if name in missing.names_of("gt.functional") and hasattr(gt, name):
        return getattr(gt, name)
    raise missing.attribute_error("gt.functional", name)


def __dir__() -> list[str]:
    return sorted(name for name in missing.names_of("gt.functional") if hasattr(gt, name))
