"""BatchNorm1d, BatchNorm2d and GroupNorm."""

from __future__ import annotations

from typing import Any

import gt
from gt import signal
from gt._core import Tensor
from gt.nn import functional, init
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class _ChannelNorm(Module):
    """A weight and a bias for each channel."""

    weight: Parameter | None
    bias: Parameter | None

    def _make_affine(
        self, channels: int, dtype: gt.dtype | None, *, affine: bool, bias: bool
    ) -> None:
        for name, present in (("weight", affine), ("bias", affine and bias)):
            parameter = None
            if present:
                with signal.part("whole"):
                    parameter = Parameter(gt.empty(channels, dtype=dtype))
            self.register_parameter(name, parameter)

    def _reset_affine(self) -> None:
        with signal.part("whole"):
            if self.weight is not None:
                init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)


class _NormBase(_ChannelNorm):
    """A norm over the batch, channel by channel; over the whole batch even if it is cut.

    Args:
        num_features: Number of channels.
        eps: Added to the variance.
        momentum: Fraction by which running mean and variance move; None for the mean over all
            batches.
        affine: Whether weight and bias exist.
        track_running_stats: Whether eval() uses running values; otherwise it uses the batch's.
        device: Accepted and ignored.
        dtype: Dtype of parameters and running values.
        bias: Whether a bias exists beside the weight.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    _version = 2

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        del device
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._make_affine(num_features, dtype, affine=affine, bias=bias)
        tracked = track_running_stats
        with signal.part("whole"):
            mean = gt.zeros(num_features, dtype=dtype) if tracked else None
            var = gt.ones(num_features, dtype=dtype) if tracked else None
            count = gt.tensor(0, dtype=gt.int64) if tracked else None
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", var)
        self.register_buffer("num_batches_tracked", count)
        self._reset_affine()

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batches."""
        if self.running_mean is not None:
            self.running_mean.zero_()
        if self.running_var is not None:
            self.running_var.fill_(1)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight one, bias zero, and reset_running_stats()."""
        self.reset_running_stats()
        self._reset_affine()

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked
        moves = self.training and self.track_running_stats
        uses = not self.training or moves
        return functional.batch_norm(
            input,
            self.running_mean if uses else None,
            self.running_var if uses else None,
            self.weight,
            self.bias,
            training=self.training or self.running_mean is None,
            momentum=momentum,
            eps=self.eps,
        )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *rest: Any,  # noqa: ANN401 - the base class has them by name
    ) -> None:
        """States of version 1 have no num_batches_tracked, which is then unchanged."""
        tracked, key = self.num_batches_tracked, f"{prefix}num_batches_tracked"
        if local_metadata.get("version", 1) < 2 and tracked is not None:
            state_dict.setdefault(key, tracked.detach())
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Base for `isinstance`: norms over batches, not those over instances."""


class BatchNorm1d(_BatchNorm):
    """The norm of a batch [batch, channels] or [batch, channels, n], channel by channel."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.ndim}D input)")


class BatchNorm2d(_BatchNorm):
    """The norm of a batch [batch, channels, height, width], channel by channel."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim != 4:
            raise ValueError(f"expected 4D input (got {input.ndim}D input)")


class SyncBatchNorm(_BatchNorm):
    """The norm of a batch of two dimensions or more, which covers all workers anyway.

    Args:
        num_features: Number of channels.
        eps: Added to the variance.
        momentum: Fraction by which running mean and variance move.
        affine: Whether weight and bias exist.
        track_running_stats: Whether eval() uses running values.
        process_group: Accepted and ignored.
        device: Accepted and ignored.
        dtype: Dtype of parameters and running values.
        bias: Whether a bias exists beside the weight.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: object = None,
        device: object = None,
        dtype: gt.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: object = None) -> Module:
        """`module` unchanged: its norms cover the whole batch already."""
        del process_group
        return module

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")


class GroupNorm(_ChannelNorm):
    """A norm over groups of channels, for each element of the batch separately.

    Args:
        num_groups: Number of groups of equally many channels.
        num_channels: Number of channels.
        eps: Added to the variance.
        affine: Whether weight and bias exist.
        device: Accepted and ignored.
        dtype: Dtype of weight and bias.
        bias: Whether a bias exists beside the weight.

    Raises:
        ValueError: The groups do not divide the channels.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        del device
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._make_affine(num_channels, dtype, affine=affine, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight one, bias zero."""
        self._reset_affine()

    def forward(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
