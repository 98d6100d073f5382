"""Interface of a backend to the worker's loop: kernels by operator, and functions on its values.

Nothing here knows of torch or numpy; the `kernels` of `gt.worker.pytorch`, `native` and `reference`
fill them in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from gt.worker import memory
from gt.worker.collective_backend import CollectiveBackend
from gt.worker.links import Links
from gt.worker.own_calls import kernels_run

Value = TypeVar("Value")
Kernel = Callable[..., object]

# A kernel that writes into its operands' buffers: the bits of the operands that it overwrites, the
# kernel, and True if it takes its two operands in the other order.
InPlace = tuple[int, Kernel, bool]

Chain = Callable[[Sequence[tuple[str, Sequence[object]]], int], tuple[int, Value] | None]


def nothing_is_lost() -> bool:
    """False: kernels of this backend have run, or have failed, when they return."""
    return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backend(Generic[Value]):
    """One way to execute instructions.

    A kernel gets the operands in the row's order (values, Python numbers, None where absent; a list
    as one Python list, last), then the attributes in the row's order. It returns a value, or a
    tuple of the row's outputs. Only kernels of the family `view` may return memory of an operand.
    """

    name: str
    kernels: Mapping[str, Kernel]
    # Kernels for elementwise rows whose first operand is a number, if the row's kernel is a value's
    # method.
    number_first: Mapping[str, Kernel]
    in_place: Mapping[str, list[InPlace]]
    # Kernels for several instructions with equal attributes, by row and by the operands that they
    # overwrite. Each gets a list of their operands, then the attributes, and returns a list of
    # tuples. One that raises has written nothing.
    grouped: dict[str, dict[int, Kernel]] = dataclasses.field(default_factory=dict)
    # Runs rows of the table's column `chains` in one pass, for backends whose kernels are not the
    # helper's programs: (rows with their operands, where None is the result before; operands of the
    # first row, a bit each, whose memory may become the result's) -> the number of rows behind the
    # first that have run, and the result; or None, with nothing done.
    chain: Chain[Value] | None = None
    # Dtypes by their number on the wire.
    dtypes: Sequence[object]
    out_of_memory: type[BaseException]
    # Context that every thread that executes enters.
    guard: Callable[[], AbstractContextManager[object]]
    # (size, dtype) -> a contiguous value, its elements not yet set.
    allocate: Callable[[tuple[int, ...], object], Value]
    # A value with the same elements, contiguous in the value's memory: the value itself if it is
    # so.
    row_major: Callable[[Value], Value]
    # Strides in elements.
    strides: Callable[[Value], tuple[int, ...]]
    # A contiguous copy in the value's memory, with the strides that `allocate` gives.
    copy: Callable[[Value], Value]
    # The elements contiguous in the host's memory; then the address (of any value: that of its
    # first element) and the length in bytes.
    contiguous: Callable[[Value], Value]
    address: Callable[[Value], int]
    length: Callable[[Value], int]
    # Called after a helper has copied elements to the host: raises if they may be wrong. None where
    # nothing can be wrong with them.
    check: Callable[[], None] | None = None
    # (value, byte offset, bytes), for values that are not in the host's memory.
    write: Callable[[Value, int, bytes], None] | None
    # (value) -> number of its dtype, size.
    meta: Callable[[Value], tuple[int, tuple[int, ...]]]
    # (value) -> bytes of the memory that holds it, all of it.
    memory_bytes: Callable[[Value], int]
    synchronize: Callable[[], None]
    # Called after a failure: True if it concerns all values, and not only the failed instruction's.
    take_loss: Callable[[], bool] = nothing_is_lost
    # Threads of one large instruction, and a function that sets the number for the instructions
    # that follow: one for small ones. None for a backend with one thread, or with kernels
    # elsewhere.
    threads: int = 1
    set_threads: Callable[[int], object] | None = None
    # Rows, and operators of generic rows, that a helper in C++ leaves to the kernels here.
    in_python: frozenset[str] = frozenset()
    # Number of calls of GT's own kernels in this process.
    own_calls: Callable[[], int] = kernels_run
    # Extent of the words behind an instruction that the machine looks at: all (None), none (0), or
    # a number that a generator of this seed draws. No result depends on it, as tests show with it.
    look_ahead: int | None = None
    # Gives back memory that is kept for later instructions: once after so many idle seconds.
    release: Callable[[], None] = memory.release
    idle_seconds: float = 5.0
    # Lossless compression of bytes for workers of other hosts: auto (on links measured to be slower
    # than it), on, off.
    compression: str = "auto"
    # Limits after which a connection to another host is broken, and after which its values are
    # lost.
    links: Links = dataclasses.field(default_factory=Links)
    # Path of the instruction log, beside which the worker records its executions; None for no
    # record.
    instruction_log: str | None = None
    # True if each execution has a line on standard error.
    shows_executions: bool = False
    # Backends that move collectives besides the loop's messages, by their word in a trace: device,
    # group.
    collective_backends: dict[str, CollectiveBackend[Value]] = dataclasses.field(
        default_factory=dict
    )
