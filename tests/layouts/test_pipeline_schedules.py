"""Pipeline schedules: each unit once and behind what it needs, memory, the bubbles of papers."""

import itertools

import pytest

from gt.errors import InvalidValue
from gt.pipeline import (
    EMBEDDING,
    SCHEDULES,
    Costs,
    Unit,
    peak,
    plan,
    simulate,
    steady_idle_share,
    steady_step,
)

SIZES = [(1, 1), (1, 3), (2, 1), (2, 4), (3, 2), (3, 7), (4, 3), (4, 8), (5, 5), (8, 20)]
SPREAD = [(False, False), (True, False), (False, True), (True, True)]
UNEVEN = Costs(
    forward={0: 1.0, 1: 2.5, 2: 0.3}, backward={0: 1.4, 3: 0.2}, weights={1: 0.01, 2: 4.0}
)

# p = 4, m = 8, F = B = W: a step by itself, its bubble, the same where steps follow each other, and
# the most micro-batches of activations.
FOUR_RANKS = {
    "gpipe": (33.0, 0.273, 33.0, 0.273, 8.0),
    "1f1b": (33.0, 0.273, 33.0, 0.273, 4.0),
    "interleaved": (28.5, 0.158, 28.5, 0.158, 5.5),
    "zb-h1": (27.0, 0.111, 27.0, 0.111, 4.0),
    "zbv": (25.5, 0.059, 24.0, 0.0, 4.0),
}


def kinds(name):
    return "FBW" if SCHEDULES[name].splits else "FB"


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_figures_of_four_ranks(name):
    planned = plan(name, 4, 8)
    run = simulate(planned)
    length, bubble, steady, steady_bubble, most = FOUR_RANKS[name]
    assert run.length == pytest.approx(length)
    assert run.idle_share == pytest.approx(bubble, abs=5e-4)
    assert steady_step(planned) == pytest.approx(steady)
    assert steady_idle_share(planned) == pytest.approx(steady_bubble, abs=5e-4)
    assert max(peak(planned, rank) for rank in range(4)) == most


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("embedding", "head"), SPREAD)
@pytest.mark.parametrize("costs", [Costs(), UNEVEN], ids=["equal", "uneven"])
def test_each_unit_once_and_behind_what_it_needs(name, embedding, head, costs):
    for ranks, microbatches in SIZES:
        planned = plan(name, ranks, microbatches, embedding=embedding, head=head, costs=costs)
        stages = range(planned.stages)
        expected = set(itertools.product(stages, range(microbatches), kinds(name)))
        for number in range(microbatches):
            if embedding:
                expected |= {(EMBEDDING, number, kind) for kind in ("F", kinds(name)[-1])}
            if head:
                expected |= {(len(stages), number, kind) for kind in kinds(name)}
        assert len(planned.order) == len(expected), (ranks, microbatches)
        assert set(planned.order) == expected, (ranks, microbatches)
        place = {unit: index for index, unit in enumerate(planned.order)}
        for unit in planned.order:
            assert all(place[needed] < place[unit] for needed in planned.needs(unit)), unit
        for stage, kind in itertools.product(stages, kinds(name)):
            numbers = [i for s, i, k in planned.order if (s, k) == (stage, kind)]
            assert numbers == sorted(numbers)  # so that gradients are added in one order


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rank_has_the_schedules_own_order(name):
    """Spread units are inserted and reorder nothing else."""
    for (ranks, microbatches), (embedding, head) in itertools.product(SIZES, SPREAD):
        planned = plan(name, ranks, microbatches, embedding=embedding, head=head, costs=UNEVEN)
        for rank in range(ranks):
            own = [unit for unit in planned.of_rank(rank) if 0 <= unit.stage < planned.stages]
            assert own == list(planned.schedule.order(rank, ranks, microbatches))


@pytest.mark.parametrize(
    ("name", "limit"), [("1f1b", 0), ("zb-h1", 0), ("zbv", 0), ("interleaved", 1)]
)
def test_no_more_activations_than_ranks(name, limit):
    """Whatever the number of micro-batches; interleaved holds 1 + (p - 1) / 2p times as many."""
    for ranks, microbatches in SIZES:
        planned = plan(name, ranks, microbatches)
        most = max(peak(planned, rank) for rank in range(ranks))
        assert most <= ranks + limit * (ranks - 1) / 2


def test_the_formulas_of_the_bubble():
    """(p - 1) (F + B + W); (p - 1) (F + B - W); for ZB-V (p - 1) F / 2 and none between steps."""
    for ranks, microbatches in [(2, 4), (3, 9), (4, 8), (6, 12), (8, 16)]:
        work = 3.0 * microbatches
        for name, bubble in {"gpipe": 3.0, "1f1b": 3.0, "zb-h1": 1.0, "zbv": 0.5}.items():
            run = simulate(plan(name, ranks, microbatches))
            assert run.length == pytest.approx(work + (ranks - 1) * bubble), (name, ranks)
        assert steady_step(plan("zbv", ranks, microbatches)) == pytest.approx(work)


def test_a_head_that_is_spread_is_no_bottleneck():
    """The last of four stages three times as heavy, as its head is; or the head on all ranks."""
    heavy = dict.fromkeys(range(3), 1.0) | {3: 3.0}
    own = simulate(plan("1f1b", 4, 8), Costs(forward=heavy, backward=heavy, weights=heavy))
    assert own.length == pytest.approx(81.0)
    half = dict.fromkeys(range(9), 0.5)  # two chunks a rank; a quarter of the head's two
    spread = plan("zbv", 4, 8, head=True, costs=Costs(forward=half, backward=half, weights=half))
    assert simulate(spread).length <= 81.0 / 2.1
    assert steady_step(spread) == pytest.approx(36.0)  # all that there is to do


def test_transfers_lengthen_a_step_and_are_no_work():
    planned = plan("1f1b", 4, 8)
    run = simulate(planned, Costs(transfer=0.25))
    assert run.length > 33.0
    assert [run.busy(rank) for rank in range(4)] == [24.0] * 4


def test_the_phases_of_four_stages():
    assert plan("1f1b", 4, 8).phases() == (3, 5, 3)
    assert plan("1f1b", 4, 8, embedding=True, head=True).phases() == (3, 5, 3)
    assert " ".join(map(str, plan("1f1b", 4, 8).of_rank(0))) == (
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    )
    assert str(Unit(1, 3, "W")) == "W3"


@pytest.mark.parametrize("words", [("zb-v", 4, 8), ("1f1b", 0, 8), ("1f1b", 4, 0)])
def test_there_is_no_such_plan(words):
    with pytest.raises(InvalidValue, match="schedule"):
        plan(*words)
