"""Any layout, the same numbers: every operator with its operands cut over 2, 3 and 4 workers.

tests/operators/harness/placements.py says what is compared; layout_programs.py writes
random programs.
A failure names the case, and how to run it again. `--slow` runs every sample, and more programs.
"""

import random
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if sys.version_info < (3, 11):
    pytest.skip("the harness reads ops.toml by tomllib", allow_module_level=True)

from harness.entries import entries, placed, title  # noqa: E402
from harness.layouts import WHOLE, drawn, place  # noqa: E402
from harness.placements import Driver, drive_entry, drive_row, rows  # noqa: E402
from layout_programs import Name, Step, ours, program, theirs, values_of  # noqa: E402
from torch_session import torch_workers  # noqa: E402

import gt  # noqa: E402
from gt import _core  # noqa: E402

WORKERS = (2, 3, 4)
# Samples are small: where messages cost, gathering is nearly always the cheapest way. With 3
# workers the planner weighs as it does for users, with 2 and 4 it moves as few bytes as it can.
FREE_MESSAGES = "message = 0\nkernel = 0\ntouch = 0\n"
SAMPLES_MAX = 1  # of an entry and a kind, unless --slow asks for all
AGAIN = "python tests/operators/harness/placements.py, and what follows `wrong:` or `refused:`"
PROGRAMS, PROGRAMS_SLOW = 34, 3_400  # a number of workers: about 100 and 10,000 in all
SLOW_SECONDS_MAX = 1_800
# Sums in another order, in float64, after some dozen steps; relative to the largest value.
PROGRAM_TOLERANCE = 1e-9


@pytest.fixture(scope="module", params=WORKERS, ids=lambda count: f"{count} workers")
def driver(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """A session with that many torch workers on the CPU; at its end the counts are printed."""
    environment = {}
    if request.param != 3:
        prices = tmp_path_factory.mktemp("placements") / "prices"
        prices.write_text(FREE_MESSAGES)
        environment["GT_PRICES"] = str(prices)
    with torch_workers(request.param, **environment):
        instance = Driver(request.param)
        yield instance
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("", f"{request.param} workers", *instance.tally.table(), sep="\n")


def check(driver: Driver, name: str, drive: Callable[[], None]) -> None:
    """`drive` finds nothing wrong and nothing refused."""
    before = len(driver.tally.findings)
    driver.driven.add(name)
    drive()
    findings = driver.tally.findings[before:]
    assert not findings, "\n".join([AGAIN, *findings])


@pytest.mark.parametrize("op", placed(), ids=title)
def test_entry(driver, op):
    check(driver, title(op), lambda: drive_entry(op, driver, samples_max=SAMPLES_MAX))


@pytest.mark.slow
@pytest.mark.timeout(SLOW_SECONDS_MAX)
def test_every_sample_of_every_entry(driver):
    def drive() -> None:
        for op in entries():
            drive_entry(op, driver, samples_max=None)

    check(driver, "every sample", drive)


@pytest.mark.parametrize("name", rows())
def test_row(driver, name):
    check(driver, f"row {name}", lambda: drive_row(name, driver))


def test_everything_is_met(driver):
    """Rows with operands run, dimensions are cut in every way; of what this session has run."""
    if len(driver.driven) < len(rows()) + len(placed()):
        pytest.skip("only a part of the tests above has run")
    assert not set(rows()) - driver.tally.rows
    assert set(driver.tally.divisions) == {"even", "uneven", "smaller"}


# ---- programs ----


def run(steps: Sequence[Step], placed: bool) -> tuple[dict[Name, gt.Tensor], list[gt.Tensor]]:
    """The tensors of a program, and the gradients of its operands."""
    values: dict[Name, gt.Tensor] = {}
    leaves = []
    for at, step in enumerate(steps):
        results = ours(step, values)
        if step.operator == "given":
            leaves.append(results.requires_grad_())
        values[step.out] = (
            place(results, step.args[1], at) if step.operator == "place" and placed else results
        )
    tracked = [x for x in values.values() if x.requires_grad]
    weights = [gt.tensor(values_of(tuple(x.shape), seed)) for seed, x in enumerate(tracked)]
    gradients = _core.grad(tracked, weights, leaves, False, False) if tracked else []
    return values, [x for x in gradients if x is not None]


def difference(steps: Sequence[Step]) -> str | None:
    """Difference of a program under layouts from numpy, or of its gradients from those without."""
    expected: dict[Name, np.ndarray] = {}
    pairs = []
    for step in steps:
        try:
            expected[step.out] = theirs(step, expected)
        except Exception:  # noqa: BLE001 - what a shorter program lacks, or no longer fits
            continue
        pairs.append(step)
    try:
        values, gradients = run(pairs, placed=True)
        for name, x in values.items():
            if what := apart(x.detach().numpy(), expected[name]):
                return f"{name}: {what}"
        for place_, (a, b) in enumerate(zip(gradients, run(pairs, placed=False)[1], strict=True)):
            if what := apart(a.numpy(), b.numpy()):
                return f"gradient {place_}: {what}"
    except Exception as error:  # noqa: BLE001 - a refusal is a finding
        return f"{type(error).__name__}: {error}"
    return None


def apart(a: np.ndarray, b: np.ndarray) -> str | None:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
    bound = PROGRAM_TOLERANCE * max(np.abs(b).max(initial=0), 1.0)
    worst = np.abs(a - b).max(initial=0)
    return None if worst <= bound else f"off by {worst}, {a.tolist()} for {b.tolist()}"[:400]


def shortest(steps: list[Step]) -> list[Step]:
    """The program without steps and layouts that the difference does not need."""
    size = len(steps)
    while size := size // 2:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if difference(fewer):
                steps = fewer
            else:
                at += size
    for at, step in enumerate(steps):
        if step.operator == "place":
            whole = Step(step.out, "place", (step.args[0], WHOLE))
            fewer = [*steps[:at], whole, *steps[at + 1 :]]
            steps = fewer if difference(fewer) else steps
    return steps


def check_programs(workers: int, seeds: range) -> None:
    def layouts(shape: Sequence[int], draw: random.Random) -> str:
        return drawn(shape, workers, draw)

    for seed in seeds:
        steps = program(seed, layouts)
        if difference(steps):
            steps = shortest(steps)
            text = "\n".join(map(str, steps))
            pytest.fail(f"{workers} workers, seed {seed}: {difference(steps)}\n{text}", False)


def test_programs(driver):
    check_programs(driver.workers, range(PROGRAMS))


@pytest.mark.slow
@pytest.mark.timeout(SLOW_SECONDS_MAX)
def test_many_programs(driver, record_property):
    check_programs(driver.workers, range(PROGRAMS_SLOW))
    record_property("programs", PROGRAMS_SLOW)
