"""The pruning methods: their choices of elements, or channels, to set to zero."""

from __future__ import annotations

import numbers
from abc import abstractmethod
from typing import cast

import gt
from gt._core import Tensor
from gt.nn.utils.pruning_base import BasePruningMethod

Amount = int | float


class Identity(BasePruningMethod):
    """Prunes nothing, but makes the mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:  # noqa: ARG002
        return default_mask


class _Share(BasePruningMethod):
    """Base of methods that prune a number or a fraction of the elements, or channels."""

    def __init__(self, amount: Amount) -> None:
        self.amount: Amount = _checked_amount(amount)

    def _count(self, size: int) -> int:
        """Number of elements to prune out of `size`."""
        if isinstance(self.amount, float):
            return round(self.amount * size)
        if self.amount > size:
            raise ValueError(
                f"amount={self.amount} should be smaller than the number of parameters to "
                f"prune={size}"
            )
        return self.amount


class _Unstructured(_Share):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = self._count(t.numel())
        mask = default_mask.clone()
        if count == 0:
            return mask
        _, places = self._importance(t).reshape(-1).topk(count, largest=False)
        flat = mask.reshape(-1).clone()
        flat[places] = 0
        return flat.reshape(mask.shape)

    @abstractmethod
    def _importance(self, t: Tensor) -> Tensor:
        """Importance of each element; the least important are pruned."""


class RandomUnstructured(_Unstructured):
    """Prunes elements at random.

    Args:
        amount: number, or fraction.
    """

    def _importance(self, t: Tensor) -> Tensor:
        return gt.rand_like(t)


class L1Unstructured(_Unstructured):
    """Prunes the elements with the smallest absolute values.

    Args:
        amount: number, or fraction.
    """

    def _importance(self, t: Tensor) -> Tensor:
        return t.abs()


class _Structured(_Share):
    PRUNING_TYPE = "structured"
    dim: int

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. "
                f"Found tensor of shape {t.shape} with {t.ndim} dims"
            )
        if self.dim >= t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.shape[self.dim]
        count = self._count(size)
        if count == 0:
            return default_mask
        _, places = self._importance(t).topk(size - count)
        channels = gt.zeros(size, dtype=t.dtype)
        channels[places] = 1
        shape = [1] * t.ndim
        shape[self.dim] = size
        return channels.reshape(shape) * default_mask.to(t.dtype)  # [.., size, ..] * t's shape

    @abstractmethod
    def _importance(self, t: Tensor) -> Tensor:
        """Importance of each channel; the least important are pruned."""


class RandomStructured(_Structured):
    """Prunes channels at random.

    Args:
        amount: number, or fraction.
        dim: the dimension whose indices are the channels.
    """

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _importance(self, t: Tensor) -> Tensor:
        return gt.rand(t.shape[self.dim])


class LnStructured(_Structured):
    """Prunes the channels with the smallest norms.

    Args:
        amount: number, or fraction.
        n: the norm, as for `vector_norm`, or `fro` and `nuc` as for `matrix_norm`.
        dim: the dimension whose indices are the channels.
    """

    def __init__(self, amount: Amount, n: float | str, dim: int = -1) -> None:
        super().__init__(amount)
        self.n, self.dim = n, dim

    def _importance(self, t: Tensor) -> Tensor:
        others = [d for d in range(t.ndim) if d != self.dim % t.ndim]
        if self.n == "nuc":
            dims = others if len(others) == 2 else [-2, -1]
            return gt.linalg.matrix_norm(t, "nuc", dims)
        order = 2.0 if self.n == "fro" else cast("float", self.n)  # vector_norm refuses other names
        return gt.linalg.vector_norm(t, order, others)


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask is zero.

    Args:
        mask: a mask of the parameter's shape.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:  # noqa: ARG002
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match "
                f"self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


def _checked_amount(amount: object) -> Amount:
    """Checks a number of elements, or a fraction of them."""
    checked: Amount
    if isinstance(amount, numbers.Integral):
        checked = int(amount)
    elif isinstance(amount, numbers.Real):
        checked = float(amount)
    else:
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if checked < 0 or (isinstance(checked, float) and checked > 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a "
            "non-negative integer"
        )
    return checked
