"""Samples with operands laid out over workers, against the same samples unplaced.

The oracle is GT's own result with every operand whole on one worker, which tests/test_op_db.py
holds against PyTorch's: no rule of placement takes part in it. As a program it runs one case again:

    python tests/harness/placements.py WORKERS TITLE KIND SAMPLE PLACEMENT...
"""

import dataclasses
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import torch
from samples import SAMPLES, Given
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import gt
from gt import _core
from gt.errors import NotSupported
from harness.compare import difference
from harness.convert import NotConvertible, convert, from_gt, quietly, tensors, to_gt
from harness.drive import seed
from harness.entries import ROWS, UNSPECIFIED, call_of, entries, row_of, title

COMBINATIONS_MAX = 8  # of placements, for a sample
# Pieces are summed in another order than the whole; relative to the largest value.
LOOSER = 4.0
WHOLE = "whole"  # on one worker, as a tensor without a placement is

Shapes = Sequence[Sequence[int]]
Case = Callable[[Sequence[str]], object]


@dataclasses.dataclass
class Count:
    """What became of the runs with one placement among their operands."""

    right: int = 0
    wrong: int = 0
    refused: int = 0
    moved_bytes: int = 0


@dataclasses.dataclass
class Tally:
    """Runs by placement, how cut dimensions divide, rows that ran, and what was found."""

    by_placement: dict[str, Count] = dataclasses.field(default_factory=dict)
    divisions: Counter[str] = dataclasses.field(default_factory=Counter)
    rows: set[str] = dataclasses.field(default_factory=set)
    findings: list[str] = dataclasses.field(default_factory=list)

    def add(self, placements: Sequence[str], what: str, moved_bytes: int) -> None:
        for placement in sorted(set(placements)):
            count = self.by_placement.setdefault(placement, Count())
            setattr(count, what, getattr(count, what) + 1)
            count.moved_bytes += moved_bytes

    def table(self) -> list[str]:
        """One line a placement: runs that were right, wrong, refused; mean of bytes moved."""
        lines = [f"{'placement':40} {'right':>7} {'wrong':>6} {'refused':>8} {'bytes a run':>12}"]
        for placement, count in sorted(self.by_placement.items()):
            runs = max(count.right + count.wrong + count.refused, 1)
            lines.append(
                f"{placement:40} {count.right:7} {count.wrong:6} {count.refused:8} "
                f"{count.moved_bytes / runs:12.0f}"
            )
        return lines


def place(x: gt.Tensor, placement: str) -> gt.Tensor:
    """The same values laid out as the text says; the only function that knows Python's form."""
    if placement == WHOLE:
        return x
    found = re.fullmatch(r"(replicate|shard\((\d)\))@\[[\d,]+\]", placement)
    assert found, placement
    return gt.distribute(x, None if found[2] is None else int(found[2]))


def choices(shape: Sequence[int], workers: int) -> list[str]:
    """Every placement that a tensor of this shape may have, cut ones first."""
    mesh = f"@[{','.join(map(str, range(workers)))}]"
    return [f"shard({dim}){mesh}" for dim in range(len(shape))] + [f"replicate{mesh}", WHOLE]


def combinations(shapes: Shapes, workers: int, draw: random.Random) -> list[tuple[str, ...]]:
    """At most COMBINATIONS_MAX assignments; the first ones cut each dimension of each operand."""
    options = [choices(shape, workers) for shape in shapes]
    cut = [draw.sample(range(len(shape)), len(shape)) for shape in shapes]
    turns = range(max((len(shape) for shape in shapes), default=0))
    found = [
        tuple(
            one[dims[turn % len(dims)]] if dims else draw.choice(one)
            for one, dims in zip(options, cut, strict=True)
        )
        for turn in turns
    ]
    draws = range(4 * COMBINATIONS_MAX)  # most are new ones; a scalar has few
    found += [tuple(draw.choice(one) for one in options) for _ in draws]
    spread = [one for one in dict.fromkeys(found) if set(one) != {WHOLE}]
    return spread[:COMBINATIONS_MAX]


def division(size: int, workers: int) -> str:
    """How a dimension divides over workers."""
    if size < workers:
        return "smaller"
    return "uneven" if size % workers else "even"


