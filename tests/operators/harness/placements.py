"""Samples with operands distributed over workers, against the same samples unplaced.

The oracle is GT's own result with every operand whole on one worker, which test_op_db.py
holds against PyTorch's: no rule of placement takes part in it. As a program it runs one case again:

    python tests/operators/harness/placements.py WORKERS TITLE KIND SAMPLE PLACEMENT...
"""

import dataclasses
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

import torch
from samples import SAMPLES, Given, Operand, Sample
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import gt
from gt import _core
from gt.errors import NotSupported
from harness import layouts
from harness.compare import difference
from harness.convert import NotConvertible, convert, from_gt, quietly, tensors, to_gt
from harness.drive import seed
from harness.entries import LOOSER as TOLERANCES
from harness.entries import ROWS, TERMS, UNSPECIFIED, call_of, entries, row_of, title
from harness.half import UNIT, half_difference
from harness.layouts import WHOLE, place

COMBINATIONS_MAX = 8  # of placements, for a sample
# Shards are summed in another order than the whole.
LOOSER = 4.0
HALF = ("bfloat16", "float16")
Shapes = Sequence[Sequence[int]]


class Case(Protocol):
    """A computation on some tensors.

    `scale` is their largest value, `terms` the largest that is known to cancel on the way.
    """

    shapes: Shapes
    scale: float
    terms: float
    looser: float
    weights: list[str]

    def distribute(self, placements: Sequence[str]) -> list[gt.Tensor]: ...

    def compute(self, placed: list[gt.Tensor], placements: Sequence[str]) -> object: ...

    def wide(self) -> "Case | None":
        """A case in half precision with operands in float64; nothing for others."""
        ...


@dataclasses.dataclass(frozen=True)
class Expected:
    """Results of a case without layouts; in half precision also the expected exact result."""

    whole: object
    is_half: bool
    oracle: object | None = None
    products: bool = False
    looser: float = 1.0

    def difference(self, made: object, case: Case, shares: int) -> str | None:
        """Difference of `made` under a layout; contributions are up to `shares` times a value."""
        if self.is_half:
            return half_difference(
                made,
                self.whole,
                self.oracle,
                scale=case.scale,
                shares=shares,
                products=self.products,
                looser=self.looser,
            )
        terms = shares * max(case.terms, scale_of(self.whole))
        return difference(made, self.whole, values=True, looser=LOOSER, terms=terms)


@dataclasses.dataclass
class Count:
    """Outcome of the runs with one placement among their operands."""

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
        for placement in sorted(set(map(layouts.kind, placements))):
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


def combinations(shapes: Shapes, workers: int, draw: random.Random) -> list[tuple[str, ...]]:
    """At most COMBINATIONS_MAX assignments.

    The first ones cut each dimension of each operand, the next have contributions of all of them.
    """
    order = [draw.sample(range(len(shape)), len(shape)) for shape in shapes]
    results = []
    for turn in range(max((len(shape) for shape in shapes), default=0)):
        plain = draw.random() < 0.5  # all workers in a line, evenly: what most programs have
        turns = [
            (shape, dims[turn % len(dims)] if dims else None)
            for shape, dims in zip(shapes, order, strict=True)
        ]
        results.append(
            tuple(
                layouts.even(dim, workers)
                if plain and dim is not None
                else layouts.drawn(shape, workers, draw, dim)
                for shape, dim in turns
            )
        )
    if len(shapes) > 1:  # where a reduce_op of one operand passes, one of all may not
        line = list(range(workers))
        partials = [
            f"partial({reduce_op})@{line}".replace(" ", "") for reduce_op in ("sum", "max", "min")
        ]
        results += [(partial,) * len(shapes) for partial in partials]
    draws = range(4 * COMBINATIONS_MAX)  # most are new ones; a scalar has few
    results += [tuple(layouts.drawn(shape, workers, draw) for shape in shapes) for _ in draws]
    spread = [one for one in dict.fromkeys(results) if set(one) != {WHOLE}]
    return spread[:COMBINATIONS_MAX]


