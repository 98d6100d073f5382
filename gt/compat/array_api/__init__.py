"""`x.__array_namespace__()`: GT under the names and arguments of the Python array API standard.

Libraries that are written for the standard (scikit-learn, SciPy, array-api-extra) call these. The
Libraries that are written for the standard (scikit-learn, SciPy, array-api-extra) call these. The
edition is 2024.12 (https://data-apis.org/array-api/2024.12), without uint16, uint32 and uint64,
which GT lacks. Sizes that depend on data are read (`nonzero`, `unique_values`).
"""

import gt
from gt.compat.array_api import fft, linalg
from gt.compat.array_api.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from gt.compat.array_api.dtypes import astype, can_cast, isdtype, result_type
from gt.compat.array_api.info import __array_namespace_info__
from gt.compat.array_api.linalg import matrix_transpose, tensordot, vecdot
from gt.compat.array_api.manipulation import (
    broadcast_arrays,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from gt.compat.array_api.reductions import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from gt.compat.array_api.searching import (
    argsort,
    clip,
    nonzero,
    positive,
    searchsorted,
    sort,
    take,
    take_along_axis,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)

__array_api_version__ = "2024.12"

# Functions that GT has by the standard's name and arguments.
SAME = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool",
    "broadcast_to", "ceil", "complex128", "complex64", "conj", "copysign", "cos", "cosh", "divide",
    "e", "exp", "expm1", "finfo", "float32", "float64", "floor", "floor_divide", "from_dlpack",
    "hypot", "iinfo", "imag", "inf",
    "int16", "int32", "int64", "int8", "isfinite", "isinf", "isnan", "log", "log10", "log1p",
    "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
    "maximum", "minimum", "multiply", "nan", "negative", "newaxis", "nextafter", "pi", "pow",
    "real", "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square",
    "subtract", "tan", "tanh", "trunc", "uint8", "where",
)  # fmt: skip
# Functions that GT has by another name.
RENAMED = {
    "bitwise_invert": "bitwise_not",
    "equal": "eq",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
}
globals().update({name: getattr(gt, name) for name in SAME})
globals().update({name: getattr(gt, own) for name, own in RENAMED.items()})

__all__ = [  # noqa: PLE0604 - names
    *SAME,
    *RENAMED,
    "__array_api_version__",
    "__array_namespace_info__",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asarray",
    "astype",
    "broadcast_arrays",
    "can_cast",
    "clip",
    "concat",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "empty",
    "empty_like",
    "expand_dims",
    "eye",
    "fft",
    "flip",
    "full",
    "full_like",
    "isdtype",
    "linalg",
    "linspace",
    "matrix_transpose",
    "max",
    "mean",
    "meshgrid",
    "min",
    "moveaxis",
    "nonzero",
    "ones",
    "ones_like",
    "permute_dims",
    "positive",
    "prod",
    "repeat",
    "reshape",
    "result_type",
    "roll",
    "searchsorted",
    "sort",
    "squeeze",
    "stack",
    "std",
    "sum",
    "take",
    "take_along_axis",
    "tensordot",
    "tile",
    "tril",
    "triu",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "var",
    "vecdot",
    "zeros",
    "zeros_like",
]


def __dir__() -> list[str]:
    """The names of the standard."""
    return sorted(__all__)
