"""A rate that follows a metric."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal, SupportsFloat

from gt.optim.lr_scheduler.base import EPOCH_DEPRECATION_WARNING, LRScheduler, assign
from gt.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """The rate times factor once a metric has not improved for `patience` epochs.

    Args:
        optimizer: The optimizer whose rates are set.
        mode: Whether `min` or `max` is better.
        factor: Factor below 1.
        patience: Number of epochs without improvement that are tolerated.
        threshold: Smallest improvement that counts.
        threshold_mode: `rel` (a fraction of the best so far) or `abs`.
        cooldown: Number of epochs after a change that do not count.
        min_lr: The smallest rate; a list has one for each group.
        eps: Smallest change that is made.

    Raises:
        ValueError: A factor of 1 or more, or an unknown mode.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        count = len(optimizer.param_groups)
        listed = list(min_lr) if isinstance(min_lr, Sequence) else [min_lr] * count
        if len(listed) != count:
            raise ValueError(f"expected {count} min_lrs, got {len(listed)}")
        self.optimizer, self.min_lrs = optimizer, listed
        self.mode, self.threshold_mode = mode, threshold_mode
        self.factor, self.threshold, self.eps = factor, threshold, eps
        self.patience, self.cooldown = patience, cooldown
        self.last_epoch = 0
        self._last_lr = self._current()
        self._reset()

    def _reset(self) -> None:
        self.best = math.inf if self.mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0

    @property
    def in_cooldown(self) -> bool:
        """True if this epoch does not count."""
        return self.cooldown_counter > 0

    def step(  # type: ignore[override]
        self, metrics: SupportsFloat, epoch: int | None = None
    ) -> None:
        """Report the metric of an epoch that has ended.

        Args:
            metrics: A number, or a tensor with one element.
            epoch: The epoch, if it is not the next one (deprecated, as in PyTorch).
        """
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        now = float(metrics)
        if self._is_better(now):
            self.best, self.num_bad_epochs = now, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._current()

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            before = float(group["lr"])
            rate = max(before * self.factor, least)
            if before - rate > self.eps:
                assign(group, "lr", rate)

    def _is_better(self, now: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "abs":
            return sign * (now - self.best) > self.threshold
        return sign * (now - self.best * (1.0 + sign * self.threshold)) > 0