def division(size: int, workers: int) -> str:
    """Kind of a dimension's division over workers."""
    if size < workers:
        return "smaller"
    return "uneven" if size % workers else "even"


class Driver:
    """Runs cases under placements in the session of this process, and counts."""

    def __init__(self, workers: int) -> None:
        self.workers, self.tally = workers, Tally()
        self.driven: set[str] = set()  # what has been asked for, whoever keeps the list

    def drive(self, name: str, case: Case, row: str | None) -> None:
        """Compares `case(placements)`, a tree of results, with itself unplaced.

        Args:
            name: title, kind and number, which find the case again and seed the draw.
            case: takes a placement for each of its tensors.
            row: of ops.toml, if the case exercises one.
        """
        expected = self._unplaced(case, row) if case.shapes else None
        if expected is None:
            return  # not a sample of GT's: tests/operators/test_op_db.py counts those
        draw = random.Random(f"{name} {self.workers}")
        for placements in combinations(case.shapes, self.workers, draw):
            self.compare(name, case, placements, expected)
            self._count_divisions(case.shapes, placements)
            self.tally.rows.add(row or "")

    def compare(self, name: str, case: Case, placements: Sequence[str], expected: Expected) -> None:
        """One run under `placements`, counted."""
        before = gt.debug.stats()["moved_bytes"]
        try:
            placed = case.distribute(placements)
            before = gt.debug.stats()["moved_bytes"]  # laying out is not what is counted
            computed = case.compute(placed, placements)
            what = expected.difference(computed, case, layouts.share_max(placements))
            kind = "wrong" if what else "right"
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is refused
            kind, what = "refused", f"{type(error).__name__}: {error}"
        self.tally.add(placements, kind, gt.debug.stats()["moved_bytes"] - before)
        if what:
            listed = " ".join(f"'{one}'" for one in placements)
            weights = f" (weights {' '.join(case.weights)})" if case.weights else ""
            self.tally.findings.append(
                f"{kind}: {self.workers} {name} {listed}\n    {what}{weights}"
            )

    def _unplaced(self, case: Case, row: str | None) -> Expected | None:
        try:
            return expected(case, row)
        except gt.errors.WorkerError:
            raise  # a kernel broke, which is no refusal
        except (gt.errors.Error, NotConvertible):
            return None

    def _count_divisions(self, shapes: Shapes, placements: Sequence[str]) -> None:
        for shape, layout in zip(shapes, placements, strict=True):
            for dim, members in layouts.cuts(layout):
                self.tally.divisions[division(shape[dim], members)] += 1


def expected(case: Case, row: str | None) -> Expected:
    """Results of a case with every tensor whole on one worker."""
    whole, wide = unplaced(case), case.wide()
    if wide is None:
        return Expected(whole, is_half=False)
    products = row is None or ROWS[row]["family"] == "contract"
    try:
        oracle = unplaced(wide)
    except (gt.errors.Error, RuntimeError):
        oracle = None  # a dtype that it names does not go with float64
    return Expected(whole, True, oracle, products, case.looser)


def unplaced(case: Case) -> object:
    """The results with every tensor whole on one worker, read."""
    nowhere = [WHOLE] * len(case.shapes)
    return read(case.compute(case.distribute(nowhere), nowhere))


def read(value: object) -> object:
    """A tree of results with its tensors read, as PyTorch's; named tuples as tuples."""
    if isinstance(value, gt.Tensor):
        return from_gt(value)
    if isinstance(value, list | tuple):
        ones = [read(one) for one in value]
        return ones if isinstance(value, list) else tuple(ones)
    return value


def scale_of(tree: object) -> float:
    """The largest finite value of a tree of tensors, at least 0.01."""
    found = (x.detach() for x in tensors(tree, torch.Tensor))
    values = [(x.abs() if x.is_complex() else x).double() for x in found]
    finite = [float(x[x.isfinite()].abs().max()) for x in values if x.isfinite().any()]
    return max(0.01, *finite) if finite else 0.01


NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


