"""Arrays made of nothing or of Python's data, as the standard names their arguments."""

import gt
from gt._core import Tensor, dtype
from gt.compat.array_api.dtypes import Real, of_python
from gt.tensors.conversion import Data
from gt.tensors.devices import check_device

Shape = int | tuple[int, ...]


def asarray(
    obj: Data, /, *, dtype: dtype | None = None, device: object = None, copy: bool | None = None
) -> Tensor:
    """`obj` as an array: `gt.asarray`."""
    return gt.asarray(obj, dtype=dtype, device=device, copy=copy)


def arange(
    start: Real,
    /,
    stop: Real | None = None,
    step: Real = 1,
    *,
    dtype: dtype | None = None,
    device: object = None,
) -> Tensor:
    """Values from `start` (or 0) up to, not including, `stop` in steps of `step`."""
    if stop is None:
        start, stop = 0, start
    count = (stop - start) / step
    if count <= 0:
        return gt.empty(0, dtype=dtype or of_python(start, stop, step), device=device)
    return gt.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: Real,
    stop: Real,
    /,
    num: int,
    *,
    dtype: dtype | None = None,
    device: object = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` evenly spaced values; without `endpoint` the last step stops short of `stop`."""
    if endpoint:
        return gt.linspace(start, stop, num, dtype=dtype, device=device)
    return gt.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: dtype | None = None,
    device: object = None,
) -> Tensor:
    """Ones on the `k`-th diagonal, zeros elsewhere."""
    check_device(device)
    columns = n_rows if n_cols is None else n_cols
    on = gt.arange(n_rows).unsqueeze(1) + k == gt.arange(columns)
    return on.to(dtype or gt.get_default_dtype())


def empty(shape: Shape, *, dtype: dtype | None = None, device: object = None) -> Tensor:
    """Zeros: nothing of GT's is uninitialised."""
    return gt.zeros(shape, dtype=dtype, device=device)


def zeros(shape: Shape, *, dtype: dtype | None = None, device: object = None) -> Tensor:
    """Zeros of `shape`, of the default dtype."""
    return gt.zeros(shape, dtype=dtype, device=device)


def ones(shape: Shape, *, dtype: dtype | None = None, device: object = None) -> Tensor:
    """Ones of `shape`, of the default dtype."""
    return gt.ones(shape, dtype=dtype, device=device)


def full(
    shape: Shape, fill_value: Real, *, dtype: dtype | None = None, device: object = None
) -> Tensor:
    """`fill_value` everywhere, in its own kind of dtype."""
    size = (shape,) if isinstance(shape, int) else shape
    return gt.full(size, fill_value, dtype=dtype or of_python(fill_value), device=device)


def empty_like(x: Tensor, /, *, dtype: dtype | None = None, device: object = None) -> Tensor:
    """Zeros of the shape of `x`."""
    return gt.zeros_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: dtype | None = None, device: object = None) -> Tensor:
    """Zeros of the shape of `x`."""
    return gt.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: dtype | None = None, device: object = None) -> Tensor:
    """Ones of the shape of `x`."""
    return gt.ones_like(x, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: Real, *, dtype: dtype | None = None, device: object = None
) -> Tensor:
    """`fill_value` in the shape of `x`."""
    return gt.full_like(x, fill_value, dtype=dtype, device=device)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of the grid of one-dimensional arrays."""
    return list(gt.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The triangle on and below the `k`-th diagonal of the last two dimensions."""
    return gt.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The triangle on and above the `k`-th diagonal of the last two dimensions."""
    return gt.triu(x, k)
