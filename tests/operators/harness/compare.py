"""Compares results of GT and PyTorch: class, dtype, shape, values; a difference is one sentence."""

import math
from collections.abc import Iterable

import torch

import gt
from harness.convert import DTYPES, from_gt, tensors

# Relative to each element: the same kernel over other strides, or a composition.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
# Near zero an element is what is left of terms that cancel, each rounded: the absolute floor is one
# rounding of the largest of them (`terms`, 1 unless somebody knows better), whatever is beside it.
FLOOR = {dtype: torch.finfo(dtype).eps for dtype in TOLERANCE}


def difference(
    ours: object, theirs: object, *, values: bool, looser: float = 1.0, terms: float = 1.0
) -> str | None:
    """The first thing in which `ours` is not `theirs`.

    Args:
        ours: a tree of GT's tensors and plain values.
        theirs: the same of PyTorch's.
        values: whether values count beside dtypes and shapes.
        looser: a factor on the tolerance.
        terms: the largest term of a sum that makes up an element.
    """
    if isinstance(theirs, torch.Tensor):
        return _tensor_difference(ours, theirs, values, looser, terms)
    if isinstance(theirs, list | tuple):
        if not isinstance(ours, list | tuple) or len(ours) != len(theirs):
            return f"{_kind(ours)} for {_kind(theirs)}"
        pairs = zip(ours, theirs, strict=True)
        all_ = (difference(a, b, values=values, looser=looser, terms=terms) for a, b in pairs)
        return first(f"[{place}] {what}" for place, what in enumerate(all_) if what)
    if isinstance(theirs, torch.dtype):
        return None if DTYPES.get(theirs) == ours else f"{ours} for {theirs}"
    if type(ours) is not type(theirs):
        return f"{_kind(ours)} for {_kind(theirs)}"
    if isinstance(theirs, float) and math.isnan(theirs):
        return None if math.isnan(ours) else f"{ours} for {theirs}"
    if isinstance(theirs, float) and values:
        return None if abs(ours - theirs) <= looser * 1e-6 * abs(theirs) else f"{ours} for {theirs}"
    return None if ours == theirs or not values else f"{ours} for {theirs}"


def identical(ours: object, theirs: object) -> bool:
    """True where all values are equal; NaN equals NaN."""
    pairs = zip(tensors(ours, gt.Tensor), tensors(theirs, torch.Tensor), strict=True)
    return all(
        bool(((a := from_gt(x)) == y).logical_or(a.isnan() & y.isnan()).all()) for x, y in pairs
    )


def first(found: Iterable[str]) -> str | None:
    return next(iter(found), None)


def _kind(value: object) -> str:
    size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return f"{type(value).__name__}{size}"


def _tensor_difference(
    ours: object, theirs: torch.Tensor, values: bool, looser: float, terms: float
) -> str | None:
    if not isinstance(ours, gt.Tensor):
        return f"{_kind(ours)} for a tensor"
    if theirs.dtype not in DTYPES or ours.dtype != DTYPES[theirs.dtype]:
        return f"dtype {ours.dtype} for {theirs.dtype}"
    if tuple(ours.shape) != tuple(theirs.shape):
        return f"shape {tuple(ours.shape)} for {tuple(theirs.shape)}"
    read = from_gt(ours)  # also where values are free: a failure on the worker shows here
    return value_difference(read, theirs.detach(), looser, terms) if values else None


def complex_difference(
    ours: torch.Tensor, theirs: torch.Tensor, looser: float, terms: float
) -> str | None:
    """`value_difference` of complex numbers: by their distance, relative to the larger part."""
    parts = [torch.view_as_real(x.resolve_conj().resolve_neg()) for x in (ours, theirs)]
    real = parts[1].dtype
    relative, floor = TOLERANCE[real] * looser, FLOOR[real] * terms * looser
    a, b = (part.double() for part in parts)
    size = b.abs().amax(-1, keepdim=True).nan_to_num(0.0, posinf=0.0)
    close = torch.isclose(a, b, rtol=relative, atol=floor, equal_nan=True)
    close |= (a - b).abs() <= floor + relative * size
    if close.all():
        return None
    place = int((~close.all(-1)).reshape(-1).nonzero()[0])
    count = int((~close.all(-1)).sum())
    return (
        f"{count} of {theirs.numel()} values differ, first "
        f"{ours.reshape(-1)[place].item()} for {theirs.reshape(-1)[place].item()}"
    )


def value_difference(
    ours: torch.Tensor, theirs: torch.Tensor, looser: float = 1.0, terms: float = 1.0
) -> str | None:
    """The first element that is further off than kernels may differ; NaN equals NaN."""
    if ours.dtype == theirs.dtype and torch.equal(ours, theirs):
        return None  # most: in a tenth of the time
    if theirs.dtype.is_complex:
        return complex_difference(ours, theirs, looser, terms)
    if not theirs.dtype.is_floating_point:
        wrong = int((ours != theirs).sum())
        return f"{wrong} of {theirs.numel()} values differ" if wrong else None
    a, b = ours.double(), theirs.double()
    relative, floor = TOLERANCE[theirs.dtype], FLOOR[theirs.dtype] * terms
    close = torch.isclose(a, b, rtol=looser * relative, atol=looser * floor, equal_nan=True)
    if close.all():
        return None
    place = int((~close).reshape(-1).nonzero()[0])
    return (
        f"{int((~close).sum())} of {theirs.numel()} values differ, first "
        f"{a.reshape(-1)[place].item()} for {b.reshape(-1)[place].item()}"
    )
