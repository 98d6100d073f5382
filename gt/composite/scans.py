"""Running products, and what undoes running sums."""

import gt
from gt import _core
from gt._core import Tensor, call
from gt.composite.common import Method, slice_dim, wrap
from gt.errors import ShapeError


def cumprod(self: Tensor, dim: int, *, dtype: _core.dtype | None = None) -> Tensor:
    """Products of all elements up to each one along `dim`.

    Each step doubles how many factors stand in an element, so that n of them take log2(n) products
    (in another order than PyTorch's, which shows in the last digits).

    Args:
        dim: Along which dimension.
        dtype: Of the result; whole numbers become int64 without it.
    """
    place = wrap(dim, self.ndim)
    target = dtype or (self.dtype if self.dtype.is_floating_point else gt.int64)
    out = self.to(target)
    if self.ndim == 0:
        return out.clone()
    if target in (gt.float16, gt.bfloat16):
        out = out.float()
    size, done = self.shape[place], 1
    if size < 2:
        return out.to(target).clone()
    while done < size:
        rest = slice_dim(out, place, done, size - done) * slice_dim(out, place, 0, size - done)
        out = call("cat", slice_dim(out, place, 0, done), rest, dim=place)
        done *= 2
    return out.to(target)


def diff(
    self: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Each element less the one before along `dim`, `n` times.

    Args:
        n: How many times; 0 is the tensor itself, without prepend and append.
        dim: Along which dimension.
        prepend: What stands before the first element.
        append: What stands behind the last one.

    Raises:
        ShapeError: A number without dimensions, or a negative `n`.
    """
    if self.ndim == 0:
        raise ShapeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise ShapeError(f"order must be non-negative but got {n}")
    place = wrap(dim, self.ndim)
    if n == 0:
        return self.clone()
    parts = [part for part in (prepend, self, append) if part is not None]
    out = gt.cat(parts, dim=place) if len(parts) > 1 else self
    for _ in range(min(n, out.shape[place])):
        rest = out.shape[place] - 1
        later, before = slice_dim(out, place, 1, rest), slice_dim(out, place, 0, rest)
        out = later.logical_xor(before) if out.dtype == gt.bool else later - before
    return out


METHODS: dict[str, Method] = {
    "cumprod": cumprod,
    "diff": diff,
}
