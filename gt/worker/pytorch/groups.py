"""Process groups of torch.distributed, made from the plan: for any workers, without a world.

A group is made from payloads that its members send over their own links (the dispatcher has
introduced them, so nobody else takes part): each sends the entries that it would put into a store,
and once all payloads have arrived the store is complete. The calls of a group stand in
torch_collectives.

Calls go out in the order of the payloads, which is the dispatcher's on every member. Only threads
of a limited life wait for other workers; the end of a call is polled.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Protocol

import torch
from torch.distributed import ProcessGroupGloo, Work
from torch.distributed.distributed_c10d import Store

from gt import _core
from gt.worker.pytorch.collectives import Group, Prepared

# Seconds for connecting: all members have sent by then, and threads that do nothing else wait.
CONNECT_SECONDS = 60
# Seconds after which the library gives a call up; twice that if the library does not. A member may
# compute for long before it makes its call.
CALL_SECONDS = 300
# Seconds for our own part: binding a socket, or asking for an id. It takes seconds only when a GPU
# wakes up.
PAYLOAD_SECONDS = 60
# Seconds between a broken connection and the report that its member is gone.
GRACE_SECONDS = 2.0
# Seconds for closing groups at the end of the process, which ends the rest.
CLOSE_SECONDS = 2.0
# Bytes of each of a payload's two numbers: the members that we know, and our rendezvous.
DIGEST_BYTES = 16
NONCE_BYTES = 8
# Limit of groups, each with a thread and connections; further meshes of a layout go on by bytes.
GROUPS_MAX = 64


class GroupError(ConnectionError):
    """An error of a group that cannot be used any more: a member is gone, or the network failed."""


class Engine(Protocol):
    """A library of collectives."""

    # True if the first member alone sends, and goes on without having received anything.
    first_sends: bool

    def connect(self, store: Store, place: int, size: int) -> Group:
        """Makes a group; waits for its other members, at most CONNECT_SECONDS."""

    def abort(self, group: Group) -> None:
        """Ends calls in flight, as far as the library can."""


class Gloo:
    """Groups of tensors in the host's memory, over TCP from and to one address.

    Args:
        host: This host's address at which the others reach it.
    """

    first_sends = False

    def __init__(self, host: str) -> None:
        self._host = host
        self._device: ProcessGroupGloo.Device | None = None

    def connect(self, store: Store, place: int, size: int) -> Group:
        if self._device is None:
            self._device = ProcessGroupGloo.create_device(hostname=self._host)
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001
        options._devices = [self._device]  # noqa: SLF001
        options._threads = 1  # noqa: SLF001
        options._timeout = timedelta(seconds=CONNECT_SECONDS)  # noqa: SLF001
        group = ProcessGroupGloo(store, place, size, options)
        group._set_default_timeout(timedelta(seconds=CALL_SECONDS))  # noqa: SLF001
        return group  # type: ignore[return-value]

    def abort(self, group: Group) -> None:
        """Does nothing, since Gloo cannot abort: a call that waits for a live member ends when that
        one closes.
        """


class Nccl:
    """Groups of tensors in one GPU's memory.

    Args:
        device: The GPU.
    """

    first_sends = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def connect(self, store: Store, place: int, size: int) -> Group:
        from torch.distributed import ProcessGroupNCCL

        torch.cuda.set_device(self._device)
        options = ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=CALL_SECONDS)  # noqa: SLF001
        group = ProcessGroupNCCL(store, place, size, options)
        group.eager_connect_single_device(self._device)
        return group  # type: ignore[return-value]

    def abort(self, group: Group) -> None:
        group.abort()


class RendezvousStore(Store):
    """A store that holds the entries that members have sent each other.

    Args:
        is_answered: True if our part ends only once we know the others' entries.
    """

    def __init__(self, *, is_answered: bool) -> None:
        super().__init__()
        self._is_answered = is_answered
        self._changed = threading.Condition()
        self._sent: dict[str, bytes] = {}
        self._known: dict[str, bytes] = {}
        # True once we have sent all that we can send before we know the others.
        self._has_sent = False
        self._is_over = False

    # Methods that torch calls, in the thread that connects.

    def set(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._sent[key] = self._known[key] = bytes(value)  # type: ignore[arg-type]
            self._has_sent |= not self._is_answered
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._known[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        del timeout  # the payloads' exchange has its own end
        with self._changed:
            if not self._are_known(keys):
                self._has_sent = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_over or self._are_known(keys))
            if not self._are_known(keys):
                raise GroupError(f"nobody has sent {keys}")

    def check(self, keys: list[str]) -> bool:
        with self._changed:
            return self._are_known(keys)

    def _are_known(self, keys: list[str]) -> bool:
        return all(key in self._known for key in keys)

    # Methods for the worker's thread.

    def entries(self) -> list[tuple[str, bytes]]:
        """The entries that the other members need."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_sent or self._is_over, PAYLOAD_SECONDS):
                raise GroupError("the group's library has not begun to connect")
            return list(self._sent.items())

    def receive(self, entries: Iterable[tuple[str, bytes]]) -> None:
        """Takes entries that members have sent."""
        with self._changed:
            self._known.update(entries)
            self._changed.notify_all()

    def end(self) -> None:
        """Ends the exchange: no more entries are sent or received."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class _GroupRendezvous:
    """A group from its first payload on."""

    def __init__(
        self,
        engine: Engine,
        members: tuple[int, ...],
        place: int,
        changed: Callable[[], None],
    ) -> None:
        self.members = members
        self.error: GroupError | None = None
        self.group: Group | None = None
        self._engine = engine
        self._place = place
        self._changed = changed
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._digest = bytes(DIGEST_BYTES)
        self._store = RendezvousStore(is_answered=place != 0 or not engine.first_sends)
        self._thread = threading.Thread(target=self._connect, name="gt-group", daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        try:
            # This thread is not in inference mode, which is a state of the machine's thread alone.
            group = self._engine.connect(self._store, self._place, len(self.members))
        except Exception as error:  # noqa: BLE001 it fails where it is polled, with the first cause
            self.error = self.error or GroupError(_reason(error))
        else:
            self.group = group
        finally:
            self._store.end()
            self._changed()

    @property
    def knows_all(self) -> bool:
        """True once all members have sent."""
        return self._digest != bytes(DIGEST_BYTES)

    @property
    def is_connecting(self) -> bool:
        return self.group is None and self.error is None

    def payload(self) -> bytes:
        """The payload: digest of the known members, number of our rendezvous, entries for the
        others.
        """
        entries = self._store.entries() if self.is_connecting else []
        if self.error is not None:
            raise self.error
        try:
            return _core.encode_group_payload(self._digest, self._nonce, entries)
        except ValueError as error:
            raise GroupError(str(error)) from error

    def receive(self, payloads: Sequence[bytes]) -> bool:
        """Takes all members' payloads in the group's order; all come to the same
        verdict on them.
        """
        decoded = [_core.decode_group_payload(payload) for payload in payloads]
        nonces = b"".join(nonce for _, nonce, _ in decoded)
        digest = blake2b(nonces, digest_size=DIGEST_BYTES).digest()
        if any(other not in {bytes(DIGEST_BYTES), digest} for other, _, _ in decoded):
            return False
        self._digest = digest
        self._store.receive(entry for _, _, entries in decoded for entry in entries)
        return True

    def end(self, error: GroupError) -> threading.Thread:
        """Gives the group up; only a thread remains for its calls in flight."""
        self.error = self.error or error
        self._store.end()
        thread = threading.Thread(target=self._abort_connected, name="gt-group-end", daemon=True)
        thread.start()
        return thread

    def _abort_connected(self) -> None:
        """Aborts the group if its connection still succeeds."""
        self._thread.join()
        group, self.group = self.group, None
        if group is not None:
            self._engine.abort(group)


class Call:
    """One collective at this member: sent, begun when all have sent, over some time later.

    Args:
        groups: this worker's groups.
        rendezvous: the members' group.
        prepared: the library call.
    """

    def __init__(self, groups: Groups, rendezvous: _GroupRendezvous, prepared: Prepared) -> None:
        # Bytes that the other members need before anybody calls.
        self.payload = rendezvous.payload()
        self.rendezvous = rendezvous
        self._groups = groups
        self._prepared = prepared
        self._has_begun = False
        self._works: list[Work] | None = None
        self._deadline = 0.0
        # The library's error; within GRACE_SECONDS a member may be reported gone.
        self._broken: GroupError | None = None
        self._error: GroupError | None = None

    def begin(self, payloads: Sequence[bytes]) -> bool:
        """All members have sent; returns True if the call can be made.

        It cannot if one of them has given the group up, and begun anew, before the others knew: all
        find that out, and begin anew next time.

        Args:
            payloads: Theirs and ours, in the group's order.
        """
        self._has_begun = self.rendezvous.receive(payloads)
        if self._has_begun:
            self._groups.advance()
        elif self.rendezvous.knows_all:
            self._groups.end(self, GroupError("a member has begun anew"))
        else:
            # Our payload stays valid for the next time, and we may have sent it again already.
            self._groups.cancel(self)
        return self._has_begun

    def cancel(self) -> None:
        """Drops the call: nobody makes it, or it is over."""
        if self.error is None:
            self._groups.cancel(self)
        else:
            self._groups.end(self, self.error)

    def is_over(self) -> bool:
        """True once the result is available, or never will be."""
        if self.error is not None:
            return True
        if self._works is None:
            return False
        late = time.monotonic() > self._deadline
        if self._broken is not None:
            # A report of a member that is gone is a better reason than the library's error.
            self._error = self._broken if late else None
        elif late:
            self._error = GroupError(f"no answer within {2 * CALL_SECONDS} s")
        elif all(work.is_completed() for work in self._works):
            return self._is_well(self._works)
        return self._error is not None

    def _is_well(self, works: list[Work]) -> bool:
        try:
            for work in works:
                work.wait(timedelta(seconds=CALL_SECONDS))
        except RuntimeError as error:
            self._broken = self._failure(error)
            self._deadline = time.monotonic() + GRACE_SECONDS
            return False
        return True

    def finish(self) -> None:
        """Puts the received values into the result; the call is over.

        Raises:
            GroupError: It has failed, and its group with it.
        """
        assert self.is_over(), "a result that has not come"
        error = self.error
        if error is not None:
            self._groups.end(self, error)
            raise error
        self._prepared.finish()

    @property
    def error(self) -> GroupError | None:
        return self._error or self.rendezvous.error

    def is_ready(self) -> bool:
        """True if the call can be made, or need not be."""
        return self.error is not None or (self._has_begun and self.rendezvous.group is not None)

    def make(self) -> None:
        """Calls the group."""
        if self.error is not None or self.rendezvous.group is None:
            return
        self._deadline = time.monotonic() + 2 * CALL_SECONDS
        try:
            # Inference mode as in the machine's thread, to which these tensors belong.
            with torch.inference_mode():
                self._works = self._prepared.launch(self.rendezvous.group)
        except RuntimeError as error:
            self._error = self._failure(error)

    def _failure(self, error: RuntimeError) -> GroupError:
        """The library's error, with the workers of the group."""
        return GroupError(f"workers {list(self.rendezvous.members)} together: {_reason(error)}")


