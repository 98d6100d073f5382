"""Reductions from device to device beside the same by bytes, on real devices and played ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import torch
from test_worker import Worker, _numbers, _shards, _uploaded, _whole_of_all, op, read

from gt.worker.pytorch import kernels

REDUCE_OPS = ("sum", "max", "min", "prod")


def bits(data: bytes, dtype: torch.dtype) -> bytes:
    """The numbers' bits, with one NaN for all: which one a half becomes is a device's choice."""
    numbers = torch.frombuffer(bytearray(data), dtype=dtype)
    if dtype.is_floating_point:
        numbers[numbers.isnan()] = float("nan")
    return _numbers(numbers)


def check_reductions(
    group: Sequence[Worker], sizes: Iterable[int], strange: Sequence[float] = ()
) -> None:
    """Every dtype is reduced to the same last bit by both ways.

    Args:
        group: workers that know each other.
        sizes: elements of a shard; of 16 bytes half as many.
        strange: what stands in the shard of a member at its index modulo 3, such as infinity.
    """
    tag, everyone = 0, tuple(range(len(group)))
    for (code, dtype), most in itertools.product(enumerate(kernels.DTYPES), sizes):
        size = most // max(1, dtype.itemsize // 8)  # an answer that fits a ring of words
        shards = _shards(dtype, len(group), size)
        if dtype.is_floating_point and strange:
            for place, shard in enumerate(shards):
                shard[place % 3] = strange[place]
        # complex numbers have no order, and no rule leaves products of them to be combined
        for reduce_op in ["sum"] if dtype.is_complex else REDUCE_OPS:
            tag += 2
            for worker, shard in zip(group, shards, strict=True):
                worker.write(
                    *_uploaded(0, shard, code),
                    op("all_reduce", (1,), (0,), (everyone, reduce_op, tag)),
                    op("all_reduce", (2,), (0,), (everyone, reduce_op, tag + 1, "device")),
                    op("free", (), (0,)),
                    read(1, size, tag),
                    read(2, size, tag + 1),
                    op("free", (), (1, 2)),
                )
            length = size * dtype.itemsize
            for by_bytes, by_device in _whole_of_all(group, {tag: length, tag + 1: length}):
                assert bits(by_device.data, dtype) == bits(by_bytes.data, dtype), (dtype, reduce_op)
