"""Batches from a loader's workers, as bytes and anonymous memory.

Arrays are in a memory file; its descriptor goes through the socket, so nothing is left when either
process dies. The data comes from a child process over a socket without an address, so a pickle is
safe.
"""

from __future__ import annotations

import mmap
import os
import pickle  # noqa: TID251 - between a loader and the processes that it started
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from gt import _core
from gt._core import Tensor
from gt.tensors.reading import made

Array = npt.NDArray[np.generic]

# Smaller data goes through the socket itself, which holds 200 kB: a descriptor costs four system
# calls.
INLINE_BYTES_MAX = 1 << 14
ALIGNMENT = 64  # alignment of an array: a cache line


class End:
    """A worker's stream has ended."""


class Raised:
    """An exception of a worker, as text and class, to raise again in the loader's process."""

    def __init__(self, where: str) -> None:
        kind, error, _ = sys.exc_info()
        assert kind is not None, "no exception is handled"
        self.kind = kind
        lines = "".join(traceback.format_exception(error))
        public = next(one for one in kind.__mro__ if one.__module__ != "gt.errors")  # PyTorch's
        self.text = f"Caught {public.__name__} {where}.\nOriginal {lines}"

    def reraise(self) -> NoReturn:
        """Raise it, or RuntimeError if its class cannot be constructed from a text."""
        if self.kind is KeyError:
            raise KeyError(_Key(self.text))
        try:
            error = self.kind(self.text)
        except Exception:  # noqa: BLE001 - a class of the user's
            raise RuntimeError(self.text) from None
        try:
            raise error
        finally:
            del error  # its frames would keep the worker processes alive


class _Key(str):
    """Key with a plain repr: KeyError shows the repr, in which line breaks would be unreadable."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Parcel:
    """A batch in transit: its round and number, and its parts, here or in the memory behind a
    descriptor.
    """

    round: int
    number: int
    sizes: tuple[int, ...]
    parts: tuple[bytearray, ...] | None
    descriptor: int | None = None

    def opened(self) -> object:
        """The batch; its memory is freed with the last array in it."""
        parts: Iterator[memoryview | bytearray]
        parts = self._mapped() if self.parts is None else iter(self.parts)
        head = next(parts)
        return pickle.loads(head, buffers=parts)  # noqa: S301 - see the top

    def _mapped(self) -> Iterator[memoryview]:
        assert self.descriptor is not None, self
        memory = memoryview(mmap.mmap(self.descriptor, _bytes_of(self.sizes)))
        os.close(self.descriptor)
        place = 0
        for size in self.sizes:
            yield memory[place : place + size]
            place += _aligned(size)

    def drop(self) -> None:
        """Release a batch that nobody will open."""
        if self.descriptor is not None:
            os.close(self.descriptor)


def send(connection: Connection, place: tuple[int, int], batch: object, where: str) -> None:
    """Send the batch with this round and number; if it cannot be packed, send that error."""
    try:
        parts = _packed(batch)
        sizes = tuple(len(part) for part in parts)
        descriptor = None if sum(sizes) <= INLINE_BYTES_MAX else _written(parts, sizes)
    except Exception:  # noqa: BLE001 - of the user's classes
        send(connection, place, Raised(where), where)
        return
    here = tuple(bytearray(part) for part in parts) if descriptor is None else None
    connection.send(Parcel(*place, sizes, here))
    if descriptor is not None:
        with socket.socket(fileno=os.dup(connection.fileno())) as stream:
            socket.send_fds(stream, [b"\0"], [descriptor])
        os.close(descriptor)


def receive(connection: Connection) -> Parcel:
    """The next parcel.

    Raises:
        EOFError: the worker has ended.
        OSError: it has ended in the middle of a parcel.
    """
    parcel = connection.recv()
    assert isinstance(parcel, Parcel), parcel
    if parcel.parts is not None:
        return parcel
    with socket.socket(fileno=os.dup(connection.fileno())) as stream:
        _, descriptors, _, _ = socket.recv_fds(stream, 1, 1)
    if not descriptors:
        raise EOFError("a batch without its memory")
    return Parcel(parcel.round, parcel.number, parcel.sizes, None, descriptors[0])


class _Packer(pickle.Pickler):
    """Packs tensors as their bytes, without a copy."""

    def reducer_override(self, obj: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        if not isinstance(obj, Tensor):
            return NotImplemented  # type: ignore[no-any-return] # as the protocol has it
        if obj.requires_grad and not obj.is_leaf:
            raise RuntimeError(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad, since "
                "autograd does not support crossing process boundaries.  If you just want to "
                "transfer the data, call detach() on the tensor before serializing (e.g., putting "
                "it on the queue)."
            )
        data = _core.read_bytes(obj)
        return received, (type(obj), data, obj.dtype, tuple(obj.shape), obj.requires_grad)


def received(
    kind: type[Tensor], data: Array, dtype: _core.dtype, shape: tuple[int, ...], requires_grad: bool
) -> Tensor:
    """The tensor of a worker, in this process."""
    return made(kind, _core.from_bytes(data, shape, dtype), requires_grad)


class _Sink(bytearray):
    """A writable file for the pickler."""

    def write(self, data: bytes) -> None:
        self.extend(data)


def _packed(batch: object) -> list[memoryview]:
    head, buffers = _Sink(), list[pickle.PickleBuffer]()
    _Packer(head, protocol=5, buffer_callback=buffers.append).dump(batch)
    return [memoryview(head), *(buffer.raw() for buffer in buffers)]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _bytes_of(sizes: tuple[int, ...]) -> int:
    return sum(map(_aligned, sizes))


def _written(parts: list[memoryview], sizes: tuple[int, ...]) -> int:
    """Descriptor of a memory file that holds the parts."""
    descriptor = os.memfd_create("gt-batch")
    try:
        os.ftruncate(descriptor, _bytes_of(sizes))
        with mmap.mmap(descriptor, _bytes_of(sizes)) as memory:
            place = 0
            for part, size in zip(parts, sizes, strict=True):
                memory[place : place + size] = part
                place += _aligned(size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
