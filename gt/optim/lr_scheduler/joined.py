"""Schedules in sequence, and several at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from gt.optim.lr_scheduler.base import LRScheduler, assign
from gt.optim.lr_scheduler.plateau import ReduceLROnPlateau
from gt.optim.optimizer import Optimizer


class _Joined(LRScheduler):
    """Base of joined schedules of one optimizer; each one keeps its own state."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler]) -> None:
        for place, one in enumerate(schedulers):
            self._check(optimizer, place, one)
        self.optimizer = optimizer
        self._schedulers = schedulers

    def _check(self, optimizer: Optimizer, place: int, one: LRScheduler) -> None:
        name = type(self).__name__
        if isinstance(one, ReduceLROnPlateau):
            raise ValueError(  # noqa: TRY004 - PyTorch's class
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                "kwargs to be specified when calling `step`, but got one at index "
                f"{place} in the given schedulers sequence."
            )
        if one.optimizer is not optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got "
                f"scheduler {type(one).__name__} at index {place} has {one.optimizer}, which is "
                f"different from {type(optimizer).__name__}."
            )

    def undo(self) -> None:
        """Undo the first step of each of them; the own epoch does not change, as in PyTorch."""
        for one in self._schedulers:
            one.undo()

    def state_dict(self) -> dict[str, Any]:
        """The attributes except the optimizer; the schedules by their own state."""
        state = super().state_dict()
        return {**state, "_schedulers": [one.state_dict() for one in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state that state_dict() returned."""
        entries = dict(state_dict)
        for one, saved in zip(self._schedulers, entries.pop("_schedulers"), strict=True):
            one.load_state_dict(saved)
        self.__dict__.update(entries)


class SequentialLR(_Joined):
    """Schedules in sequence: a warm-up, say, and then a decay.

    Args:
        optimizer: The optimizer of all schedules.
        schedulers: The schedules, in order.
        milestones: The epochs at which the second, the third, ... begins.
        last_epoch: Epoch at which to continue.

    Raises:
        ValueError: No schedules, one of another optimizer, or milestones that do not match.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler, but got no scheduler."
            )
        super().__init__(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                f"the number of milestone points, but got number of schedulers {len(schedulers)} "
                f"and the number of milestones to be equal to {len(milestones)}"
            )
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        # Each schedule has set its initial rates when it was made; only those of epoch 0 count.
        for group in optimizer.param_groups:
            assign(group, "lr", group["initial_lr"])
        self.undo()
        now = schedulers[bisect_right(milestones, 0)]
        now.start()
        self._last_lr = now.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Advance by one epoch, in the next schedule if its milestone is reached."""
        self.last_epoch += 1
        place = bisect_right(self._milestones, self.last_epoch)
        now = self._schedulers[place]
        if place and self._milestones[place - 1] == self.last_epoch:
            now.restart()
        else:
            now.step()
        self._last_lr = now.get_last_lr()


class ChainedScheduler(_Joined):
    """Schedules that all step each time, each on the rates that the one before has set.

    Args:
        schedulers: The schedules, in order.
        optimizer: The optimizer; None for that of the first schedule.

    Raises:
        ValueError: No schedules, or one of another optimizer.
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, "
                "but got no scheduler."
            )
        super().__init__(optimizer or schedulers[0].optimizer, schedulers)
        self._last_lr = self._current()

    def step(self) -> None:  # type: ignore[override]
        """Advance all of them by one epoch."""
        for one in self._schedulers:
            one.step()
        self._last_lr = self._current()
