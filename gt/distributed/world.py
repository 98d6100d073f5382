"""Members of the session: its workers, and the one program that drives them."""

import gt
from gt import _core
from gt.distributed.mesh import ProcessGroup
from gt.errors import InvalidUse


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Number of workers in the session, or in a group's line. Starts them at the first call."""
    if group is not None:
        return group.size()
    gt.init()
    return _core.session_counters()["workers"]


def get_rank(group: ProcessGroup | None = None) -> int:  # noqa: ARG001 - PyTorch's
    """Always 0: one program drives all workers, and it does the work that scripts reserve for rank
    0.

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
        InvalidUse: Another rank is given: one process per rank would make independent programs,
            each with its own model.
        NoWorker: Some ranks of mpirun have not joined within a minute.
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
    """Wait until everything emitted so far has run; raise a failure that was not read yet.

    Args:
        group: Accepted and ignored: it waits for all workers.
        async_op: Accepted and ignored: it waits in any case.
        device_ids: Accepted and not needed.
    """
    del group, async_op, device_ids
    gt.synchronize()
