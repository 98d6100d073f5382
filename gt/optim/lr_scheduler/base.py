"""Base of all learning-rate schedules."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from gt._core import Tensor
from gt.optim.factors import Factor
from gt.optim.optimizer import Group, Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use `scheduler.step()` to step the scheduler. During the deprecation, if "
    "epoch is different from None, the closed form is used instead of the new chainable form, "
    "where available."
)
_ORDER_WARNING = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, "
    "you should call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  "
    "Failure to do this will result in PyTorch skipping the first value of the learning rate "
    "schedule. See more details at "
    "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
)


def assign(group: Group, option: str, value: Factor) -> None:
    """Set an option of a group; a tensor keeps its identity and gets the new value."""
    if isinstance(group[option], Tensor):
        group[option].fill_(value.reshape(()) if isinstance(value, Tensor) else value)
    else:
        group[option] = value


def copied(value: Factor) -> Factor:
    """A copy of a value, independent of later writes into a tensor."""
    return value.clone() if isinstance(value, Tensor) else value


class LRScheduler:
    """The base of all schedules: `step()` once for each epoch (or step) sets the groups' rates.

    Args:
        optimizer: The optimizer whose rates are set.
        last_epoch: Epoch at which to continue; -1 starts anew.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        for place, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    "param 'initial_lr' is not specified in param_groups"
                    f"[{place}] when resuming scheduler with last_epoch >= 0"
                )
        self.optimizer = optimizer
        self.base_lrs = [copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.start()

    def step(self, epoch: int | None = None) -> None:
        """Advance by one epoch and set the rates.

        Args:
            epoch: the epoch to go to instead; PyTorch deprecates it.
        """
        if self._step_count == 1 and not self.optimizer._opt_called:  # noqa: SLF001 - one family
            warnings.warn(_ORDER_WARNING, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, stacklevel=2)
        self._update(epoch)

    def _update(self, epoch: int | None) -> None:
        self._get_lr_called_within_step = True
        try:
            self._set(self._rates_at(epoch))
        finally:
            self._get_lr_called_within_step = False

    def _rates_at(self, epoch: int | None) -> list[Factor]:
        """The rates of this epoch, or of the next one, to which the schedule advances."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        return self.get_lr() if epoch is None else self._get_closed_form_lr()

    def _set(self, rates: list[Factor]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            assign(group, "lr", rate)
        self._last_lr = self._current()

    def _get_closed_form_lr(self) -> list[Factor]:
        """The rates of last_epoch by a formula; without a formula, from the rates before."""
        return self.get_lr()

    def get_lr(self) -> list[Factor]:
        """The rate of each group at last_epoch, from the rates before."""
        raise NotImplementedError

    def restart(self) -> None:
        """Restart at epoch 0, with this schedule's initial rates."""
        self._update(0)

    def undo(self) -> None:
        """Undo the first step, which another schedule makes instead."""
        self.last_epoch -= 1

    def get_last_lr(self) -> list[Factor]:
        """The rates set by the last step."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """The schedule's attributes except the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state that state_dict() returned."""
        self.__dict__.update(state_dict)

    def _current(self) -> list[Factor]:
        return [copied(group["lr"]) for group in self.optimizer.param_groups]

    def start(self) -> None:
        """Make the first step: a schedule that continues finds its rate in the groups."""
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False
