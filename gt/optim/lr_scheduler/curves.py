"""Schedules that are one curve."""

from __future__ import annotations

import math
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gt.optim.factors import Factor
from gt.optim.lr_scheduler.base import LRScheduler
from gt.optim.optimizer import Optimizer

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


class LambdaLR(LRScheduler):
    """base rate * lr_lambda(epoch).

    Args:
        optimizer: The optimizer whose rates are set.
        lr_lambda: One function, or one for each group.
        last_epoch: Epoch at which to continue.
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

    def get_lr(self) -> list[Factor]:
        pairs = zip(self.lr_lambdas, self.base_lrs, strict=True)
        return [base * factor(self.last_epoch) for factor, base in pairs]

    def state_dict(self) -> dict[str, Any]:
        """The attributes except the optimizer; of lr_lambda objects their attributes, as in
        PyTorch.
        """
        states = [
            None if isinstance(factor, _FUNCTIONS) else dict(factor.__dict__)
            for factor in self.lr_lambdas
        ]
        return {**super().state_dict(), "lr_lambdas": states}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state that state_dict() returned; functions do not change."""
        entries = dict(state_dict)
        for factor, saved in zip(self.lr_lambdas, entries.pop("lr_lambdas", ()), strict=False):
            if saved is not None:
                factor.__dict__.update(saved)
        super().load_state_dict(entries)


class MultiplicativeLR(LambdaLR):
    """The former rate * lr_lambda(epoch); arguments as LambdaLR's."""

    def get_lr(self) -> list[Factor]:
        rates = self._current()
        if self._is_initial:
            return rates
        pairs = zip(self.lr_lambdas, rates, strict=True)
        return [rate * factor(self.last_epoch) for factor, rate in pairs]


class StepLR(LRScheduler):
    """The rate times gamma every step_size epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Factor]:
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._current()
        return [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list[Factor]:
        factor = self.gamma ** (self.last_epoch // self.step_size)
        return [base * factor for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """The rate times gamma at each of the milestones; a repeated one counts repeatedly."""

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Factor]:
        passed = self.milestones[self.last_epoch]
        return [rate * self.gamma**passed for rate in self._current()]

    def _get_closed_form_lr(self) -> list[Factor]:
        return self._after(self.last_epoch)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state that state_dict() returned, here or in PyTorch."""
        super().load_state_dict(state_dict)
        self.milestones = Counter(self.milestones)  # files store it as a plain dictionary

    def _after(self, epoch: int) -> list[Factor]:
        """The rates after all milestones up to this epoch."""
        passed = bisect_right(sorted(self.milestones.elements()), epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The rate times factor for the first total_iters epochs.

    Args:
        optimizer: The optimizer whose rates are set.
        factor: Factor from 0 to 1.
        total_iters: Epoch from which the rate is the base rate again.
        last_epoch: Epoch at which to continue.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Factor]:
        rates = self._current()
        if self.last_epoch == 0:
            return [rate * self.factor for rate in rates]
        if self.last_epoch != self.total_iters:
            return rates
        return [rate * (1.0 / self.factor) for rate in rates]

    def _get_closed_form_lr(self) -> list[Factor]:
        over = self.last_epoch >= self.total_iters
        factor = self.factor + over * (1 - self.factor)
        return [base * factor for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """From the base rate to 0 in total_iters epochs, as (1 - epoch / total_iters) ** power."""

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Factor]:
        rates, total = self._current(), self.total_iters
        if self._is_initial or self.last_epoch > total:
            return rates
        rest = 1.0 - self.last_epoch / total
        before = 1.0 - (self.last_epoch - 1) / total
        return [rate * (rest / before) ** self.power for rate in rates]

    def _get_closed_form_lr(self) -> list[Factor]:
        rest = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * rest**self.power for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """The rate times gamma every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Factor]:
        if self._is_initial:
            return self._current()
        return [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list[Factor]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class LinearLR(LRScheduler):
    """A factor that moves from start_factor to end_factor in total_iters epochs.

    Args:
        optimizer: The optimizer whose rates are set.
        start_factor: Factor above 0, at most 1.
        end_factor: Factor from 0 to 1.
        total_iters: Number of epochs to end_factor.
        last_epoch: Epoch at which to continue.
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

    def get_lr(self) -> list[Factor]:
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._current()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        gained = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * gained
        return [rate * (1.0 + gained / before) for rate in self._current()]

    def _get_closed_form_lr(self) -> list[Factor]:
        gained = (self.end_factor - self.start_factor) * min(self.total_iters, self.last_epoch)
        factor = self.start_factor + gained / self.total_iters
        return [base * factor for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From the base rate to eta_min along half a cosine in T_max epochs, and back.

    Args:
        optimizer: The optimizer whose rates are set.
        T_max: Number of epochs from the largest to the smallest rate.
        eta_min: The smallest rate.
        last_epoch: Epoch at which to continue.
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

    def get_lr(self) -> list[Factor]:
        """The rates by recurrence, so that a rate changed by the program keeps its change, as in
        PyTorch.
        """
        epoch, low, rates = self.last_epoch, self.eta_min, self._current()
        if self._is_initial:
            return rates
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            lift = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - low) * lift for base, rate in zip(self.base_lrs, rates, strict=True)
            ]
        now = 1 + math.cos(math.pi * epoch / self.T_max)
        before = 1 + math.cos(math.pi * (epoch - 1) / self.T_max)
        return [now / before * (rate - low) + low for rate in rates]

    def _get_closed_form_lr(self) -> list[Factor]:
        now = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * now for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the base rate to eta_min along half a cosine, and at once back to the base rate.

    Args:
        optimizer: The optimizer whose rates are set.
        T_0: Number of epochs to the first restart.
        T_mult: Ratio of the lengths of successive rounds.
        eta_min: The smallest rate.
        last_epoch: Epoch at which to continue.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 (PyTorch's name)
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.T_cur: float = last_epoch
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        """Advance by one epoch, or start the next round, and set the rates.

        Args:
            epoch: the epoch to go to: `epoch + batch / batches` for rates that follow each batch.

        Raises:
            ValueError: the epoch is negative.
        """
        if epoch is None:
            self._go_on()
        elif epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        else:
            self._go_to(epoch)
        self._set(self.get_lr())

    def _go_on(self) -> None:
        if self.last_epoch < 0:
            self.T_cur = 0
        else:
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        self.last_epoch += 1

    def _go_to(self, epoch: float) -> None:
        rounds = 0
        if epoch >= self.T_0 and self.T_mult > 1:
            rounds = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        if self.T_mult > 1:
            before = self.T_0 * (self.T_mult**rounds - 1) / (self.T_mult - 1)
            self.T_cur, self.T_i = epoch - before, self.T_0 * self.T_mult**rounds
        else:
            self.T_cur = epoch % self.T_0
        self.last_epoch = math.floor(epoch)

    def get_lr(self) -> list[Factor]:
        now = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * now for base in self.base_lrs]
