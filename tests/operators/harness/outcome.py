"""Outcomes of samples: counts, reasons of refusals, findings."""

import dataclasses
import re
from collections import Counter

import torch
from torch.testing._internal.opinfo.core import SampleInput

from harness.convert import NotConvertible, map_tensors

REASON_LENGTH_MAX = 110  # of a cell in docs/ops.md


class Skip(Exception):
    """A sample that PyTorch itself does not run, or that asks for nothing."""


@dataclasses.dataclass
class Outcome:
    """Outcome of one kind of samples of one entry."""

    total: int = 0
    ran: int = 0
    compared: int = 0  # float32 samples whose values are specified
    exact: int = 0  # of those: the same bits
    late: int = 0  # errors that a worker found: they rise where the result is read, not at the call
    refused: Counter[str] = dataclasses.field(default_factory=Counter)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        self.total += other.total
        self.ran += other.ran
        self.compared += other.compared
        self.exact += other.exact
        self.late += other.late
        self.refused.update(other.refused)
        self.wrong.extend(other.wrong)

    def refuse(self, error: Exception) -> None:
        text = str(error).split("\n")[0]
        prefix = "argument: " if isinstance(error, NotConvertible) else ""
        sizes = re.compile(r"\[[-\d, ]*\]|\(\d[\d, ]*\)")
        self.refused[sizes.sub("[…]", prefix + text)[:REASON_LENGTH_MAX]] += 1


def shown(sample: SampleInput) -> str:
    """A sample in a line: dtypes, shapes, small values."""

    def one(x: torch.Tensor) -> str:
        values = f"={x.tolist()}" if x.numel() <= 4 else ""
        return f"<{str(x.dtype).removeprefix('torch.')}{list(x.shape)}{values}>"

    return str(map_tensors([sample.input, list(sample.args), sample.kwargs], one))[:300]
