"""Entries of op_db that GT has: the row of ops.toml behind each, and GT's call of the operator."""

import operator
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, FunctionType

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import gt
from gt import _core
from gt.nn import functional

ROOT = Path(__file__).resolve().parent.parent.parent.parent
ROWS = {row["name"]: row for row in tomllib.loads((ROOT / "ops.toml").read_text())["op"]}

# Entries whose name is not the row's: PyTorch's other ways to reach the same operator.
ROW_OF = {
    "constant_pad_nd": "pad", "nn.functional.pad": "pad", "native_layer_norm": "layer_norm",
    "_softmax_backward_data": "softmax_backward", "__getitem__": "index", "narrow": "slice",
    "to": "cast", "view": "reshape", "transpose": "permute", "t": "permute", "T": "permute",
    "mT": "permute", "unsqueeze": "reshape", "squeeze": "reshape", "flatten": "reshape",
    "__radd__": "add", "__rsub__": "sub", "__rmul__": "mul", "__rdiv__": "div", "__rpow__": "pow",
    "__rmod__": "remainder", "__rand__": "bitwise_and", "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor", "__rmatmul__": "matmul", "rand_like": "uniform", "mm": "matmul",
    "bmm": "matmul", "mv": "matmul", "dot": "matmul", "randn": "normal", "randn_like": "normal",
    "randint_like": "randint", "split": "slice", "chunk": "slice", "unbind": "select",
}  # fmt: skip
ROW_OF_VARIANT = {
    "max": {"reduction_with_dim": "max_dim", "reduction_no_dim": "amax", "binary": "maximum"},
    "min": {"reduction_with_dim": "min_dim", "reduction_no_dim": "amin", "binary": "minimum"},
}
UNSPECIFIED = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "normal", "bernoulli",
    "multinomial", "uniform", "nn.functional.dropout", "empty", "empty_like", "new_empty",
    "new_empty_strided", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "empty_permuted", "empty_strided", "cauchy", "exponential", "geometric", "log_normal",
    "resize_", "resize_as_", "svd_lowrank", "pca_lowrank",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
}  # fmt: skip
# Entries that are not driven, by the beginning of their title, with the reason.
NOT_DRIVEN = {
    "sparse.": "compressed rows (CSR); gt.sparse has coordinates, and tests of its own",
    "to_sparse": "half of its samples have dense dimensions; gt.sparse has tests of its own",
    "jiterator_": "text of a CUDA kernel, compiled by PyTorch",
    "as_strided.partial_views": "reads memory beside a view, which the twin of a sample lacks",
    "torch._scaled_mm": "float8 operands, a dtype that GT has not",
    "torch.ops.aten._flash_attention_forward": "PyTorch has no samples on a CPU",
    "torch.ops.aten._efficient_attention_forward": "PyTorch has no samples on a CPU",
}
# Operators whose gradient is not compared: for the first operand, PyTorch's is that of the
# overwritten elements, GT's that of the remaining ones.
OTHER_GRADIENT = {"as_strided_scatter"}


def _where(self: gt.Tensor, condition: gt.Tensor, other: object) -> gt.Tensor:
    return gt.where(condition, self, other)


def _layer_norm(x: gt.Tensor, shape: object, weight: object, bias: object, eps: float) -> object:
    out, mean, rstd = _core.call("layer_norm", x, weight, bias, normalized_shape=shape, eps=eps)
    return out, mean.detach(), rstd.detach()  # PyTorch's two do not require a gradient


def _max_pool2d_backward(self: gt.Tensor, **options: object) -> object:
    """The form of op_db: the gradient of ones."""
    out, indices = functional.max_pool2d(self, **{**options, "return_indices": True})
    stride = options["kernel_size"] if options.get("stride") is None else options["stride"]
    given = (options["kernel_size"], stride, options.get("padding", 0), options.get("dilation", 1))
    backward = gt.ops.aten.max_pool2d_with_indices_backward
    return backward(gt.ones_like(out), self, *given, options.get("ceil_mode", False), indices)


