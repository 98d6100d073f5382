"""What a backend gives the worker's loop: kernels by operator, and a few functions on its values.

Nothing here knows of torch or numpy; `gt.worker.kernels` and `gt.worker.reference` fill them in.
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

# A kernel over its operands' buffers: the bits of the operands that it overwrites, the kernel, and
# whether it takes its two operands in the other order.
InPlace = tuple[int, Kernel, bool]

Chain = Callable[[Sequence[tuple[str, Sequence[object]]], int], tuple[int, Value] | None]


def nothing_is_lost() -> bool:
    """Of values whose kernels have run, or have failed, when they return."""
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
    # For elementwise rows whose first operand is a number, where the kernel is a value's method.
    number_first: Mapping[str, Kernel]
    in_place: Mapping[str, list[InPlace]]
    # By row and the operands that it overwrites: a kernel for several instructions with equal
    # attributes. It gets a list of their operands, then the attributes, and returns a list of
    # tuples. Where it raises it has written nothing.
    grouped: dict[str, dict[int, Kernel]] = dataclasses.field(default_factory=dict)
    # Runs rows of the table's column `chains` in one pass, where the backend's kernels are not the
    # helper's programs: (rows with their operands, of which None is the result before; operands of
    # the first, a bit each, whose memory may become the result's) -> how many behind the first have
    # run, and the result; or None, with nothing done.
    chain: Chain[Value] | None = None
    # By the wire's number of the dtype.
    dtypes: Sequence[object]
    out_of_memory: type[BaseException]
    # Entered by every thread that executes.
    guard: Callable[[], AbstractContextManager[object]]
    # (size, dtype) -> a contiguous value, its elements not yet set.
    allocate: Callable[[tuple[int, ...], object], Value]
    # The same elements, contiguous where values are: the same object if they are so.
    row_major: Callable[[Value], Value]
    # Its strides in elements.
    strides: Callable[[Value], tuple[int, ...]]
    # A contiguous copy where values are, with the strides that `allocate` gives.
    copy: Callable[[Value], Value]
    # The same elements, contiguous in the host's memory; then their address (of any value: that of
    # its first element) and length in bytes.
    contiguous: Callable[[Value], Value]
    address: Callable[[Value], int]
    length: Callable[[Value], int]
    # (value, byte offset, bytes), for values that are not in the host's memory.
    write: Callable[[Value, int, bytes], None] | None
    # (value) -> number of its dtype, size.
    meta: Callable[[Value], tuple[int, tuple[int, ...]]]
    # (value) -> bytes of the memory that holds it, all of it.
    memory_bytes: Callable[[Value], int]
    synchronize: Callable[[], None]
    # Asked after a failure: whether it is one of all values, and not only of what has failed.
    take_loss: Callable[[], bool] = nothing_is_lost
    # Threads of one large instruction, and what sets the number for the instructions that follow:
    # one for small ones. None where a backend has one thread, or its kernels run elsewhere.
    threads: int = 1
    set_threads: Callable[[int], object] | None = None
    # Rows, and operators of generic rows, that a helper in C++ leaves to the kernels here.
    in_python: frozenset[str] = frozenset()
    # How many kernels of GT's own have run in this process.
    own_calls: Callable[[], int] = kernels_run
    # What the machine looks at of the words behind an instruction: all (None), nothing (0), or what
    # a generator of this seed draws. No result depends on it, as tests show with it.
    look_ahead: int | None = None
    # Gives memory back that is kept for later instructions: once after so many idle seconds.
    release: Callable[[], None] = memory.release
    idle_seconds: float = 5.0
    # Whether bytes for workers of other hosts are packed without loss: auto (where the link has
    # been measured to be slower than that), on, off.
    compression: str = "auto"
    # When a connection to another host is broken, and when what it served is lost.
    links: Links = dataclasses.field(default_factory=Links)
    # Beside this file a worker records when it executed what, if it is given.
    instruction_log: str | None = None
    # Who moves collectives besides the loop's messages, by the word in a trace: device, group.
    collective_backends: dict[str, CollectiveBackend[Value]] = dataclasses.field(
        default_factory=dict
    )