class Groups:
    """The groups of this worker.

    Args:
        engine: the library that makes them.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rendezvous: dict[tuple[int, ...], _GroupRendezvous] = {}
        # Calls that are not made yet, in the order of the payloads. Threads that connect make calls
        # too: other members count on it although nobody here needs the result.
        self._queue: deque[Call] = deque()
        self._lock = threading.RLock()
        self._ends: list[threading.Thread] = []

    def prepare(
        self,
        members: tuple[int, ...],
        place: int,
        prepared: Prepared,
    ) -> Call:
        """Our part in a collective, up to the payload for the other members.

        Args:
            members: Workers, in the group's order.
            place: Our place among them.
            prepared: The library call.

        Raises:
            GroupError: The group cannot be used here.
        """
        rendezvous = self._rendezvous.get(members)
        if rendezvous is None or rendezvous.error is not None:
            if len(self._rendezvous) >= GROUPS_MAX:
                raise GroupError(f"this worker is in {GROUPS_MAX} groups already")
            rendezvous = _GroupRendezvous(self._engine, members, place, self.advance)
            self._rendezvous[members] = rendezvous
        try:
            call = Call(self, rendezvous, prepared)
        except GroupError as error:
            self._end(members, error)
            raise
        with self._lock:
            self._queue.append(call)
        return call

    def lose(self, worker: int) -> None:
        """Ends the groups of a worker that is gone."""
        for members in [members for members in self._rendezvous if worker in members]:
            self._end(members, GroupError(f"worker {worker} is gone"))

    def close(self) -> None:
        """Ends all groups; those in which nothing is in flight are closed afterwards."""
        for members in list(self._rendezvous):
            self._end(members, GroupError("the worker ends"))
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in self._ends:
            thread.join(max(0.0, deadline - time.monotonic()))

    def advance(self) -> None:
        """Makes the calls whose turn it is."""
        with self._lock:
            while self._queue and self._queue[0].is_ready():
                self._queue.popleft().make()

    def cancel(self, call: Call) -> None:
        """Removes a call from the queue."""
        with self._lock:
            if call in self._queue:
                self._queue.remove(call)
        self.advance()

    def end(self, call: Call, error: GroupError) -> None:
        """Ends a group in which a call has failed: it is of no use to any member."""
        self.cancel(call)
        if self._rendezvous.get(call.rendezvous.members) is call.rendezvous:
            self._end(call.rendezvous.members, error)

    def _end(self, members: tuple[int, ...], error: GroupError) -> None:
        self._ends = [thread for thread in self._ends if thread.is_alive()]
        self._ends.append(self._rendezvous.pop(members).end(error))
        self.advance()


def _reason(error: BaseException) -> str:
    """The library's reason, without its position in the library and without advice."""
    text = str(error).partition("\n")[0].partition(" This is typically")[0]
    return text.rpartition("] ")[2] if text.startswith("[/") else text
