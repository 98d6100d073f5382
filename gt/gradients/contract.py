"""Gradients of products: products of the result's gradient with the other operand."""

import math

from gt._core import Tensor
from gt.gradients.rules import Shape, gradient, sum_to

gradient(
    "matmul",
    self=lambda g, s: matmul_left(g, s.shape_of("self"), s.other),
    other=lambda g, s: matmul_right(g, s.self, s.shape_of("other")),
)
gradient(
    "linear",
    input=lambda g, s: linear_input(g, s.weight),
    weight=lambda g, s: linear_weight(g, s.input, s.shape_of("weight")),
    bias=lambda g, s: sum_to(g, s.shape_of("bias")),
)


def linear_input(g: Tensor, weight: Tensor) -> Tensor:
    return g @ weight if weight.ndim == 2 else g.reshape((*g.shape, 1)) * weight  # -> [..., k]


def linear_weight(g: Tensor, x: Tensor, shape: Shape) -> Tensor:
    if len(shape) == 1:  # a vector: each output is a number
        return (flat(x).mT @ g.reshape((math.prod(g.shape), 1))).reshape(shape)
    return flat(g).mT @ flat(x)  # [n, m] @ [m, k] -> [n, k]


def flat(x: Tensor) -> Tensor:
    """All but the last dimension as one."""
    rows = math.prod(x.shape[:-1])
    return x if x.ndim == 2 else x.reshape((rows, x.shape[-1]))  # [..., k] -> [m, k]


def matrices(g: Tensor, left: Shape, right: Shape) -> Tensor:
    """A product's gradient with the dimensions back that a vector operand had lost."""
    if len(left) == 1 and len(right) == 1:
        return g.reshape((1, 1))  # [] -> [m=1, n=1]
    if len(left) == 1:
        return g.reshape((*g.shape[:-1], 1, g.shape[-1]))  # [..., n] -> [..., 1, n]
    return g.reshape((*g.shape, 1)) if len(right) == 1 else g  # [..., m] -> [..., m, 1]


def matmul_left(g: Tensor, left: Shape, right: Tensor) -> Tensor:
    g = matrices(g, left, right.shape)
    columns = right.reshape((right.shape[0], 1)) if right.ndim == 1 else right
    if len(left) == 1:
        return sum_to(g @ columns.mT, (1, left[0])).reshape(left)
    return sum_to(g @ columns.mT, left)


def matmul_right(g: Tensor, left: Tensor, right: Shape) -> Tensor:
    g = matrices(g, left.shape, right)
    rows = left.reshape((1, left.shape[0])) if left.ndim == 1 else left
    if len(right) <= 2 and g.ndim == rows.ndim:
        return (flat(rows).mT @ flat(g)).reshape(right)  # the batch is summed by the product
    return sum_to(rows.mT @ g, right)