def _method(name: str) -> Callable[..., object]:
    return lambda self, *args, **kwargs: getattr(self, name)(*args, **kwargs)


def _in_place(name: str) -> Callable[..., object]:
    return lambda self, *args, **kwargs: getattr(self.clone(), name)(*args, **kwargs)


GENERIC_STRIDE = 8
SUBMODULES = {"fft", "linalg", "masked", "signal.windows", "special"}
REFLECTED = ("add", "div", "sub", "mul", "pow", "mod", "and", "or", "xor", "matmul")
CALLS: dict[str, Callable[..., object]] = {
    **{f"__r{name}__": getattr(gt.Tensor, f"__r{name}__") for name in REFLECTED},
    "__getitem__": lambda self, key: self[key],
    "T": lambda self: self.T,
    "mT": lambda self: self.mT,
    "H": lambda self: self.H,
    "mH": lambda self: self.mH,
    "where": _where,
    "constant_pad_nd": lambda self, pad, value=0: _core.call("pad", self, pad=pad, value=value),
    "_softmax_backward_data": lambda grad, out, dim, dtype: _core.call(
        "softmax_backward", grad, out, dim=dim
    ),
    "native_layer_norm": _layer_norm,
    "zero_": lambda self: self.clone().zero_(),
    "max_pool2d_with_indices_backward": _max_pool2d_backward,
    "_segment_reduce": gt.segment_reduce,
    "einsum": lambda tensors, equation: gt.einsum(equation, tensors),
    "nn.functional.embedding": lambda weight, indices, **options: functional.embedding(
        indices, weight, **options
    ),
    "nn.functional.embedding_bag": lambda weight, indices, **options: functional.embedding_bag(
        indices, weight, **options
    ),
    "normal.in_place": lambda self, *given, **options: self.clone().normal_(*given, **options),
    **{
        name: _in_place(f"{name}_")
        for name in ("cauchy", "exponential", "geometric", "log_normal", "uniform")
    },
    "resize_": _in_place("resize_"),
    "resize_as_": _in_place("resize_as_"),
    "slice": lambda self, dim=0, start=None, end=None, step=1: self[
        (slice(None),) * (dim % self.ndim) + (slice(start, end, step),)
    ],
    "svd_lowrank": lambda a, b, **options: gt.svd_lowrank(a @ b.mT, **options),
    "pca_lowrank": lambda a, b, **options: gt.pca_lowrank(a @ b.mT, **options),
    "item": lambda self: self.item(),
    "linalg.lstsq.grad_oriented": lambda a, b, driver: gt.linalg.lstsq(a, b, driver=driver)[:2],
    "linalg.pinv.singular": lambda a, b: gt.linalg.pinv(a @ b.mT),
    "polygamma": lambda self, n: gt.polygamma(n, self),
    "special.polygamma": lambda self, n: gt.special.polygamma(n, self),
}


def call_of(op: OpInfo) -> Callable[..., object] | None:
    """GT's operator for an entry: by name from `gt`, `gt.nn.functional` or `gt.Tensor`."""
    if title(op) in CALLS or op.name in CALLS:
        return CALLS.get(title(op)) or CALLS[op.name]
    if op.name.startswith("nn.functional."):
        return getattr(functional, op.name.removeprefix("nn.functional."), None)
    kinds = (FunctionType, BuiltinFunctionType, _core.Function)
    module, _, name = op.name.rpartition(".")
    home = operator.attrgetter(module)(gt) if module in SUBMODULES else gt
    function = getattr(home, name if module in SUBMODULES else op.name, None)
    if isinstance(function, kinds):
        return function
    if hasattr(gt.Tensor, op.name):
        return _method(op.name)
    name = op.name.removeprefix("torch.ops.aten.").removesuffix(".default")
    return getattr(gt.ops.aten, name, None)


def row_of(op: OpInfo) -> str | None:
    """The row of ops.toml that an entry exercises; None for a composition of rows."""
    if op.name in ROW_OF_VARIANT and op.variant_test_name in ROW_OF_VARIANT[op.name]:
        return ROW_OF_VARIANT[op.name][op.variant_test_name]
    name = ROW_OF.get(op.name, op.name.removeprefix("nn.functional."))
    return name if name in ROWS else None