class Driver:
    """Runs cases under placements in the session of this process, and counts."""

    def __init__(self, workers: int) -> None:
        self.workers, self.tally = workers, Tally()

    def drive(self, name: str, case: Case, shapes: Shapes, row: str | None) -> None:
        """Compares `case(placements)`, a tree of results, with itself unplaced.

        Args:
            name: title, kind and number, which find the case again and seed the draw.
            case: takes a placement for each tensor.
            shapes: the tensors' shapes.
            row: of ops.toml, if the case exercises one.
        """
        expected = self._unplaced(case, shapes) if shapes else None
        if expected is None:
            return  # not a sample of GT's: tests/test_op_db.py counts those
        draw = random.Random(f"{name} {self.workers}")
        for placements in combinations(shapes, self.workers, draw):
            self.compare(name, case, placements, expected)
            self._count_divisions(shapes, placements)
            self.tally.rows.add(row or "")

    def compare(self, name: str, case: Case, placements: Sequence[str], expected: object) -> None:
        """One run under `placements`, counted."""
        before = gt.debug.stats()["moved_bytes"]
        try:
            what = difference(case(placements), expected, values=True, looser=LOOSER)
            kind = "wrong" if what else "right"
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is refused
            kind, what = "refused", f"{type(error).__name__}: {error}"
        self.tally.add(placements, kind, gt.debug.stats()["moved_bytes"] - before)
        if what:
            listed = " ".join(f"'{one}'" for one in placements)
            self.tally.findings.append(f"{kind}: {self.workers} {name} {listed}\n    {what}")

    def _unplaced(self, case: Case, shapes: Shapes) -> object:
        try:
            return read(case([WHOLE] * len(shapes)))
        except gt.errors.WorkerError:
            raise  # a kernel broke, which is no refusal
        except (gt.errors.Error, NotConvertible, TypeError):
            return None

    def _count_divisions(self, shapes: Shapes, placements: Sequence[str]) -> None:
        for shape, placement in zip(shapes, placements, strict=True):
            for dim in re.findall(r"shard\((\d)\)", placement):
                self.tally.divisions[division(shape[int(dim)], self.workers)] += 1


def read(value: object) -> object:
    """A tree of results with its tensors read, as PyTorch's."""
    if isinstance(value, gt.Tensor):
        return from_gt(value)
    if isinstance(value, list | tuple):
        return type(value)(read(one) for one in value)
    return value


class Sampled:
    """A sample of op_db as a case: its tensors in order, each placed once."""

    def __init__(self, op: OpInfo, sample: SampleInput, *, gradients: bool) -> None:
        self.op, self.sample, self.gradients = op, sample, gradients
        self.tensors: list[torch.Tensor] = []
        for x in tensors([sample.input, list(sample.args), sample.kwargs], torch.Tensor):
            if not any(x is seen for seen in self.tensors):
                self.tensors.append(x)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(x.shape) for x in self.tensors]

    def __call__(self, placements: Sequence[str]) -> object:
        """The results, or the gradients of the tensors that ask for one."""
        placed = [
            place(to_gt(x.detach()), how).requires_grad_(x.requires_grad and self.gradients)
            for x, how in zip(self.tensors, placements, strict=True)
        ]

        def twin(x: torch.Tensor) -> gt.Tensor:
            return next(y for known, y in zip(self.tensors, placed, strict=True) if known is x)

        gt.manual_seed(0)  # random operators draw the same values under every placement
        args = [convert(x, twin) for x in (self.sample.input, *self.sample.args)]
        results = quietly(lambda: call_of(self.op)(*args, **convert(self.sample.kwargs, twin)))
        return self._gradients(results, placed, placements) if self.gradients else results

    def _gradients(
        self, results: object, leaves: list[gt.Tensor], placements: Sequence[str]
    ) -> list[gt.Tensor]:
        """Of a weighted sum of the results; a weight is laid out as a tensor of its rank is."""
        tracked = [x for x in tensors(results, gt.Tensor) if x.requires_grad]
        asked = [x for x in leaves if x.requires_grad]
        if not tracked or not asked:
            raise NotSupported("no gradient")
        generator = torch.Generator().manual_seed(1)
        by_rank = {len(shape): how for shape, how in zip(self.shapes, placements, strict=True)}
        weights = []
        for x in tracked:
            drawn = torch.randn(tuple(x.shape), generator=generator, dtype=torch.float64)
            wide = x.dtype == _core.float64
            weight = to_gt(drawn if wide else drawn.float())
            weights.append(place(weight, by_rank.get(x.ndim, WHOLE)))
        found = _core.grad(tracked, weights, asked, False, False)
        return [gt.zeros_like(x) if g is None else g for g, x in zip(found, asked, strict=True)]


