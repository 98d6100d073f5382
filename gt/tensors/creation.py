"""Tensors from data and from sizes. `device` and the like are accepted and place nothing.

Random tensors are in random.py.
"""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from gt import _core
from gt._core import Tensor, call
from gt.composite.casts import cast, known_dtype
from gt.composite.common import Number, Shape, sizes, whole
from gt.composite.factors import check_fits
from gt.composite.joining import PARTS_MAX
from gt.errors import DtypeError, InvalidType, ShapeError, out_refused
from gt.tensors.conversion import Array, Data, as_array, whole_numbers
from gt.tensors.devices import check_device
from gt.tensors.dtypes import (
    FROM_NUMPY,
    NUMPY,
    as_stored,
    category,
    check_layout,
    get_default_dtype,
    of_number,
    part_of,
)

Size: TypeAlias = int | Sequence[int]
P = ParamSpec("P")
R = TypeVar("R")

_PYTHON = frozenset({float, int, bool, list, tuple})  # of numbers: crates/python makes the tensor
_SAME_BYTES = frozenset(np.dtype(name).char for name in FROM_NUMPY) | {"q"}


def tensor(
    data: Data,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with a copy of `data`.

    Args:
        data: numbers, nested lists of them, a numpy array, a tensor, or another library's array.
        dtype: by default bool, int64 or the default dtype; that of an array or tensor stays.
        requires_grad: with it, Python integers become the default dtype (PyTorch raises).
    """
    check_device(device)
    if isinstance(data, Tensor):
        out = data.detach().clone()
        return finish(out if dtype is None else cast(out, dtype), requires_grad)
    if dtype is not None:
        dtype = known_dtype(dtype) or dtype
    result = None
    if type(data) in _PYTHON and (dtype is None or isinstance(dtype, _core.dtype)):
        result = _core.from_numbers(data, dtype, requires_grad)
    elif dtype is None and not requires_grad:
        result = _as_it_is(data)
    if result is None and (stacked := _stacked(data, dtype)) is not None:
        result = finish(stacked, requires_grad)
    if result is not None:
        return result
    array, chosen = as_array(data, dtype)
    if dtype is None and requires_grad and array.dtype.kind == "i" and whole_numbers(data):
        chosen = get_default_dtype()
    return from_array(array, chosen, requires_grad)


def _stacked(data: object, dtype: _core.dtype | None) -> Tensor | None:
    """A copy of a list of 0-d tensors of one dtype, which nobody need read; None for others."""
    if not isinstance(data, (list, tuple)) or not data or not isinstance(data[0], Tensor):
        return None
    own = data[0].dtype
    if own == _core.bfloat16 or (dtype is not None and dtype != own) or len(data) > PARTS_MAX:
        return None
    if not all(isinstance(x, Tensor) and x.ndim == 0 and x.dtype == own for x in data):
        return None
    return call("stack", *data, dim=0).detach()


def as_tensor(data: Data, dtype: _core.dtype | None = None, device: object = None) -> Tensor:
    """`data` as a tensor; a tensor of that dtype stays itself."""
    check_device(device, "as_tensor")
    if isinstance(data, Tensor):
        return data if dtype is None else cast(data, dtype)
    return tensor(data, dtype=dtype)


def from_numpy(ndarray: Array) -> Tensor:
    """A tensor with a copy of `ndarray`, of its dtype."""
    if not isinstance(ndarray, np.ndarray):
        raise InvalidType(f"expected np.ndarray (got {type(ndarray).__name__})")
    result = _as_it_is(ndarray)
    return from_array(ndarray, None, False) if result is None else result


def _as_it_is(data: object) -> Tensor | None:
    """A numpy array whose bytes are those of its tensor; None for anything else."""
    if type(data) is np.ndarray and data.ndim > 0 and data.dtype.char in _SAME_BYTES:
        return _core.from_numpy_copy(data)
    return None


def from_array(array: Array, dtype: _core.dtype | None, requires_grad: bool) -> Tensor:
    """Upload, cast here: what numpy has no dtype for travels as its bits."""
    name = _name(array.dtype)
    if name not in FROM_NUMPY:
        raise InvalidType(
            f"can't convert np.ndarray of type numpy.{name}. The only supported types "
            f"are: {', '.join(FROM_NUMPY)}."
        )
    target = FROM_NUMPY[name] if dtype is None else dtype
    if requires_grad and not (target.is_floating_point or target.is_complex):
        raise DtypeError("Only Tensors of floating point and complex dtype can require gradients")
    with np.errstate(over="ignore", invalid="ignore"):  # what a dtype does not hold becomes inf
        if array.dtype.kind == "c" and not target.is_complex and target != _core.bool:
            array = array.real  # which alone is there: check_range
        whole = np.asarray(array, dtype=NUMPY.get(repr(target), "float32"), order="C")
    if whole.ndim == 0 and not target.is_complex:  # a number travels in the instruction
        if (out := _core.from_numbers(whole.item(), target, requires_grad)) is not None:
            return out
        out = call("full", size=(), value=whole.item(), dtype=target)
        return finish(out, requires_grad)
    if repr(target) not in NUMPY:
        return _core.from_bytes(bfloat16_bits(whole), whole.shape, target, requires_grad)
    return _core.from_numpy_copy(whole, target, requires_grad)


@functools.cache
def _name(dtype: np.dtype[Any]) -> str:
    """numpy's name of a dtype, which it makes anew each time."""
    return dtype.name


def bfloat16_bits(values: Array) -> npt.NDArray[np.uint16]:
    """The upper halves of float32 numbers, rounded to the nearest, halves to even."""
    bits = values.view(np.uint32)
    upper = bits >> 16
    nearest = (bits + (0x7FFF + (upper & 1))) >> 16
    return np.where(np.isnan(values), upper | 0x40, nearest).astype(np.uint16)


def finish(x: Tensor, requires_grad: bool) -> Tensor:
    """`x`, as a leaf that requires a gradient where one is asked for."""
    if not requires_grad:
        return x
    if not (x.is_floating_point() or x.is_complex()):
        raise DtypeError("Only Tensors of floating point and complex dtype can require gradients")
    return x.requires_grad_()


def shape_of(size: Sequence[Size], named: Size | None, function: str) -> Shape:
    """A size given by position or as `size=`."""
    return sizes(size if named is None else (named,), function)


def full(
    size: Size,
    fill_value: Number | complex | Tensor,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
    out: None = None,
) -> Tensor:
    """A tensor of `size` filled with `fill_value`, by default of the number's dtype."""
    if out is not None:
        raise out_refused("full")
    check_device(device, "full")
    check_layout(layout, "full")
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    chosen = of_number(value) if dtype is None else dtype
    return finish(filled(sizes((size,), "full"), value, chosen), requires_grad)


def filled(shape: Shape, value: Number | complex, dtype: _core.dtype) -> Tensor:
    """A tensor of one number; a complex one is uploaded: no instruction has it as an attribute."""
    if isinstance(value, complex):
        if dtype != _core.bool:  # of which any number but zero is true
            check_fits(value, dtype)
        return tensor(value, dtype=dtype).expand(shape).clone()
    return call("full", size=shape, value=as_stored(value, dtype), dtype=dtype)


def zeros(
    *size: Size,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
    **named: Size,
) -> Tensor:
    """Zeros of a size, given as numbers, as one sequence, or as `size=`."""
    check_device(device, "zeros")
    check_layout(layout, "zeros")
    shape = shape_of(size, size_only(named, "zeros"), "zeros")
    if any(n < 0 for n in shape):
        raise ShapeError("zeros: Dimension size must be non-negative.")
    chosen = get_default_dtype() if dtype is None else dtype
    return finish(filled(shape, 0, chosen), requires_grad)


def ones(
    *size: Size,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
    **named: Size,
) -> Tensor:
    """Ones of a size, given as numbers, as one sequence, or as `size=`."""
    check_device(device, "ones")
    check_layout(layout, "ones")
    shape = shape_of(size, size_only(named, "ones"), "ones")
    chosen = get_default_dtype() if dtype is None else dtype
    return finish(filled(shape, 1, chosen), requires_grad)


def empty(
    *size: Size,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
    memory_format: object = None,
    **named: Size,
) -> Tensor:
    """Same as zeros: uninitialised memory would not be reproducible."""
    check_device(device, "empty")
    check_layout(layout, "empty")
    shape = shape_of(size, size_only(named, "empty"), "empty")
    chosen = get_default_dtype() if dtype is None else dtype
    return finish(filled(shape, 0, chosen), requires_grad)


def takes_no_out(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which says of `out=` what to write instead."""

    @functools.wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> R:
        if named.pop("out", None) is not None:
            raise out_refused(function.__name__)
        return function(*args, **named)

    return called


def size_only(named: dict[str, Size], function: str) -> Size | None:
    """The keyword `size`, which stands beside `*size` in PyTorch's signatures."""
    size = named.pop("size", None)
    if named.pop("out", None) is not None:
        raise out_refused(function)
    for other in named:
        raise InvalidType(f"{function}() got an unexpected keyword argument '{other}'")
    return size


@takes_no_out
def arange(
    start: Number,
    end: Number | None = None,
    step: Number = 1,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """Values from `start` (0 if only one is given) up to, not including, `end`."""
    check_device(device, "arange")
    check_layout(layout, "arange")
    first, last = (0, start) if end is None else (start, end)
    numbers = [x if isinstance(x, bool) else whole(x) for x in (first, last, step)]
    chosen = get_default_dtype() if None in numbers else _core.int64
    chosen = chosen if dtype is None else dtype
    return finish(call("arange", start=first, end=last, step=step, dtype=chosen), requires_grad)


@takes_no_out
def linspace(
    start: Number,
    end: Number,
    steps: int,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """`steps` evenly spaced values from `start` to `end`, both included."""
    check_device(device, "linspace")
    check_layout(layout, "linspace")
    start, end = bounds("linspace", start, end, steps)
    if isinstance(start, complex) or isinstance(end, complex):
        return finish(complex_line("linspace", start, end, steps, dtype), requires_grad)
    chosen = get_default_dtype() if dtype is None else dtype
    start, end = as_stored(start, chosen), as_stored(end, chosen)
    out = call("linspace", start=start, end=end, steps=steps, dtype=chosen)
    return finish(out, requires_grad)


def complex_line(
    function: str, start: complex, end: complex, steps: int, dtype: _core.dtype | None
) -> Tensor:
    """Evenly spaced complex numbers, the parts each in its own line."""
    default = {_core.float64: _core.complex128}.get(get_default_dtype(), _core.complex64)
    chosen = default if dtype is None else dtype
    if not chosen.is_complex:
        names = {_core.float32: "Float", _core.float64: "Double", _core.int64: "Long"}
        raise ShapeError(
            f"torch.{function}(): inferred dtype c10::complex<float> can't be safely cast to "
            f"passed dtype {names.get(chosen, repr(chosen).removeprefix('gt.').capitalize())}"
        )
    kind = _core.float64 if chosen == _core.complex128 else _core.float32
    first, last = complex(start), complex(end)
    real, imag = (
        call("linspace", start=a, end=b, steps=steps, dtype=kind)
        for a, b in ((first.real, last.real), (first.imag, last.imag))
    )
    return real.to(chosen) + imag.to(chosen) * 1j


def bounds(
    function: str, start: Number | Tensor, end: Number | Tensor, steps: object
) -> tuple[Number, Number]:
    """Both ends as numbers: one in a tensor is read."""
    if whole(steps) is None or isinstance(steps, bool):
        kinds = ", ".join(type(x).__name__ for x in (start, end, steps))
        raise InvalidType(
            f"{function}() received an invalid combination of arguments - got ({kinds}), but "
            "expected one of:\n * (Number start, Number end, int steps, ...)"
        )
    ndims = [x.ndim if isinstance(x, Tensor) else 0 for x in (start, end)]
    if any(ndims):
        raise ShapeError(
            f"{function} only supports 0-dimensional start and end tensors, but got start with "
            f"{ndims[0]} dimension(s) and end with {ndims[1]} dimension(s)."
        )
    first, last = (x.item() if isinstance(x, Tensor) else x for x in (start, end))
    return first, last


@takes_no_out
def logspace(
    start: Number,
    end: Number,
    steps: int,
    base: float = 10.0,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """`base` to the powers `linspace(start, end, steps)`; an integer dtype cuts both ends first."""
    check_device(device, "logspace")
    check_layout(layout, "logspace")
    start, end = bounds("logspace", start, end, steps)
    if isinstance(start, complex) or isinstance(end, complex):
        powers = complex_line("logspace", start, end, steps, dtype)
        return finish(call("exp", powers * math.log(base)), requires_grad)
    chosen = get_default_dtype() if dtype is None else dtype
    exact = part_of(chosen) if category(chosen) > 1 else _core.float64
    if category(chosen) < 2:
        start, end = int(start), int(end)
    powers = linspace(start, end, steps, dtype=exact)
    return finish(cast(call("pow", float(base), powers), chosen), requires_grad)


@takes_no_out
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """An n by m matrix with ones on the diagonal; square without `m`."""
    check_device(device, "eye")
    check_layout(layout, "eye")
    chosen = get_default_dtype() if dtype is None else dtype
    return finish(call("eye", n=n, m=n if m is None else m, dtype=chosen), requires_grad)


def full_like(
    input: Tensor,
    fill_value: Number | complex,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    memory_format: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of `input`'s shape and dtype filled with `fill_value`, in the layout of `input`."""
    check_device(device)
    check_layout(layout, "full_like")
    chosen = input.dtype if dtype is None else dtype
    if isinstance(fill_value, complex):
        return finish(filled(tuple(input.shape), fill_value, chosen), requires_grad)
    out = call(
        "full_like", input, size=input.shape, value=as_stored(fill_value, chosen), dtype=chosen
    )
    return finish(out, requires_grad)


def zeros_like(
    input: Tensor,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    memory_format: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """Zeros of `input`'s shape and dtype."""
    check_device(device, "zeros_like")
    check_layout(layout, "zeros_like")
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    input: Tensor,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    memory_format: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """Ones of `input`'s shape and dtype."""
    check_device(device, "ones_like")
    check_layout(layout, "ones_like")
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def new_tensor(
    self: Tensor,
    data: Data,
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with a copy of `data`, of this tensor's dtype."""
    check_layout(layout, "new_tensor")
    chosen = self.dtype if dtype is None else dtype
    return tensor(data, dtype=chosen, device=device, requires_grad=requires_grad)


def is_tensor(obj: object) -> bool:
    """True if `obj` is a tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: object) -> bool:
    """False: no tensor has a storage that programs could hold."""
    return False


empty_like = zeros_like

__all__ = [
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "eye",
    "from_numpy",
    "full",
    "full_like",
    "is_storage",
    "is_tensor",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "tensor",
    "zeros",
    "zeros_like",
]
