"""Python data as numpy arrays, in the dtype that PyTorch gives them. No tensor is made here."""

import functools
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from gt import _core
from gt._core import Tensor
from gt.composite.common import Number, Shape
from gt.errors import InvalidType, InvalidValue, ShapeError
from gt.tensors.dtypes import FROM_NUMPY, category, complex_of, get_default_dtype, promote_types

Array: TypeAlias = npt.NDArray[np.generic]
Kind: TypeAlias = type | np.dtype[np.generic]  # of a number: Python's or numpy's


@runtime_checkable
class Exporting(Protocol):
    """An array of another library (JAX, CuPy, pandas), which numpy can convert."""

    def __array__(self) -> Array: ...


@runtime_checkable
class Recorded(Protocol):
    """PyTorch's tensor, which gives its values only without its tape and its device."""

    @property
    def dtype(self) -> object: ...
    def detach(self) -> "Recorded": ...
    def cpu(self) -> "Recorded": ...
    def float(self) -> "Recorded": ...
    def numpy(self) -> Array: ...


# Types that are never another library's array: a test for a protocol's methods costs as much as ten
# operators.
_NEVER_ARRAYS = frozenset({float, int, bool, complex, str, list, tuple, np.ndarray}).union(
    np.sctypeDict.values()
)

Data: TypeAlias = Number | complex | Sequence["Data"] | Array | np.generic | Tensor | Exporting


def exported(data: object) -> tuple[Array, _core.dtype | None] | None:
    """The numpy array of another library's array, and its dtype if numpy lacks that; None for
    others.

    Raises:
        InvalidType: The dtype has no numpy array.
    """
    if type(data) in _NEVER_ARRAYS:
        return None
    if isinstance(data, Recorded):
        values = data.detach().cpu()
        try:
            if str(values.dtype) == "torch.bfloat16":  # as float32, exactly
                return values.float().numpy(), _core.bfloat16
            return values.numpy(), None
        except TypeError as error:
            raise InvalidType(f"can't convert a tensor of dtype {values.dtype}: {error}") from None
    if isinstance(data, Exporting) and not isinstance(data, np.generic):
        return np.asarray(data), None
    return None


def as_array(data: Data, wanted: _core.dtype | None) -> tuple[Array, _core.dtype | None]:
    """`data` as an array, and its dtype: Python floats have the default one, numpy's their own.

    Args:
        wanted: the requested dtype.

    Returns:
        The array, perhaps in another dtype that holds the values, and the dtype of its tensor; None
        if that is the array's.

    Raises:
        InvalidType, InvalidValue, ShapeError: there are no numbers, lists of unequal length, or
            numbers that `wanted` cannot hold.
    """
    if isinstance(data, np.ndarray):
        return data, wanted
    if (foreign := exported(data)) is not None:
        array, own = foreign
        return array, own if wanted is None else wanted
    if isinstance(data, (list, tuple)):
        data = plain(data)
        check_even(data, data_shape(data), 0)
    array = np.asarray(data)
    if array.dtype.kind in "US":
        raise misfit(data)
    if array.dtype == object or array.dtype.name == "uint64":
        array = large_numbers(data, array, wanted)
    if array.dtype.kind == "f" and array.size and kinds_of(data) <= {bool, int}:
        array = large_numbers(data, array, wanted)  # numpy makes floats of 1 and 2**63
    if isinstance(wanted, _core.dtype):
        check_range(array, wanted)
    elif array.dtype.kind in "iufc":
        wanted = common(kinds_of(data), _otherwise(array.dtype.kind))
    return array, wanted


def _otherwise(kind: str) -> _core.dtype | None:
    """The dtype of an empty array of this kind, which numpy has made."""
    floats = {"f": get_default_dtype(), "c": complex_of(get_default_dtype())}
    return floats.get(kind)


def whole_numbers(data: Data) -> bool:
    """True if all of the data are Python integers or bools."""
    return kinds_of(data) <= {bool, int}


def kinds_of(data: object) -> set[Kind]:
    """The types or dtypes of the innermost data."""
    if not isinstance(data, (list, tuple)):
        return {data.dtype if isinstance(data, (np.ndarray, np.generic)) else type(data)}
    if any(isinstance(x, (list, tuple, np.ndarray)) for x in data):
        return set().union(*(kinds_of(x) for x in data))
    types = set(map(type, data))  # few, even for a long list
    return {np.dtype(each) if issubclass(each, np.generic) else each for each in types}


_KNOWN: dict[Kind, _core.dtype] = {
    bool: _core.bool,
    int: _core.int64,
    **{np.dtype(name): dtype for name, dtype in FROM_NUMPY.items()},
}


