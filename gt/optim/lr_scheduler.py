"""Learning rates over time. Schedules set group["lr"]; values equal PyTorch's to rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gt.optim.optimizer import Optimizer


class LRScheduler:
    """The base of all schedules: `step()` once per epoch (or step) sets the groups' rates.

    Args:
        optimizer: Whose groups.
        last_epoch: Where to go on; -1 starts anew.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        for place, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    "param 'initial_lr' is not specified in param_groups"
                    f"[{place}] when resuming scheduler with last_epoch >= 0"
                )
        self.optimizer = optimizer
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._starting = True  # a schedule that goes on finds its rate in the groups
        self.step()
        self._starting = False

    def step(self) -> None:
        """Go on by one and set the rates."""
        self.last_epoch += 1
        for group, rate in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = rate
        self._last_lr = self._current()

    def get_lr(self) -> list[float]:
        """The rate of each group at last_epoch, from the rates before."""
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """The rates that the last step set."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what state_dict() gave."""
        self.__dict__.update(state_dict)

    def _current(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]


class LambdaLR(LRScheduler):
    """base rate * lr_lambda(epoch).

    Args:
        optimizer: Whose groups.
        lr_lambda: One function, or one per group.
        last_epoch: Where to go on.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(lambdas) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(lambdas)}")
        self.lr_lambdas = lambdas
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        pairs = zip(self.lr_lambdas, self.base_lrs, strict=True)
        return [base * factor(self.last_epoch) for factor, base in pairs]

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer and the functions."""
        return {name: value for name, value in super().state_dict().items() if name != "lr_lambdas"}


class StepLR(LRScheduler):
    """The rate times gamma every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self._starting or self.last_epoch % self.step_size:
            return self._current()
        return [rate * self.gamma for rate in self._current()]


class ExponentialLR(LRScheduler):
    """The rate times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self._starting:
            return self._current()
        return [rate * self.gamma for rate in self._current()]


class LinearLR(LRScheduler):
    """A factor that goes from start_factor to end_factor in total_iters epochs.

    Args:
        optimizer: Whose groups.
        start_factor: Above 0, at most 1.
        end_factor: 0 to 1.
        total_iters: After how many epochs the end is reached.
        last_epoch: Where to go on.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1.0:
            raise ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal "
                "to 1."
            )
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._current()]
        if self._starting or self.last_epoch > self.total_iters:
            return self._current()
        gained = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * gained
        return [rate * (1.0 + gained / before) for rate in self._current()]


class CosineAnnealingLR(LRScheduler):
    """From the base rate to eta_min along half a cosine in T_max epochs, and back.

    Args:
        optimizer: Whose groups.
        T_max: Epochs from the largest to the least rate.
        eta_min: The least rate.
        last_epoch: Where to go on.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,  # noqa: N803 (PyTorch's name)
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """By recurrence, so that a rate changed from outside keeps its change, as in PyTorch."""
        epoch, low, rates = self.last_epoch, self.eta_min, self._current()
        if self._starting:
            return rates
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            lift = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - low) * lift for base, rate in zip(self.base_lrs, rates, strict=True)
            ]
        now = 1 + math.cos(math.pi * epoch / self.T_max)
        before = 1 + math.cos(math.pi * (epoch - 1) / self.T_max)
        return [now / before * (rate - low) + low for rate in rates]
