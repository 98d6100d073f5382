"""Rows of the family generic for numpy, which has none of PyTorch's operators: they raise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from gt.worker.backend import Kernel


def kernels() -> dict[str, Kernel]:
    """By row."""
    return {"aten": refuse, "aten_vjp": refuse, "aten_meta": refuse}


def refuse(_values: Sequence[object], overload: str, *_attributes: object) -> NoReturn:
    """Raises: only PyTorch has the operator."""
    raise NotImplementedError(
        f"aten::{overload} needs a worker with torch: this one computes without, "
        "and has the operators of docs/ops.md"
    )
