"""Norms of one channel or over neighbours, dropout of whole channels, and distances, as modules."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.nn import functional
from gt.nn.batchnorm import _BatchNorm, _NormBase
from gt.nn.module import Module
from gt.nn.normalization import Dropout


class BatchNorm3d(_BatchNorm):
    """The norm of a batch [batch, channels, depth, height, width], channel by channel."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != 5:
            raise ValueError(f"expected 5D input (got {input.ndim}D input)")


class _InstanceNorm(_NormBase):
    """The norm of each channel of each element; arguments as in BatchNorm2d, other defaults."""

    _spatial = 0

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: object = None,
        dtype: gt.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        dim = input.ndim - self._spatial - 1
        if self.affine and input.shape[dim] != self.num_features:
            raise ValueError(
                f"expected input's size at dim={dim} to match num_features "
                f"({self.num_features}), but got: {input.shape[dim]}."
            )
        normed = functional.instance_norm(
            input if dim else input.unsqueeze(0),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return normed if dim else normed.squeeze(0)

    def _check_input_dim(self, input: Tensor) -> None:
        least = self._spatial + 1
        if input.ndim not in (least, least + 1):
            raise ValueError(f"expected {least}D or {least + 1}D input (got {input.ndim}D input)")


class InstanceNorm1d(_InstanceNorm):
    """The norm of each channel of [batch, channels, n] or [channels, n]."""

    _spatial = 1


class InstanceNorm2d(_InstanceNorm):
    """The norm of each channel of [batch, channels, height, width] or without a batch."""

    _spatial = 2


class InstanceNorm3d(_InstanceNorm):
    """The norm of each channel of [batch, channels, depth, height, width] or without a batch."""

    _spatial = 3


class LocalResponseNorm(Module):
    """A norm over neighbouring channels; arguments as in nn.functional.local_response_norm."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """LocalResponseNorm as in Torch7, for [batch, channels, height, width].

    As in PyTorch, sums for the second and later channels never drop the first channel. Its gradient
    is that of this computation, unlike PyTorch's.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead.")
        reach = int((self.size - 1) / 2 + 1)
        places = range(input.shape[1])
        counted = [
            [float(j < c + reach and (j > c - reach or j == 0 or c <= reach)) for j in places]
            for c in places
        ]
        window = gt.tensor(counted, dtype=input.dtype)  # [channels, channels]
        sums = gt.einsum("cj,bjhw->bchw", window, input.square())
        return input * (sums * (self.alpha / self.size) + self.k) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class Dropout1d(Dropout):
    """In training, zeroes channels of [batch, channels, n] or [channels, n]."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """In training, zeroes channels of [batch, channels, height, width]."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(Dropout):
    """In training, zeroes channels of [batch, channels, depth, height, width]."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(Dropout):
    """In training, sets elements to selu's floor; mean and variance stay."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(Dropout):
    """AlphaDropout of whole channels of [batch, channels, ...]."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.feature_alpha_dropout(input, self.p, self.training)


class CosineSimilarity(Module):
    """The cosine of the angle between two inputs along `dim`; norms below `eps` count as `eps`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
