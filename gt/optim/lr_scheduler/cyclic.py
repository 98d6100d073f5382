"""Rates that oscillate between two bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from gt.optim.factors import Factor
from gt.optim.lr_scheduler.base import LRScheduler, assign
from gt.optim.lr_scheduler.cycle import listed
from gt.optim.optimizer import Group, Optimizer


class CyclicLR(LRScheduler):
    """The rate moves from base_lr up to max_lr and back; the momentum moves the other way.

    Args:
        optimizer: The optimizer whose rates are set.
        base_lr: The smallest rate; a list has one for each group.
        max_lr: The largest rate of the first cycle.
        step_size_up: Number of steps in each rise.
        step_size_down: Number of steps in each fall; that of the rise if not given.
        mode: `triangular`; `triangular2` halves the height in each cycle; `exp_range` multiplies it
            by `gamma` in each step.
        gamma: Factor for `exp_range`.
        scale_fn: Function that gives the height, by `scale_mode`, in place of `mode`.
        scale_mode: Argument of `scale_fn`: the number of the `cycle` or of the step (`iterations`).
        cycle_momentum: Whether the momentum (Adam: the first beta) moves between the two below.
        base_momentum: The smallest momentum, at the largest rate.
        max_momentum: The largest momentum.
        last_epoch: Epoch at which to continue.

    Raises:
        ValueError: An option that PyTorch also refuses.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        count = len(optimizer.param_groups)
        rates = listed("base_lr", base_lr, count)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                assign(group, "lr", rate)
        self.max_lrs = listed("max_lr", max_lr, count)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma, self._scale_fn = mode, gamma, scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = rates

    def _start_momentum(
        self,
        optimizer: Optimizer,
        base_momentum: float | Sequence[float],
        max_momentum: float | Sequence[float],
        last_epoch: int,
    ) -> None:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError(
                "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        count = len(optimizer.param_groups)
        self.use_beta1 = "betas" in optimizer.defaults
        self.base_momentums = listed("base_momentum", base_momentum, count)
        self.max_momentums = listed("max_momentum", max_momentum, count)
        if last_epoch == -1:
            groups = zip(
                optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            )
            for group, least, most in groups:
                self._set_momentum(group, most)
                group["base_momentum"], group["max_momentum"] = least, most

    def _set_momentum(self, group: Group, value: Factor) -> None:
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def scale_fn(self, x: float) -> float:
        """The height of a cycle, or at a step; 1 for the first."""
        if self._scale_fn is not None:
            return self._scale_fn(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / (2.0 ** (x - 1)) if self.mode == "triangular2" else float(self.gamma**x)

    def get_lr(self) -> list[Factor]:
        """The rates of this step; also sets the momentum, as in PyTorch."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        part = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            )
            for group, least, most in bounds:
                self._set_momentum(group, most - (most - least) * part * scale)
        bases = zip(self.base_lrs, self.max_lrs, strict=True)
        return [base + (most - base) * part * scale for base, most in bases]

    def state_dict(self) -> dict[str, Any]:
        """The attributes except the optimizer and a user's function."""
        return {name: x for name, x in super().state_dict().items() if name != "_scale_fn"}
