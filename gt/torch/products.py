"""Matrix products and their gradients: one or a few instructions for PyTorch's compositions.

PyTorch composes `linear` and `matmul` of transposes, views and `addmm`, each an operator of its own
in each pass; here they are one operator each way (`composites`). The formulas hold for GT's
tensors, and for PyTorch's if its autograd records them or a transform runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gt._core import Tensor
from gt.nn import functional as F

# A tensor of GT or of PyTorch.
Matrix = Any
Gradients = tuple[Matrix | None, ...]


def linear_backward(
    self: Matrix, grad_output: Matrix, weight: Matrix, output_mask: Sequence[bool]
) -> Gradients:
    """The gradients of input and weight, and of a bias [n], or one that PyTorch sums to
    its bias.
    """
    of_input = of_weight = of_bias = None
    grad, matrix = grad_output, weight
    if weight.ndim == 1:
        grad, matrix = grad_output.unsqueeze(-1), weight.unsqueeze(0)  # [..., n], [n, k]
    if output_mask[0]:
        of_input = grad @ _conjugate(matrix)
    if output_mask[1]:
        of_weight = (_rows(grad).mT @ _conjugate(_rows(self))).reshape(weight.shape)
    if output_mask[2]:
        leading = tuple(range(grad_output.ndim - 1))
        of_bias = grad_output.sum(leading) if leading else grad_output.clone()
    return of_input, of_weight, of_bias


def matmul_backward(grad: Matrix, self: Matrix, other: Matrix, mask: Sequence[bool]) -> Gradients:
    """The gradients of both factors, for any numbers of dimensions."""
    of_self = of_other = None
    left = self.unsqueeze(0) if self.ndim == 1 else self  # [..., m, k]
    right = other.unsqueeze(1) if other.ndim == 1 else other  # [..., k, n]
    if other.ndim == 1:
        grad = grad.unsqueeze(-1)
    if self.ndim == 1:
        grad = grad.unsqueeze(-2)  # [..., m, n]
    if mask[0]:
        of_self = _summed(grad @ _conjugate(right.mT), left).reshape(self.shape)
    if mask[1] and right.ndim == 2:
        of_other = (_conjugate(_rows(left)).mT @ _rows(grad)).reshape(other.shape)
    elif mask[1]:
        of_other = _summed(_conjugate(left.mT) @ grad, right)
    return of_self, of_other


def _rows(x: Matrix) -> Matrix:
    """All dimensions but the last as one: [..., k] -> [r, k]."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _conjugate(x: Matrix) -> Matrix:
    return x.conj() if x.is_complex() else x


def _summed(x: Matrix, like: Matrix) -> Matrix:
    """`x` summed over the dimensions that broadcasting added to `like`."""
    return x if x.shape == like.shape else x.sum_to_size(like.shape)


FUNCTIONS: dict[str, Callable[..., object]] = {
    "linear": F.linear,
    "linear_backward": linear_backward,
    "matmul": Tensor.matmul,
    "matmul_backward": matmul_backward,
}