def common(kinds: set[Kind], otherwise: _core.dtype | None) -> _core.dtype | None:
    """The common dtype of numbers of these kinds; `otherwise` if there is none."""
    dtypes_by_kind = _KNOWN | {float: get_default_dtype(), complex: complex_of(get_default_dtype())}
    dtypes = [dtypes_by_kind[kind] for kind in kinds if kind in dtypes_by_kind]
    return functools.reduce(promote_types, dtypes) if dtypes else otherwise


def check_range(array: Array, wanted: _core.dtype) -> None:
    """Raises PyTorch's error for Python numbers that exceed an integer dtype.

    Negative integers wrap around in an unsigned dtype, within its width.
    """
    if array.dtype.kind == "c" and wanted != _core.bool and not wanted.is_complex:
        raise InvalidType("must be real number, not complex")
    if category(wanted) > 1 or wanted == _core.bool or array.size == 0:
        return
    limits = np.iinfo(wanted.name)
    wraps = limits.min == 0 and array.dtype.kind != "f"
    low = -int(limits.max) if wraps else int(limits.min)
    smallest, largest = array.min().item(), array.max().item()
    # 255.5 is truncated to 255; nan is in no range
    if not (low <= smallest and largest < int(limits.max) + 1):
        raise ShapeError(f"value cannot be converted to type {wanted.name} without overflow")


def large_numbers(data: Data, array: Array, wanted: _core.dtype | None) -> Array:
    """Numbers that numpy keeps as objects, in another dtype: there may be an integer beyond 64
    bits.

    Raises:
        InvalidType, InvalidValue, ShapeError: there are no numbers, or an integer is required.
        OverflowError: an integer exceeds every float.
    """
    kinds = kinds_of(data)
    if not kinds <= {bool, int, float, complex}:
        raise misfit(data)
    if wanted == _core.bool:
        return array.astype(bool)
    if complex in kinds:
        return array.astype(np.complex128)
    if float in kinds or (isinstance(wanted, _core.dtype) and category(wanted) > 1):
        return array.astype(np.float64)
    raise misfit(data)


def _first_leaf(data: Data) -> object:
    leaf: object = data
    while isinstance(leaf, (list, tuple)) and leaf:
        leaf = leaf[0]
    return leaf


def misfit(data: Data) -> Exception:
    """The error for data that numpy cannot convert to numbers."""
    for leaf in leaves(data):
        if isinstance(leaf, (str, bytes)):
            kind = type(leaf).__name__
            if kind == "str" and leaf is not data and leaf is _first_leaf(data):
                return InvalidValue("too many dimensions 'str'")  # PyTorch counts the first's
            return InvalidType(f"new(): invalid data type '{kind}'")
        if not isinstance(leaf, (bool, int, float, complex, np.generic)):
            return ShapeError(f"Could not infer dtype of {type(leaf).__name__}")
    return InvalidValue("Overflow when unpacking long long")


def leaves(data: object) -> Iterator[object]:
    """The innermost data, one by one."""
    if isinstance(data, (list, tuple)):
        for x in data:
            yield from leaves(x)
    else:
        yield data


def plain(data: Data) -> Data:
    """Nested data without tensors: each tensor is read, and has one element."""
    if isinstance(data, (list, tuple)):
        return [plain(x) for x in data]
    if isinstance(data, Tensor):
        readable = data.float() if data.dtype == _core.bfloat16 else data
        array: Array = readable.detach().numpy()
    elif type(data) in _NEVER_ARRAYS or not isinstance(data, Recorded):
        return data
    else:
        foreign = exported(data)
        assert foreign is not None, type(data)
        array, _ = foreign
    if array.size != 1:
        raise InvalidValue("only one element tensors can be converted to Python scalars")
    number: np.generic = array.reshape(1)[0]
    return number


def data_shape(data: object) -> Shape:
    """Lengths of the nested lists, along their first elements."""
    shape = []
    while isinstance(data, (list, tuple)):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return tuple(shape)


def check_even(data: Data, shape: Shape, dim: int) -> None:
    """Raises PyTorch's error for lists of unequal length."""
    if dim == len(shape):
        if isinstance(data, (list, tuple)):
            raise InvalidType(f"not a sequence expected at dim {dim} (got {type(data).__name__})")
        return
    if isinstance(data, np.ndarray):
        return
    if not isinstance(data, (list, tuple)):
        raise InvalidType(f"expected a sequence at dim {dim} (got {type(data).__name__})")
    if len(data) != shape[dim]:
        raise InvalidValue(
            f"expected sequence of length {shape[dim]} at dim {dim} (got {len(data)})"
        )
    if dim + 1 < len(shape) or any(isinstance(x, (list, tuple)) for x in data):
        for x in data:
            check_even(x, shape, dim + 1)
