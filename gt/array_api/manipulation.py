"""Shapes and places of elements, as the standard names their arguments."""

from collections.abc import Sequence

import gt
from gt._core import Tensor
from gt.array_api.dtypes import axes

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
    """With a dimension of one element at `axis`."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise IndexError(f"expand_dims(): axis {axis} of an array with {x.ndim} dimensions")
    return gt.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: Axis | None = None) -> Tensor:
    """Turned round along `axis`, or along all."""
    return gt.flip(x, axes(axis, x.ndim))


def moveaxis(x: Tensor, source: Axis, destination: Axis, /) -> Tensor:
    """With dimensions moved to other places."""
    return gt.moveaxis(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """With its dimensions in another order."""
    return gt.permute(x, axes)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element `repeats` times, along `axis` or flat."""
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
    """Moved round by `shift`, along `axis` or flat."""
    if axis is None:
        return gt.roll(x, shift)
    return gt.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: Axis) -> Tensor:
    """Without the dimensions `axis`, each of one element.

    Raises:
        ValueError: one of more elements.
    """
    for one in axes(axis, x.ndim):
        if x.shape[one] != 1:
            raise ValueError(f"squeeze(): axis {one} has {x.shape[one]} elements, not 1")
    return gt.squeeze(x, axes(axis, x.ndim))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Along a new dimension at `axis`."""
    return gt.stack(list(arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """`x` repeated as a whole along each dimension."""
    return gt.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Its parts along `axis`, which they do not have."""
    return tuple(gt.unbind(x, axis))