def kinds(op: OpInfo, *, every: bool) -> list[str]:
    """What is run of an entry: its widest usual dtype, or every one; and gradients."""
    usual = [getattr(torch, name) for name in ("float32", "int64", "bool")]
    names = [str(x).removeprefix("torch.") for x in usual if x in op.supported_dtypes("cpu")]
    smooth = op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")
    gradients = ["gradients"] if smooth and op.name not in UNSPECIFIED else []
    return (names if every else names[:1]) + gradients


def samples(op: OpInfo, kind: str) -> Iterator[tuple[int, Sampled]]:
    """Samples of a dtype by name, or of "gradients", with their numbers."""
    gradients = kind == "gradients"
    dtype = torch.float64 if gradients else getattr(torch, kind)
    seed()
    listed = quietly(lambda: list(op.sample_inputs("cpu", dtype, gradients, set_seed=False)))
    for number, sample in enumerate(listed):
        yield number, Sampled(op, sample, gradients=gradients)


def drive_entry(op: OpInfo, driver: Driver, *, samples_max: int | None) -> None:
    """Every kind of an entry; of each at most `samples_max` samples, drawn by seed."""
    for kind in kinds(op, every=samples_max is None):
        listed = list(samples(op, kind))
        if samples_max is not None and len(listed) > samples_max:
            draw = random.Random(f"{title(op)} {kind} {driver.workers}")
            listed = [listed[at] for at in sorted(draw.sample(range(len(listed)), samples_max))]
        for number, sample in listed:
            driver.drive(f"{title(op)} {kind} {number}", sample, sample.shapes, row_of(op))


class RowSample:
    """One of the project's own samples of a row as a case: also what only the tape emits."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.sample = name, SAMPLES[name][number]
        listed = [x if isinstance(x, list) else [x] for x in self.sample.operands]
        self.operands = [one for part in listed for one in part]
        self.shapes = [x.values.shape for x in self.operands if isinstance(x, Given)]

    def __call__(self, placements: Sequence[str]) -> object:
        left = iter(placements)
        placed = [
            place(self._tensor(x), next(left)) if isinstance(x, Given) else x for x in self.operands
        ]
        names = [text.split(":")[0] for text in ROWS[self.name].get("attrs", [])]
        attrs = zip(names, self.sample.attrs, strict=True)
        named = {key: self._attr(value) for key, value in attrs if value is not None}
        return _core.call(self.name, *placed, **named)

    def _tensor(self, x: Given) -> gt.Tensor:
        return to_gt(torch.from_numpy(x.values.copy()).to(getattr(torch, x.dtype)))

    def _attr(self, value: object) -> object:
        is_dtype = isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype)
        return getattr(_core, value) if is_dtype else value


def drive_row(name: str, driver: Driver) -> None:
    """The project's own samples of a row, in float32, float64 and what is not floating."""
    for number, sample in enumerate(SAMPLES[name]):
        dtypes = {x.dtype for x in sample.operands if isinstance(x, Given)}
        if not dtypes & {"float16", "bfloat16"}:  # each piece's sum is rounded, the whole's once
            case = RowSample(name, number)
            driver.drive(f"{name} own {number}", case, case.shapes, name)


def rows() -> list[str]:
    """Rows with operands that a kernel computes."""
    return [name for name in SAMPLES if ROWS[name]["inputs"]]


def main(workers: str, name: str, kind: str, number: str, *placements: str) -> int:
    gt.gpu_workers(int(workers))
    if kind == "own":
        case: RowSample | Sampled = RowSample(name, int(number))
    else:
        op = next(op for op in entries() if title(op) == name)
        case = next(sample for place, sample in samples(op, kind) if place == int(number))
    driver = Driver(int(workers))
    expected = read(case([WHOLE] * len(placements)))
    driver.compare(f"{name} {kind} {number}", case, placements, expected)
    lines = [f"shapes {case.shapes}", *(driver.tally.findings or ["right"])]
    sys.stdout.write("\n".join(lines) + "\n")
    return len(driver.tally.findings)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
