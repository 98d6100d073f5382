"""Error words of a device: they tell that values may be wrong after a collective that did not end.

A kernel that waited in vain leaves its result as it was, and the work queued behind it computes on.
So two words in the device's memory accompany the values: such a kernel sets the first; a worker
that has read memory of a worker with either word set sets its second. Values that leave the worker
reach the host after both words, so a look at the host's copy of them is enough, and waits for
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gt.worker.device import BorrowedBuffer, Device

_OWN, _READ = 0, 1
# Members of a group that a word can tell apart.
_RANKS_MAX = 8


class LostError(ConnectionError):
    """All values of this worker may depend on data that never came."""


class DeviceErrors:
    """Error words of one worker, from one loss to the next.

    Args:
        device: the device that holds them.
        timeout_seconds: time for which its kernels wait for others.
    """

    def __init__(self, device: Device, timeout_seconds: float) -> None:
        self.words = device.zeros(2, torch.int32)
        self._device, self._seconds = device, timeout_seconds
        self._seen = device.seen(2)
        # Members of each group, at the group's number.
        self._members: list[list[int]] = []

    def offered(self) -> BorrowedBuffer | None:
        """Location of the words for other workers."""
        exported = self._device.export(self.words)
        return exported and BorrowedBuffer(*exported, self.words.nbytes)

    def base(self, members: list[int]) -> int:
        """Registers one more group; its kernels report an error as the returned number + 1 + a
        place.
        """
        self._members.append(members)
        return _RANKS_MAX * (len(self._members) - 1)

    def show_own(self) -> None:
        """Copies this worker's word to the host; called within the queue of kernels, behind a
        kernel.
        """
        self._show(_OWN)

    def read(self, words: Iterable[tuple[int, int]]) -> None:
        """Reads other members' words; called within the queue that reads, before the results are
        used.

        Args:
            words: of other members, by the opened allocation and the first byte there.
        """
        for opened, start in words:
            theirs = self.words.new_empty(1, 2)
            self._device.read(opened, start, theirs.nbytes, theirs)
            torch.maximum(self.words[_READ], theirs.ne(0).any(), out=self.words[_READ])
        self._show(_READ)

    def check(self) -> None:
        """Raises LostError if a word is set and values behind it have come to the host."""
        own, read = self._seen.tolist()
        if own:
            group, place = divmod(own - 1, _RANKS_MAX)
            raise LostError(
                f"worker {self._members[group][place]} has not come to a collective on the devices "
                f"within {self._seconds:g} s; what this worker holds may follow from it"
            )
        if read:
            raise LostError(
                "a worker has not come to a collective on the devices, and what this worker has "
                "read from another may follow from it"
            )

    def is_set(self) -> bool:
        """True if `check` raises."""
        return any(self._seen.tolist())

    def _show(self, which: int) -> None:
        one = slice(which, which + 1)
        self._seen[one].copy_(self.words[one], non_blocking=True)