class Sampled:
    """A sample of op_db as a case: its tensors in order, each placed once."""

    def __init__(self, op: OpInfo, sample: SampleInput, *, gradients: bool) -> None:
        self.op, self.sample, self.gradients = op, sample, gradients
        self.weights: list[str] = []  # layouts of the gradients that came in last
        self.tensors: list[torch.Tensor] = []
        for x in tensors([sample.input, list(sample.args), sample.kwargs], torch.Tensor):
            if not any(x is seen for seen in self.tensors):
                self.tensors.append(x)
        self.shapes = [tuple(x.shape) for x in self.tensors]
        self.scale = scale_of(self.tensors)
        self.terms = max(self.scale, TERMS.get(op.name, 1.0))
        dtypes = {x.dtype for x in self.tensors}
        self.looser = max((TOLERANCES.get((op.name, dtype), 1.0) for dtype in dtypes), default=1.0)

    def distribute(self, placements: Sequence[str]) -> list[gt.Tensor]:
        pairs = enumerate(zip(self.tensors, placements, strict=True))
        return [
            place(to_gt(x.detach()), how, at).requires_grad_(x.requires_grad and self.gradients)
            for at, (x, how) in pairs
        ]

    def wide(self) -> "Sampled | None":
        if not any(x.dtype in UNIT for x in self.tensors):
            return None

        def widened(x: object) -> object:
            return x.double() if isinstance(x, torch.Tensor) and x.dtype in UNIT else x

        return Sampled(self.op, self.sample.transform(widened), gradients=self.gradients)

    def compute(self, placed: list[gt.Tensor], placements: Sequence[str]) -> object:
        """The results, or the gradients of the tensors that ask for one."""

        def twin(x: torch.Tensor) -> gt.Tensor:
            return next(y for known, y in zip(self.tensors, placed, strict=True) if known is x)

        gt.manual_seed(0)  # random operators draw the same values under every placement
        args = [convert(x, twin) for x in (self.sample.input, *self.sample.args)]
        results = quietly(lambda: call_of(self.op)(*args, **convert(self.sample.kwargs, twin)))
        return self._gradients(results, placed, placements) if self.gradients else results

    def _gradients(
        self, results: object, leaves: list[gt.Tensor], placements: Sequence[str]
    ) -> list[gt.Tensor]:
        """Gradients of a weighted sum of the results; the weights have layouts of their own."""
        tracked = [x for x in tensors(results, gt.Tensor) if x.requires_grad]
        asked = [x for x in leaves if x.requires_grad]
        if not tracked or not asked:
            raise NotSupported("no gradient")
        generator = torch.Generator().manual_seed(1)
        self.weights = []
        draw = random.Random(" ".join(placements))
        workers = max(layouts.workers(one) for one in placements)
        weights = []
        for x in tracked:
            drawn = torch.randn(tuple(x.shape), generator=generator, dtype=torch.float64)
            if x.dtype.is_complex:
                drawn = torch.complex(drawn, drawn.flip(0) if drawn.ndim else drawn)
            is_wide = x.dtype in {_core.float64, _core.complex128}
            weight = to_gt(drawn if is_wide else drawn.to(NARROW[drawn.dtype]))
            self.weights.append(layouts.drawn(tuple(x.shape), workers, draw) if workers else WHOLE)
            weights.append(place(weight, self.weights[-1]))
        gradients = _core.grad(tracked, weights, asked, False, False)
        return [gt.zeros_like(x) if g is None else g for g, x in zip(gradients, asked, strict=True)]


def kinds(op: OpInfo, *, every: bool) -> list[str]:
    """Kinds of runs of an entry: its widest usual dtype and a half one, or every; and gradients."""
    known = op.supported_dtypes("cpu")
    usual = [name for name in ("float32", "int64", "bool") if getattr(torch, name) in known]
    half = [name for name in HALF if getattr(torch, name) in known]
    random.Random(title(op)).shuffle(half)
    names = usual + half if every else usual[:1] + half[:1]
    smooth = op.supports_autograd and torch.float64 in op.supported_backward_dtypes("cpu")
    gradients = ["gradients"] if smooth and op.name not in UNSPECIFIED else []
    return names + gradients


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
            driver.drive(f"{title(op)} {kind} {number}", sample, row_of(op))


