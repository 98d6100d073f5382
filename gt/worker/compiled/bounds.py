"""Checks of indices in a program that is compiled.

Inductor counts a negative index from the end wherever Python does, so its code takes one that the
row refuses. Each wrapper adds the check to the program as an instruction of its own: a program that
fails it is run step by step, and the step says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from gt.worker.backend import Kernel
from gt.worker.compiled.program import Program
from gt.worker.pytorch.shards import within

# Rows whose operands may be indices; `aten` and `aten_vjp` are any operator of PyTorch.
INDEXED = frozenset(
    {
        "aten", "aten_vjp", "cross_entropy", "cross_entropy_backward", "embedding",
        "embedding_backward", "gather", "index", "index_add", "index_put", "index_select",
        "nll_loss", "nll_loss_backward", "scatter", "scatter_add", "scatter_reduce",
    }
)  # fmt: skip


def checked(rows: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernels, with a check of indices where inductor takes more of them than the row does."""
    return {
        **rows,
        "index_select": _checked_at(rows["index_select"], 1),
        "index_add": _checked_at(rows["index_add"], 1),
        "aten": _without_index_copy(rows["aten"]),
    }


def check_device(parsed: Program, devices: Iterable[str]) -> None:
    """Refuse a program with indices on a GPU.

    Raises:
        ValueError: an index out of range would end the device's context, for everybody.
    """
    rows = {step.row for step in parsed.steps} & INDEXED
    if rows and any(device != "cpu" for device in devices):
        raise ValueError(
            f"{', '.join(sorted(rows))}: on a GPU the compiled code for an index out of range "
            "would end the work of everybody"
        )


def _checked_at(kernel: Kernel, place: int) -> Kernel:
    """The kernel of (self, ..., index, ..., dim), with the index at this place."""

    def run(self: Tensor, *rest: object) -> object:
        index, dim = rest[place - 1], next(one for one in rest if isinstance(one, int))
        assert isinstance(index, Tensor)
        within(index, self.shape[dim] if self.dim() else 1)
        return kernel(self, *rest)

    return run


def _without_index_copy(kernel: Kernel) -> Kernel:
    """The generic kernel, which refuses `index_copy`."""

    def run(operands: Sequence[Tensor], overload: str, *rest: object) -> object:
        if overload.partition(".")[0] == "index_copy":
            raise ValueError("index_copy: inductor takes negative indices, which it refuses")
        return kernel(operands, overload, *rest)

    return run