def title(op: OpInfo) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def entries() -> list[OpInfo]:
    """Every entry of op_db that has a counterpart in GT, in op_db's order."""
    return [op for op in op_db if why_not(op) is None and call_of(op) is not None]


def why_not(op: OpInfo) -> str | None:
    """Why an entry is not driven."""
    return next((why for name, why in NOT_DRIVEN.items() if title(op).startswith(name)), None)


def placed() -> list[OpInfo]:
    """Those that are driven over several workers: of operators without a row some."""
    generic = [op for op in entries() if is_generic(op)]
    sampled = {title(op) for op in generic[::GENERIC_STRIDE]}
    return [op for op in entries() if not is_generic(op) or title(op) in sampled]


def is_generic(op: OpInfo) -> bool:
    """True for an operator without a row, which runs by PyTorch's schema."""
    return getattr(call_of(op), "__module__", "") == "gt.aten.surface"


# The largest term of a sum that makes up an element, where its rounding error is more than that of
# 1. Attention's scores reach 250, and a weight's relative error is a score's absolute one; the
# shift of these norms subtracts up to 16 from the scaled values.
TERMS = {
    "nn.functional.scaled_dot_product_attention": 250.0,
    "nn.functional.multi_head_attention_forward": 250.0,
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": 250.0,
    "nn.functional.linear_cross_entropy": 250.0,
    "nn.functional.group_norm": 16.0,
    "nn.functional.instance_norm": 16.0,
}
# Looser factors where PyTorch is less exact (1/6 and a row's norm are float32, even in float64),
# computes half precision in float32 within one kernel, or where large terms of a gradient cancel.
LOOSER = {
    ("nn.functional.hardsigmoid", torch.float64): 1e3,
    ("nn.functional.embedding", torch.float64): 1e4,
    ("nn.functional.embedding_bag", torch.float64): 1e4,
    ("nn.functional.normalize", torch.float64): 1e3,
    ("nn.functional.scaled_dot_product_attention", torch.float16): 4.0,
    ("nn.functional.scaled_dot_product_attention", torch.bfloat16): 4.0,
    ("nn.functional.multi_head_attention_forward", torch.float16): 4.0,
    ("nn.functional.multi_head_attention_forward", torch.bfloat16): 4.0,
}


_DROPOUT_OF_ATTENTION = 9  # the place among multi_head_attention_forward's arguments


def unspecified(op: OpInfo, sample: SampleInput) -> bool:
    """True where a sample's values are random in each library, or uninitialized."""
    dropout = sample.kwargs.get("dropout_p", 0.0)
    if op.name == "nn.functional.multi_head_attention_forward":
        dropout = sample.args[_DROPOUT_OF_ATTENTION] if sample.kwargs["training"] else 0.0
    if op.name == "nn.functional.rrelu":
        dropout = float(sample.kwargs.get("training", False))
    return op.name in UNSPECIFIED or dropout > 0.0


COMPLEX = (torch.complex64, torch.complex128)


def dtypes_of(op: OpInfo) -> list[torch.dtype]:
    """The dtypes of the comparison that PyTorch has for an entry on the CPU."""
    dtypes = (
        torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.float16,
    )  # fmt: skip
    supported = op.supported_dtypes("cpu")
    return [dtype for dtype in dtypes if dtype in supported] or [
        dtype for dtype in COMPLEX if dtype in supported
    ]


def gradient_dtype(op: OpInfo) -> torch.dtype | None:
    """The dtype in which gradients are compared: complex128 where PyTorch has none of floats."""
    if not op.supports_autograd or title(op) in OTHER_GRADIENT:
        return None
    differentiable = op.supported_backward_dtypes("cpu")
    real = torch.float64 in op.supported_dtypes("cpu")
    wanted = torch.float64 if real else torch.complex128
    return wanted if wanted in differentiable else None
