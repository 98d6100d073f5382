"""One rise and one fall of the rate, with the momentum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gt.optim.factors import Factor
from gt.optim.lr_scheduler.base import LRScheduler, copied
from gt.optim.optimizer import Group, Optimizer


class OneCycleLR(LRScheduler):
    """The rate rises to max_lr, then falls to almost nothing; the momentum moves the other way.

    Args:
        optimizer: The optimizer whose rates are set.
        max_lr: The largest rate; a list has one for each group.
        total_steps: Number of steps; else give epochs and steps_per_epoch.
        epochs: Number of epochs.
        steps_per_epoch: Number of steps in each.
        pct_start: Fraction of the steps in which the rate rises.
        anneal_strategy: `cos` or `linear`.
        cycle_momentum: Whether the momentum (Adam: the first beta) moves between the two below.
        base_momentum: The smallest momentum, at the largest rate.
        max_momentum: The largest momentum.
        div_factor: The first rate is max_lr / div_factor.
        final_div_factor: The last rate is the first / final_div_factor.
        three_phase: Whether the rate falls as it rose, and only then to almost nothing.
        last_epoch: Epoch at which to continue.

    Raises:
        ValueError: An option that PyTorch also refuses.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.total_steps = _total(total_steps, epochs, steps_per_epoch)
        if not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.anneal_strategy = anneal_strategy
        # The last step of each phase, and True for a phase that ends at the largest rate.
        up, end = pct_start * self.total_steps - 1, float(self.total_steps - 1)
        self.phases = [(up, "max_lr"), (2 * up, "initial_lr"), (end, "min_lr")]
        if not three_phase:
            del self.phases[1]
        self.momentum: str | None = None
        if cycle_momentum:
            names = [name for name in ("betas", "momentum") if name in optimizer.defaults]
            if not names:
                raise ValueError(
                    "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
                )
            self.momentum = names[0]
        if last_epoch == -1:
            count = len(optimizer.param_groups)
            largest = listed("max_lr", max_lr, count)
            bounds = zip(
                listed("max_momentum", max_momentum, count),
                listed("base_momentum", base_momentum, count),
                strict=True,
            )
            for group, rate, (most, least) in zip(
                optimizer.param_groups, largest, bounds, strict=True
            ):
                group["initial_lr"], group["max_lr"] = rate / div_factor, rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if self.momentum:
                    group["max_momentum"], group["base_momentum"] = most, least
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Factor]:
        """The rates of this step; also sets the momentum, as in PyTorch.

        Raises:
            ValueError: A step beyond total_steps.
        """
        if self.last_epoch > self.total_steps:
            raise ValueError(
                f"Tried to step {self.last_epoch} times. The specified number of total steps is "
                f"{self.total_steps}"
            )
        start, before = 0.0, "initial_lr"
        for end, after in self.phases:
            if self.last_epoch <= end or after == "min_lr":
                break
            start, before = end, after
        part = (self.last_epoch - start) / (end - start)
        groups = self.optimizer.param_groups
        for group in groups:
            self._set_momentum(group, before, after, part)
        return [self._between(group[before], group[after], part) for group in groups]

    def _set_momentum(self, group: Group, before: str, after: str, part: float) -> None:
        def at(rate: str) -> float:
            return float(group["base_momentum" if rate == "max_lr" else "max_momentum"])

        if self.momentum == "betas":
            group["betas"] = (self._between(at(before), at(after), part), *group["betas"][1:])
        elif self.momentum:
            group["momentum"] = self._between(at(before), at(after), part)

    def _between(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * part
        return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)


def _total(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    """Total number of steps.

    Raises:
        ValueError: No argument gives it, or one is not a positive integer.
    """
    if total_steps is not None:
        counts = {"total_steps": total_steps}
    elif epochs is not None and steps_per_epoch is not None:
        counts = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    else:
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    for name, value in counts.items():
        if value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(counts.values())


def listed(name: str, value: Factor | Sequence[Factor], count: int) -> list[Factor]:
    """A list with a value for each group; tensors are copied."""
    values = list(value) if isinstance(value, Sequence) else [value] * count
    if len(values) != count:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has "
            f"{len(values)} values, param_groups has {count}."
        )
    return [copied(one) for one in values]
