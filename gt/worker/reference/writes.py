"""Writes by index that combine several elements, for numpy: one element after the other."""

from __future__ import annotations

import numpy as np

from gt.worker.reference.values import Array, dtype_name, narrowed, wide_name, widened

_FUNCTIONS = {
    "sum": np.add,
    "mean": np.add,
    "prod": np.multiply,
    "amax": np.maximum,
    "amin": np.minimum,
}


def scatter_reduce(
    self: Array, index: Array, src: Array, dim: int, reduce: str, include_self: bool
) -> Array:
    """`self` with `src` combined along `dim` at `index`."""
    name = dtype_name(self)
    if self.ndim == 0:
        one, at, other = (x.reshape(1) for x in (self, index, src))
        return scatter_reduce(one, at, other, 0, reduce, include_self).reshape(())
    out: Array = widened(self).astype(wide_name(name))
    arriving: dict[tuple[int, ...], list[Array]] = {}
    source = widened(src)
    for place in np.ndindex(*index.shape):
        to = (*place[: dim % self.ndim], int(index[place]), *place[dim % self.ndim + 1 :])
        arriving.setdefault(to, []).append(source[place])
    for to, elements in arriving.items():
        parts = np.asarray([out[to], *elements] if include_self else elements)
        out[to] = _combined(parts, reduce)
    return narrowed(out, name)


def _combined(parts: Array, reduce: str) -> Array:
    value = np.asarray(_FUNCTIONS[reduce].reduce(parts, dtype=parts.dtype))
    if reduce != "mean":
        return value
    return value // len(parts) if value.dtype.kind in "iu" else value / len(parts)
