"""Members of the session: its workers, and the one program that drives them."""

import gt
from gt import _core
from gt.distributed.mesh import ProcessGroup
from gt.errors import InvalidUse


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Number of workers of the session, or of a group's line. Starts them at the first call."""
    if group is not None:
        return group.size()
    gt.init()
    return _core.session_counters()["workers"]


def get_rank(group: ProcessGroup | None = None) -> int:  # noqa: ARG001 - PyTorch's
    """0, always: there is one program, not one for each worker, and what only rank 0 does it does.

    `if get_rank() == 0: save()` is right as it stands; `data[get_rank()::get_world_size()]` is not:
    give the program all the data, and `gt.distribute` it.
    """
    return 0


def is_available() -> bool:
    """Always true."""
    return True


def is_initialized() -> bool:
    """True if a session is open: the first operation opens one, and so does init_process_group."""
    return _core.is_connected()


def init_process_group(
    backend: object = None, *ignored: object, rank: int = -1, **also_ignored: object
) -> None:
    """Start the workers; PyTorch's arguments are accepted and not needed.

    Args:
        backend: `"mpi"` in a program that mpirun starts: rank 0 goes on, when a worker for each
            rank has joined; each other rank's process becomes a worker here and never returns.
        ignored: PyTorch's.
        rank: 0, or not given.
        also_ignored: PyTorch's.

    Raises:
        InvalidUse: Another rank: one process a rank would be programs that know nothing of each
            other, each with a model of its own.
        NoWorker: Not all ranks of mpirun have come within a minute.
    """
    del ignored, also_ignored
    if backend == "mpi":
        from gt.distributed import mpi

        mpi.join()
        return
    if rank > 0:
        raise InvalidUse(
            f"init_process_group: rank {rank}: one program speaks for all workers, and no other "
            "process is a part of it; run it once, as rank 0"
        )
    gt.init()


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Accepted; the session ends with the program, or by gt.disconnect()."""


def barrier(
    group: ProcessGroup | None = None, async_op: bool = False, device_ids: object = None
) -> None:
    """Wait until everything emitted so far has run; raises a failure that nobody has read.

    Args:
        group: Accepted: all workers are waited for.
        async_op: Accepted: it waits all the same.
        device_ids: Accepted and not needed.
    """
    del group, async_op, device_ids
    gt.synchronize()
