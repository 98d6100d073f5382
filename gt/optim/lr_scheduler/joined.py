"""Schedules one after the other, and several at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from gt.optim.lr_scheduler.base import LRScheduler
from gt.optim.optimizer import Optimizer


class SequentialLR(LRScheduler):
    """Schedules one after the other: a warm-up, say, and then a decay.

    Args:
        optimizer: Whose groups; all schedules are of this optimizer.
        schedulers: In their order.
        milestones: The epochs at which the second, the third, ... begins.
        last_epoch: Where to go on.

    Raises:
        ValueError: No schedules, one of another optimizer, or milestones that do not fit.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler, but got none.")
        for place, one in enumerate(schedulers):
            if one.optimizer is not optimizer:
                raise ValueError(
                    f"SequentialLR expects all schedulers to belong to the same optimizer, but got "
                    f"scheduler {type(one).__name__} at index {place} that belongs to another one."
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "SequentialLR expects number of schedulers provided to be one more than the number "
                f"of milestone points, but got {len(schedulers)} schedulers and "
                f"{len(milestones)} milestones."
            )
        self.optimizer = optimizer
        self.last_epoch = last_epoch + 1
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        # Each of them has set its first rates when it was made; only those of the first count.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        self.undo()
        self._schedulers[0].start()
        self._last_lr = self._schedulers[0].get_last_lr()

    def undo(self) -> None:
        """Take back the first step of each of them."""
        for one in self._schedulers:
            if isinstance(one, SequentialLR):
                one.undo()
            else:
                one.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Go on by one, in the next schedule where its milestone is reached."""
        self.last_epoch += 1
        place = bisect_right(self._milestones, self.last_epoch)
        now = self._schedulers[place]
        if place and self._milestones[place - 1] == self.last_epoch:
            now.restart()
        else:
            now.step()
        self._last_lr = now.get_last_lr()

    def restart(self) -> None:
        """The first schedule again, from its start."""
        self.last_epoch = 0
        self._schedulers[0].restart()
        self._last_lr = self._schedulers[0].get_last_lr()

    def start(self) -> None:
        """The first step of the first of them."""
        self._schedulers[0].start()
        self._last_lr = self._schedulers[0].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer; the schedules by their own state."""
        state = super().state_dict()
        return {**state, "_schedulers": [one.state_dict() for one in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what state_dict() gave."""
        entries = dict(state_dict)
        for one, saved in zip(self._schedulers, entries.pop("_schedulers"), strict=True):
            one.load_state_dict(saved)
        self.__dict__.update(entries)


class ChainedScheduler(LRScheduler):
    """Schedules that all step each time, each on the rates that the one before it set.

    Args:
        schedulers: In their order.
        optimizer: Whose groups; None is that of the first.

    Raises:
        ValueError: No schedules, or one of another optimizer.
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if not schedulers:
            raise ValueError(
                "ChainedScheduler expects at least one scheduler to be chained, "
                "but got no scheduler."
            )
        self.optimizer = optimizer or schedulers[0].optimizer
        for place, one in enumerate(schedulers):
            if one.optimizer is not self.optimizer:
                raise ValueError(
                    "ChainedScheduler expects all schedulers to belong to the same optimizer, but "
                    f"got scheduler {type(one).__name__} at index {place} has {one.optimizer}, "
                    f"which is different from {type(self.optimizer).__name__}."
                )
        self._schedulers = list(schedulers)
        self._last_lr = self._current()

    def step(self) -> None:  # type: ignore[override]
        """Go on by one, in all of them."""
        for one in self._schedulers:
            one.step()
        self._last_lr = self._current()

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer; the schedules by their own state."""
        state = super().state_dict()
        return {**state, "_schedulers": [one.state_dict() for one in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what state_dict() gave."""
        entries = dict(state_dict)
        for one, saved in zip(self._schedulers, entries.pop("_schedulers"), strict=True):
            one.load_state_dict(saved)
        self.__dict__.update(entries)
