"""Shapes and places of elements, as the standard names their arguments."""

from collections.abc import Sequence

import gt
from gt._core import Tensor
from gt.compat.array_api.dtypes import axes

Axis = int | tuple[int, ...]


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays in their common shape."""
    return list(gt.broadcast_tensors(*arrays))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The arrays one after the other along `axis`, or flat where that is None."""
    if axis is None:
        return gt.cat([x.reshape(-1) for x in arrays], 0)
    return gt.cat(list(arrays), axis)


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """`x` with a new dimension of size 1 at `axis`."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise IndexError(f"expand_dims(): axis {axis} of an array with {x.ndim} dimensions")
    return gt.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: Axis | None = None) -> Tensor:
    """`x` reversed along `axis`, or along all dimensions."""
    return gt.flip(x, axes(axis, x.ndim))


def moveaxis(x: Tensor, source: Axis, destination: Axis, /) -> Tensor:
    """`x` with dimensions moved to other positions."""
    return gt.moveaxis(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """`x` with its dimensions in another order."""
    return gt.permute(x, axes)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element of `x` repeated `repeats` times, along `axis` or flat."""
    flat = x.reshape(-1) if axis is None else x
    return gt.repeat_interleave(flat, repeats, dim=axis or 0)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """`x` in another shape.

    Raises:
        ValueError: `copy=False`, which cannot be promised.
    """
    if copy is False:
        return x.view(shape)
    out = gt.reshape(x, shape)
    return out.clone() if copy else out


def roll(x: Tensor, /, shift: Axis, *, axis: Axis | None = None) -> Tensor:
    """`x` rotated by `shift` positions, along `axis` or flat."""
    if axis is None:
        return gt.roll(x, shift)
    return gt.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: Axis) -> Tensor:
    """`x` without the dimensions `axis`, each of size 1.

    Raises:
        ValueError: one has another size.
    """
    for one in axes(axis, x.ndim):
        if x.shape[one] != 1:
            raise ValueError(f"squeeze(): axis {one} has {x.shape[one]} elements, not 1")
    return gt.squeeze(x, axes(axis, x.ndim))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The arrays joined along a new dimension at `axis`."""
    return gt.stack(list(arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """`x` repeated as a whole along each dimension."""
    return gt.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of `x` along `axis`, without that dimension."""
    return tuple(gt.unbind(x, axis))
