"""Transforms of vectors and matrices."""

import math

import gt
from gt import Size, Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.operators import cholesky
from gt.distributions.transform import ByClass, Transform, at_least
from gt.distributions.transforms_of_numbers import clipped_sigmoid
from gt.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from gt.errors import InvalidValue
from gt.nn.functional import logsigmoid, pad, softplus


class SoftmaxTransform(ByClass):
    """y = softmax(x) over the last dimension; its inverse, log(y), is one of many."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Shape) -> Size:
        at_least(shape, 1)
        return Size(shape)

    def inverse_shape(self, shape: Shape) -> Size:
        at_least(shape, 1)
        return Size(shape)


class StickBreakingTransform(ByClass):
    """Vectors [n] to points of the simplex [n + 1]: each element takes a share of what is left."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        share = clipped_sigmoid(x - log_left(x))
        left = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        taken = y[..., :-1]
        left = (1 - taken.cumsum(-1)).clamp(min=gt.finfo(y.dtype).tiny)
        return taken.log() - left.log() + log_left(taken)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - log_left(x)
        return (logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Shape) -> Size:
        at_least(shape, 1)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Shape) -> Size:
        at_least(shape, 1)
        return Size((*shape[:-1], shape[-1] - 1))


def log_left(x: Tensor) -> Tensor:
    """log of n, n - 1, ... 1: with x = 0 each of n + 1 elements gets the same share."""
    return gt.arange(x.shape[-1], 0, -1, dtype=x.dtype).log()


class CorrCholeskyTransform(Transform):
    """Vectors [n (n - 1) / 2] to factors of correlation matrices [n, n] (Lewandowski and others).

    Below the diagonal each element takes a share tanh(x) of what its row has left of length 1.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = gt.finfo(x.dtype).eps
        share = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - share.square()).sqrt().cumprod(-1)
        unit = gt.eye(share.shape[-1], dtype=share.dtype)
        return (share + unit) * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = pad((1 - y.square().cumsum(-1))[..., :-1], [1, 0], value=1)
        share = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (share.log1p() - (-share).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = tril_matrix_to_vec(1 - y.square().cumsum(-1), diag=-2)
        slopes = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)  # of tanh
        return 0.5 * left.log().sum(-1) + slopes

    def forward_shape(self, shape: Shape) -> Size:
        at_least(shape, 1)
        n = round(math.sqrt(0.25 + 2 * shape[-1]) + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise InvalidValue("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Shape) -> Size:
        at_least(shape, 2)
        if shape[-2] != shape[-1]:
            raise InvalidValue("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class LowerCholeskyTransform(ByClass):
    """Matrices to lower triangles with a positive diagonal, by exp."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(ByClass):
    """Matrices to positive definite ones: L L' of the lower triangle L that they become."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))