OF_BITS = {"bitcast"}  # rows whose results are not those of the same numbers in a wider dtype


class RowSample:
    """One of the project's own samples of a row as a case: also what only the tape emits."""

    def __init__(self, name: str, sample: Sample) -> None:
        self.name, self.sample = name, sample
        listed = [x if isinstance(x, list) else [x] for x in self.sample.operands]
        self.operands = [one for part in listed for one in part]
        tensors = [x.values for x in self.operands if isinstance(x, Given)]
        self.shapes = [x.shape for x in tensors]
        self.weights: list[str] = []
        self.scale = self.terms = scale_of([torch.from_numpy(x) for x in tensors])
        self.looser = 1.0

    def distribute(self, placements: Sequence[str]) -> list[gt.Tensor]:
        tensors = [x for x in self.operands if isinstance(x, Given)]
        pairs = enumerate(zip(tensors, placements, strict=True))
        return [place(self._tensor(x), how, at) for at, (x, how) in pairs]

    def compute(self, placed: list[gt.Tensor], placements: Sequence[str]) -> object:
        rest = iter(placed)
        operands = [next(rest) if isinstance(x, Given) else x for x in self.operands]
        names = [text.split(":")[0] for text in ROWS[self.name].get("attrs", [])]
        attrs = zip(names, self.sample.attrs, strict=False)  # appended ones may be left out
        named = {key: self._attr(value) for key, value in attrs if value is not None}
        return _core.call(self.name, *operands, **named)

    def wide(self) -> "RowSample | None":
        halves = any(isinstance(x, Given) and x.dtype in HALF for x in self.operands)
        if not halves or self.name in OF_BITS:
            return None

        def widened(x: Operand) -> Operand:
            if isinstance(x, list):
                return [widened(one) for one in x]
            if not isinstance(x, Given) or x.dtype not in HALF:
                return x
            rounded = torch.from_numpy(x.values.copy()).to(getattr(torch, x.dtype))
            return Given(rounded.double().numpy(), "float64")

        operands = tuple(widened(x) for x in self.sample.operands)
        return RowSample(self.name, dataclasses.replace(self.sample, operands=operands))

    def _tensor(self, x: Given) -> gt.Tensor:
        return to_gt(torch.from_numpy(x.values.copy()).to(getattr(torch, x.dtype)))

    def _attr(self, value: object) -> object:
        is_dtype = isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype)
        return getattr(_core, value) if is_dtype else value


def drive_row(name: str, driver: Driver) -> None:
    """The project's own samples of a row, in every dtype that they have."""
    for number, sample in enumerate(SAMPLES[name]):
        names = [text.split(":")[0] for text in ROWS[name].get("attrs", [])]
        named = dict(zip(names, sample.attrs, strict=False))
        if named.get("total") is not None:
            continue  # what the planner gives a member: no client emits it, so it is not cut again
        driver.drive(f"{name} own {number}", RowSample(name, sample), name)


def rows() -> list[str]:
    """Rows with operands that a kernel computes."""
    return [name for name in SAMPLES if ROWS[name]["inputs"]]


def main(workers: str, name: str, kind: str, number: str, *placements: str) -> int:
    gt.gpu_workers(int(workers))
    if kind == "own":
        case: RowSample | Sampled = RowSample(name, SAMPLES[name][int(number)])
        row: str | None = name
    else:
        op = next(op for op in entries() if title(op) == name)
        case = next(sample for place, sample in samples(op, kind) if place == int(number))
        row = row_of(op)
    driver = Driver(int(workers))
    driver.compare(f"{name} {kind} {number}", case, placements, expected(case, row))
    lines = [f"shapes {case.shapes}", *(driver.tally.findings or ["right"])]
    sys.stdout.write("\n".join(lines) + "\n")
    return len(driver.tally.findings)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
