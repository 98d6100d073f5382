"""Functions that pick, compare and draw elements.

Functions with data-dependent result sizes (nonzero, masked_select, bincount) read one number from
the workers, and so wait; equal and allclose read one bool. No other function here waits.
"""

import math
from collections.abc import Sequence
from typing import Literal, overload

from gt import _core
from gt._core import Tensor, call
from gt.composite.casts import TENSOR_CLASSES, cast
from gt.composite.common import Method, Number, broadcast_shapes, generic, slice_dim, wrap
from gt.composite.pointwise import isclose
from gt.composite.reductions import topk
from gt.errors import (
    DtypeError,
    IndexOutOfRange,
    InvalidType,
    InvalidUse,
    InvalidValue,
    ShapeError,
)
from gt.tensors.draws import Generator, next_draw
from gt.tensors.kept import keeps

MASKS = {_core.bool, _core.uint8}  # dtypes of masks


def true_places(mask: Tensor) -> Tensor:
    """Row-major indices of a mask's true elements; reads their count."""
    flat = (mask if mask.dtype == _core.bool else mask != 0).reshape((math.prod(mask.shape),))
    total = flat.shape[0]
    count = int(flat.sum().item()) if total else 0
    slots = call("where", flat, flat.cumsum(0) - 1, count)
    numbers = call("arange", start=0, end=total, step=1, dtype=_core.int64)
    blank = call("full", size=(count + 1,), value=0, dtype=_core.int64)  # last slot: false ones
    return slice_dim(call("scatter", blank, slots, numbers, dim=0), 0, 0, count)


