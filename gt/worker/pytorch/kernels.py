"""The torch backend: kernels by row of ops.toml, and its functions for the worker's loop."""

from __future__ import annotations

import dataclasses
import operator

import torch
from torch import Tensor

from gt.worker import memory
from gt.worker.backend import Backend, InPlace, Kernel
from gt.worker.compiled.kernels import Programs
from gt.worker.cuda import operators as cuda_operators
from gt.worker.cuda.collectives import CudaCollectives
from gt.worker.cuda.operators import CudaOperators
from gt.worker.cuda.table import ROWS
from gt.worker.device_kernels import DeviceKernels
from gt.worker.pytorch import (
    copies,
    creation,
    elementwise,
    generic,
    indexing,
    losses,
    products,
    reductions,
)
from gt.worker.pytorch import threads as torch_threads
from gt.worker.pytorch import updates as torch_updates
from gt.worker.pytorch.cuda_memory import Cuda
from gt.worker.pytorch.devices import Devices
from gt.worker.pytorch.dtypes import DTYPES

NUMBER_FIRST: dict[str, Kernel] = elementwise.number_first()
IN_PLACE: dict[str, list[InPlace]] = (
    elementwise.in_place() | indexing.in_place() | torch_updates.Updates().in_place()
)


def table(device: torch.device, own: CudaOperators | None = None) -> dict[str, Kernel]:
    """The kernel of every row outside control and collective, for values on `device`.

    Args:
        device: Device of the values.
        own: The device's operators of GT's own, if it has any.
    """
    rows = {
        **creation.kernels(device, own),
        **elementwise.kernels(),
        **reductions.kernels(),
        **losses.kernels(),
        **indexing.kernels(),
        **torch_updates.Updates(own).kernels(),
        **generic.kernels(device, own),
        **(products.KERNELS if device.type == "cpu" else {}),
    }
    return rows if own is None else rows | {row: own.over(row, rows[row]) for row in ROWS}


TORCH: dict[str, Kernel] = table(torch.device("cpu"))


def backend(device: torch.device) -> Backend[Tensor]:
    """The backend of torch on the given device."""
    on_host = device.type == "cpu"
    threads, set_threads = torch_threads.switch() if on_host else (1, None)

    def allocate(size: tuple[int, ...], dtype: object) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)  # type: ignore[call-overload]

    rows = TORCH if on_host else table(device)
    programs = Programs(rows, NUMBER_FIRST, DTYPES, threads, _meta)
    result = Backend(
        name="pytorch",
        kernels=rows | programs.kernels(),
        number_first=NUMBER_FIRST,
        in_place=IN_PLACE,
        grouped=torch_updates.Updates().grouped(),
        dtypes=DTYPES,
        out_of_memory=torch.OutOfMemoryError,
        guard=torch.inference_mode,
        allocate=allocate,
        row_major=copies.row_major if on_host else Tensor.contiguous,
        strides=Tensor.stride,
        copy=copies.copy if on_host else _copy,
        contiguous=copies.row_major if on_host else _to_host,
        address=Tensor.data_ptr,
        length=operator.attrgetter("nbytes"),
        write=None if on_host else write,
        meta=_meta,
        memory_bytes=_memory_bytes,
        synchronize=_no_wait if on_host else torch.cuda.synchronize,
        threads=threads,
        set_threads=set_threads,
    )
    if on_host:
        return result
    own = cuda_operators.open_for(device)
    if own is None:
        return with_devices(result, Devices(Cuda(device)))
    memory = Cuda(device)
    collectives = CudaCollectives(own.kernels.on) if own.mode == "on" else None
    meeting = None if collectives is None else DeviceKernels(memory, collectives)
    return with_devices(with_own(result, device, own), Devices(memory, meeting))


def with_own(backend: Backend[Tensor], device: torch.device, own: CudaOperators) -> Backend[Tensor]:
    """The backend, with GT's own operators before PyTorch's for the operands that they take."""
    updates = torch_updates.Updates(own)
    return dataclasses.replace(
        backend,
        kernels=dict(backend.kernels) | table(device, own),
        in_place=IN_PLACE | updates.in_place(),
        grouped=updates.grouped(),
        in_python=own.names,
    )


def with_devices(backend: Backend[Tensor], devices: Devices) -> Backend[Tensor]:
    """The backend, with collectives from device to device, and a check of values that leave the
    device.
    """

    def release() -> None:
        memory.release()
        # Memory that others have mapped must not be freed before they unmap it, and nobody tells
        # us.
        if not devices.has_exported:
            torch.cuda.empty_cache()

    def contiguous(value: Tensor) -> Tensor:
        copied = backend.contiguous(value)
        devices.check()
        return copied

    def synchronize() -> None:
        backend.synchronize()
        devices.check()

    return dataclasses.replace(
        backend,
        contiguous=contiguous,
        check=None if devices.kernels is None else devices.check,
        synchronize=synchronize,
        take_loss=devices.take_loss,
        release=release,
        collective_backends={"device": devices.backend()},
    )


def _copy(value: Tensor) -> Tensor:
    return value.clone(memory_format=torch.contiguous_format)


def _to_host(value: Tensor) -> Tensor:
    return value.contiguous().cpu()


def write(value: Tensor, offset: int, data: bytes) -> None:
    """Puts bytes into a contiguous value, wherever it is."""
    if not data:
        return  # torch cannot make a tensor of no bytes
    chunk = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    target = value.reshape(-1).view(torch.uint8)
    target[offset : offset + len(data)].copy_(chunk)


def _memory_bytes(value: Tensor) -> int:
    return value.untyped_storage().nbytes()


def _meta(value: Tensor) -> tuple[int, tuple[int, ...]]:
    return DTYPES.index(value.dtype), tuple(value.shape)


def _no_wait() -> None:
    """Does nothing: kernels on the CPU have run when they return."""
