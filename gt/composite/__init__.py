"""Methods and functions of tensors beyond ops.toml, each composed of the table's operators.

`install` attaches the methods to `gt._core.Tensor`, once, when `gt` is imported. Names that
`gt._core` defines itself stay, except those in REPLACED, where PyTorch's method takes more than the
row does. Nothing here touches the tape: gradients follow from the operators that are called.
"""

from gt import _core
from gt._core import Tensor
from gt.amp.casting import entry, in_place
from gt.composite import (
    arrangements,
    casts,
    complex_numbers,
    contractions,
    counts,
    inplace,
    inplace_shapes,
    joining,
    matrices,
    memory,
    normalization,
    pointwise,
    random_writes,
    ranks,
    reductions,
    removed,
    scans,
    selection,
    sets,
    shapes,
    splitting,
    strides,
    writes,
)
from gt.composite.common import Method, numpy_names, of_complex
from gt.composite.einsum import einsum
from gt.composite.joining import __all__ as _joining
from gt.composite.numbers_first import NUMBERS_FIRST
from gt.composite.older_forms import as_function, factors_first

FILES = (
    shapes, splitting, casts, pointwise, reductions, contractions, scans, selection, sets,
    strides, complex_numbers, arrangements, ranks, writes, memory,
)  # fmt: skip

# Methods that take more in PyTorch than the row's operands and attributes, or that return a named
# pair in those forms.
REPLACED = frozenset({
    "copysign", "div", "round", "scatter", "slice_scatter", "sort", "std", "topk", "var", "xlogy",
})  # fmt: skip

# Functions of `gt` that no file's METHODS lists: they are no methods in PyTorch, or methods of the
# class.
FUNCTIONS: dict[str, Method] = {
    "einsum": einsum,
    "layer_norm": normalization.layer_norm,
    "rms_norm": normalization.rms_norm,
    "tensordot": contractions.tensordot,
    "var_mean": reductions.var_mean,
    "std_mean": reductions.std_mean,
    "split": shapes.split_function,
    "is_floating_point": casts.is_floating_point,
    "clone": Tensor.clone,
    "detach": Tensor.detach,
    "numel": Tensor.numel,
    "squeeze": shapes.squeeze_function,
    "t": Tensor.t,
    "transpose": Tensor.transpose,
    "unsqueeze": Tensor.unsqueeze,
    "xlogy": pointwise.xlogy,
    **matrices.FUNCTIONS,
    **removed.FUNCTIONS,
    **counts.FUNCTIONS,
    "polygamma": pointwise.polygamma,
    "pow": pointwise.power,
    **scans.FUNCTIONS,
    **sets.FUNCTIONS,
    **strides.FUNCTIONS,
    **complex_numbers.FUNCTIONS,
}

# In-place methods that PyTorch also has as functions: gt.exp_(x) is x.exp_().
IN_PLACE = {
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_",
    "arctanh_", "as_strided_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "clamp_",
    "clamp_max_", "clamp_min_", "clip_", "conj_physical_", "cos_", "cosh_", "deg2rad_", "detach_",
    "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_", "gcd_", "i0_",
    "index_put_", "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_", "logit_", "nan_to_num_",
    "neg_", "negative_", "rad2deg_", "reciprocal_", "relu_", "round_", "rsqrt_", "sigmoid_",
    "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_", "trunc_", "xlogy_", "zero_",
}  # fmt: skip

# Methods that PyTorch does not have as functions.
METHODS_ONLY = {
    "to_sparse", "to_dense",
    "data_ptr", "is_set_to", "untyped_storage",
    "size", "ndimension", "nelement", "element_size", "contiguous", "is_same_size", "view_as",
    "reshape_as", "expand_as", "type", "to", "type_as", "cpu", "cuda", "bool", "byte", "char",
    "short", "int", "long", "half", "bfloat16", "float", "double", "cfloat", "cdouble",
    "sum_to_size", "new_full",
    "new_zeros", "new_ones", "new_empty", "random_", "uniform_", "normal_", "bernoulli_",
    "exponential_", "copy_", "new_empty_strided", "resize_", "__lshift__", "__rshift__",
    "__rlshift__", "__rrshift__", "__rdiv__",
}  # fmt: skip


def install() -> None:
    """Attach the methods to the tensor class."""
    for file in FILES:
        for name, method in file.METHODS.items():
            if name in REPLACED or name not in Tensor.__dict__:
                cast = entry(name, of_complex(name, numpy_names(method)))
                setattr(Tensor, name, factors_first(name, cast))
    complex_numbers.install()
    from gt.tensors.creation import new_tensor  # it needs this package's files

    others = (
        inplace.methods()
        | inplace_shapes.methods()
        | memory.WRITING
        | random_writes.METHODS
        | {"lu": matrices.lu, "new_tensor": new_tensor}
    )
    for name, method in others.items():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, in_place(name, method))


def functions() -> dict[str, Method]:
    """The functions of `gt`: those that join tensors, and methods that PyTorch also has as
    functions.
    """
    table: dict[str, Method] = {}
    for file in FILES:
        for name in file.METHODS:
            if name not in METHODS_ONLY:
                table[name] = _core.Function(name, as_function(name, getattr(Tensor, name)))
    for name in IN_PLACE:
        table[name] = _core.Function(name, getattr(Tensor, name))
    others = {name: getattr(joining, name) for name in _joining} | FUNCTIONS
    for name, function in others.items():
        taking = entry(name, of_complex(name, numpy_names(function)))
        code = getattr(function, "__code__", None)
        method = code is None or code.co_varnames[0] == "self"
        table[name] = _core.Function(name, taking) if method else taking
    for name, of_number in NUMBERS_FIRST.items():
        method_of = as_function(name, getattr(Tensor, name))
        table[name] = _core.Function(name, method_of, of_number)
    return table


__all__ = ["functions", "install"]