@overload
def nonzero(self: Tensor, *, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def nonzero(self: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def nonzero(self: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Indices of the elements that are not zero, one row each; reads their count."""
    places, columns = true_places(self), []
    for n in reversed(self.shape[1:]):
        columns.append(places % n if n else places)
        places = places // n if n else places
    columns.append(places)  # the rest is the index along the first dimension
    columns.reverse()
    if as_tuple:
        return tuple(columns)
    if self.ndim:
        return call("stack", *columns, dim=1)
    return call("full", size=(places.shape[0], 0), value=0, dtype=_core.int64)


def argwhere(self: Tensor) -> Tensor:
    """Indices of the elements that are not zero, one row each; reads their count."""
    return nonzero(self)


@keeps(self="self mask")
def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` is true, in one dimension; reads their count."""
    if mask.dtype != _core.bool:
        raise DtypeError("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(self.shape, mask.shape)
    x, m = self.expand(shape), mask.expand(shape)
    return call("index_select", x.reshape((math.prod(x.shape),)), true_places(m), dim=0)


def take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Values picked along `dim` by `indices`, which broadcast in the other dimensions."""
    if dim is None:
        return _take_of_all(self, indices)
    place = wrap(dim, self.ndim)
    if self.ndim != indices.ndim:
        raise ShapeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {self.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    wide = [max(n, m) if n and m else 0 for n, m in zip(self.shape, indices.shape, strict=True)]
    source, picked = list(wide), list(wide)
    source[place], picked[place] = self.shape[place], indices.shape[place]
    places = counted(indices, self.shape[place]).expand(tuple(picked))
    return call("gather", self.expand(tuple(source)), places, dim=place)


@keeps(self="indices")
def _take_of_all(self: Tensor, indices: Tensor) -> Tensor:
    flat = self.reshape((math.prod(self.shape),))
    places = counted(indices, flat.shape[0]).reshape((math.prod(indices.shape),))
    return call("gather", flat, places, dim=0)


@keeps(self="self index")
def take(self: Tensor, index: Tensor) -> Tensor:
    """Elements by their row-major index."""
    if index.dtype != _core.int64 or (index.numel() and not self.numel()):
        return generic("take", self, index)  # PyTorch refuses this
    flat = self.reshape((math.prod(self.shape),))
    places = counted(index, flat.shape[0]).reshape((math.prod(index.shape),))
    elements = call("index_select", flat, places, dim=0)
    return elements.reshape(index.shape)


def counted(index: Tensor, size: int) -> Tensor:
    """Indices with negative ones counted from the front."""
    return call("where", index < 0, index + size, index)


@keeps(self="index", source="index source")
def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`self` with slices of `source` written along `dim`."""
    if self.ndim == 0:
        if max(source.ndim, index.ndim) > 1 or source.numel() != 1 or index.numel() != 1:
            return generic("index_copy", self, dim, index, source)  # PyTorch refuses this
        one = index_copy(self.reshape(1), dim, index.reshape(1), source.reshape(1))
        return one.reshape(())
    if source.ndim not in {0, self.ndim}:
        raise IndexOutOfRange(
            "index_copy_(): When source and destination are not scalars, their dimensionality must "
            f"match. Source dimensionality ({source.ndim}), destination dimensionality "
            f"({self.ndim})"
        )
    along = wrap(dim, self.ndim)
    slices = [list(x.shape[:along] + x.shape[along + 1 :]) for x in (self, source)]
    is_refused = self.dtype != source.dtype or (source.ndim > 0 and slices[0] != slices[1])
    count = source.shape[along] if source.ndim else 1
    if is_refused or index.ndim > 1 or index.numel() != count:
        return generic("index_copy", self, dim, index, source)  # PyTorch refuses this
    everything = [None] * along
    return call("index_put", self, source, *everything, index.reshape(-1), accumulate=False)


@keeps(self="indices", values="indices")
def index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """`self` with `values` written (or added) at `indices`; masks are converted, and their size is
    read.
    """
    indexes: list[Tensor | None] = []
    check_indices(self, indices)
    by_masks = all(index is None or index.dtype in MASKS for index in indices)
    if by_masks and not accumulate and values.numel() == 1:  # a fill, which casts the value
        values = values.to(self.dtype)
        masks = [index for index in indices if index is not None]
        if len(masks) == 1 and masks[0].dtype == _core.uint8:
            raise DtypeError(
                "masked_fill_ only supports boolean masks, but got mask with dtype unsigned char"
            )
    for index in indices:
        if index is not None and index.dtype in MASKS:
            indexes.extend(nonzero(index, as_tuple=True))
        else:
            indexes.append(index)
    return call("index_put", self, values, *indexes, accumulate=accumulate)


def check_indices(x: Tensor, indices: Sequence[Tensor | None]) -> None:
    """Checks that indices are tensors, and that masks have the sizes of their dimensions."""
    dim = 0
    for place, index in enumerate(indices):
        if index is not None and not isinstance(index, Tensor):
            raise InvalidType(
                f"expected Tensor as element {place} in argument 0, but got {type(index).__name__}"
            )
        if index is None or index.dtype not in MASKS:
            dim += 1
        else:
            _core.check_mask(x, dim, index)
            dim += index.ndim


def scatter(
    self: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Number | None = None,
    *,
    value: Number | None = None,
    reduce: str | None = None,
) -> Tensor:
    """`self` with `src` (a tensor or a number) written at `index`; or added, or multiplied, there.

    Args:
        reduce: "add" or "multiply" (which temporarily needs index times self's size along `dim`).
    """
    source = value if src is None else src
    if reduce is None:
        return call("scatter", self, index, source, dim=dim)
    if reduce not in {"add", "multiply"}:
        raise InvalidUse("reduce argument must be either add or multiply.")
    if not isinstance(source, Tensor):
        source = call("full", size=index.shape, value=source, dtype=self.dtype)
    if reduce == "multiply":
        # Raises errors, and gives the index's part of `source`; its result is not used.
        call("scatter", self, index, source, dim=dim)
        return multiplied(self, wrap(dim, self.ndim), index, source)
    return call("scatter_add", self, index, source, dim=dim)


def multiplied(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """`self` times all elements of `source` whose index names the element's place."""
    if self.ndim == 0:
        whole = multiplied(self.reshape((1,)), 0, index.reshape((-1,)), source.reshape((-1,)))
        return whole.reshape(())
    part = source
    for place, size in enumerate(index.shape):
        part = slice_dim(part, place, 0, size)
    names = index.movedim(dim, -1).unsqueeze(-1)  # [..., k, 1]
    places = call("arange", start=0, end=self.shape[dim], step=1, dtype=_core.int64)
    hit = names == places  # [..., k, n]
    factors = call("where", hit, part.movedim(dim, -1).unsqueeze(-1), 1).prod(-2)  # [..., n]
    factors = factors.movedim(-1, dim).to(self.dtype)
    for place, size in enumerate(self.shape):  # the index may cover less in the other dimensions
        if factors.shape[place] < size:
            shape = [*factors.shape]
            shape[place] = size - factors.shape[place]
            rest = call("full", size=tuple(shape), value=1, dtype=self.dtype)
            factors = call("cat", factors, rest, dim=place)
    return self * factors


@keeps(self="index", value="index")
def index_fill(self: Tensor, dim: int, index: Tensor, value: Number | Tensor) -> Tensor:
    """`self` with `value` in the slices of `dim` that `index` picks."""
    if self.ndim == 0:
        return index_fill(self.reshape((1,)), dim, index, value).reshape(())
    place = wrap(dim, self.ndim)
    _check_filling(self, index, value)
    hit = call("full", size=(self.shape[place],), value=False, dtype=_core.bool)
    mask = call("scatter", hit, index, True, dim=0)
    shape = [1] * self.ndim
    shape[place] = self.shape[place]
    return self.masked_fill(mask.reshape(tuple(shape)), value)


def _check_filling(self: Tensor, index: Tensor, value: complex | Tensor) -> None:
    if index.dtype not in {_core.int32, _core.int64}:
        raise IndexOutOfRange("index_fill_(): Expected dtype int64 for index.")
    if isinstance(value, Tensor) and value.ndim:
        raise ShapeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    if isinstance(value, complex) and not self.dtype.is_complex:
        raise ShapeError(
            "index_fill_(): Converting complex Scalar to non-complex type is not supported"
        )


def equal(self: Tensor, other: Tensor) -> bool:
    """True if shapes and all elements are equal; reads one bool."""
    return self.shape == other.shape and bool((self == other).all().item())


def allclose(
    self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """True if all elements are close; reads one bool, and records nothing."""
    recording = _core.set_grad_enabled(False)
    try:
        return bool(isclose(self, other, rtol, atol, equal_nan).all().item())
    finally:
        _core.set_grad_enabled(recording)


def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count of each integer from 0 on, or the sum of its weights; reads the largest."""
    if self.ndim != 1 or self.dtype.is_floating_point:
        raise ShapeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise ShapeError("minlength should be >= 0")
    highest = -1
    if self.shape[0]:
        ends: Tensor = call("stack", self.amin(), self.amax(), dim=0)
        lowest, highest = map(int, ends.numpy())
        if lowest < 0:  # before memory for any highest number is allocated
            raise ShapeError("bincount only supports 1-d non-negative integral inputs.")
    length = max(highest + 1, minlength)
    if weights is None:
        weights = call("full_like", self, size=self.shape, value=1, dtype=_core.int64)
    elif weights.dtype != _core.float32:
        weights = cast(weights, _core.float64)
    blank = call("full", size=(length,), value=0, dtype=weights.dtype)
    if not self.shape[0]:
        return blank
    return call("index_add", blank, cast(self, _core.int64), weights, dim=0)


def wide_dtype(self: Tensor) -> _core.dtype:
    """The dtype in which probabilities are computed: at least float32."""
    return _core.float64 if self.dtype == _core.float64 else _core.float32


def uniform_like(self: Tensor, shape: Sequence[int], generator: Generator | None) -> Tensor:
    """Uniform numbers from [0, 1), by the generator's next draw."""
    dtype = wide_dtype(self)
    seed, draw = next_draw(generator)
    shared = {"size": tuple(shape), "dtype": dtype, "seed": seed, "draw": draw}
    if tuple(shape) != tuple(self.shape):
        return call("uniform", low=0.0, high=1.0, **shared)
    return call("random_like", self.detach(), kind="uniform", first=0.0, second=1.0, **shared)


CATEGORIES_MAX = 2**24  # PyTorch's limit: float32 counts no further


def multinomial(
    self: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn from each row's unnormalized probabilities, equal under every layout.

    Without replacement it takes the largest of p / e with e exponential; with replacement the
    places of uniform numbers in the running sum, which needs memory of `num_samples` times the
    row's length.
    """
    if self.ndim not in {1, 2}:
        raise ShapeError("prob_dist must be 1 or 2 dim")
    if not self.dtype.is_floating_point:
        have = TENSOR_CLASSES[repr(self.dtype)].removesuffix("Tensor")
        raise DtypeError(f"multinomial only supports floating-point dtypes for input, got: {have}")
    if self.shape[-1] > CATEGORIES_MAX:
        raise ShapeError("number of categories cannot exceed 2^24")
    if num_samples <= 0:
        raise ShapeError("cannot sample n_sample <= 0 samples")
    count = self.shape[-1]
    weight = cast(self.detach(), wide_dtype(self))
    if not replacement or num_samples == 1:
        if num_samples > count:
            raise ShapeError(
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
            )
        exponential = -uniform_like(weight, self.shape, generator).log()
        return topk(weight / exponential, num_samples, -1).indices
    total = weight.cumsum(-1)
    drawn = uniform_like(weight, (*self.shape[:-1], num_samples), generator) * slice_dim(
        total, self.ndim - 1, count - 1, 1
    )
    passed = total.reshape((*self.shape[:-1], 1, count)) <= drawn.reshape((*drawn.shape, 1))
    return call("sum", passed, dim=(-1,), keepdim=False).clamp(max=count - 1)


def bernoulli(
    self: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """One with the element's probability (or with `p`), else zero; the gradient is zero."""
    limit = self.detach() if p is None else p
    if p is not None and not 0 <= p <= 1:
        raise InvalidValue(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    hit = uniform_like(self, self.shape, generator) < limit
    if p is None and self.requires_grad:
        return self.masked_fill(hit, 1.0).masked_fill(hit.logical_not(), 0.0)
    return cast(hit, self.dtype)


METHODS: dict[str, Method] = {
    "nonzero": nonzero,
    "argwhere": argwhere,
    "masked_select": masked_select,
    "take_along_dim": take_along_dim,
    "take": take,
    "index_copy": index_copy,
    "index_put": index_put,
    "scatter": scatter,
    "index_fill": index_fill,
    "equal": equal,
    "allclose": allclose,
    "bincount": bincount,
    "multinomial": multinomial,
    "bernoulli": bernoulli,
}
