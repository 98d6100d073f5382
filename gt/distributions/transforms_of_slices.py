"""Transforms that apply a transform of its own to each slice of one dimension."""

from collections.abc import Sequence

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.constraints import Constraint
from gt.distributions.transform import Transform
from gt.distributions.utils import lazy_property, sum_rightmost


class _Several(Transform):
    """Transforms of slices of the dimension `dim`."""

    transforms: list[Transform]
    dim: int

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) if cache_size else t for t in tseq]
        self.dim = dim

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    def _check(self, value: Tensor, name: str, shown: str, size: int, what: str) -> None:
        """PyTorch's errors for a dimension that is not there or has another size."""
        if not -value.ndim <= self.dim < value.ndim:
            raise AssertionError(
                f"dim {self.dim} out of range for {shown} with {value.ndim} dimensions"
            )
        have = value.shape[self.dim]
        if have != size:
            raise AssertionError(f"{name}.size({self.dim}) = {have} must equal {what} {size}")


class CatTransform(_Several):
    """Slices of `lengths` of one dimension, each by its transform.

    Args:
        tseq: the transforms.
        dim: the dimension.
        lengths: lengths of the slices; by default 1 each.
        cache_size: for each of them.
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(
                f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})"
            )

    @lazy_property
    def event_dim(self) -> int:
        """The largest event dimension among the transforms."""
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> int:
        """The size of the dimension."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _slices(self, value: Tensor, name: str, shown: str = "tensor") -> Sequence[Tensor]:
        self._check(value, name, shown, self.length, "length")
        return value.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._slices(x, "x"), strict=True)
        return gt.cat([t(part) for t, part in pairs], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._slices(y, "y"), strict=True)
        return gt.cat([t.inv(part) for t, part in pairs], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [
            sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
            for t, a, b in zip(
                self.transforms,
                self._slices(x, "x", "x"),
                self._slices(y, "y", "y"),
                strict=True,
            )
        ]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        if dim < 0:  # remains valid after events were summed
            return gt.cat(terms, dim)
        return gt.stack(terms).sum(0)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        """Domain of each transform in its slice."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        """Codomain of each transform in its slice."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Several):
    """The elements of one dimension, each by its transform.

    Args:
        tseq: the transforms.
        dim: the dimension.
        cache_size: for each of them.
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _slices(self, value: Tensor, name: str, shown: str = "tensor") -> Sequence[Tensor]:
        self._check(value, name, shown, len(self.transforms), "len(transforms)")
        return value.unbind(self.dim)

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._slices(x, "x"), strict=True)
        return gt.stack([t(part) for t, part in pairs], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._slices(y, "y"), strict=True)
        return gt.stack([t.inv(part) for t, part in pairs], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        triples = zip(
            self.transforms, self._slices(x, "x", "x"), self._slices(y, "y", "y"), strict=True
        )
        return gt.stack([t.log_abs_det_jacobian(a, b) for t, a, b in triples], self.dim)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        """Domain of each transform at its place."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        """Codomain of each transform at its place."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
