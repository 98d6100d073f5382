"""The sharding rules of every operator equal docs/ops.md, and leave few cases unruled.

tests/operators/harness/rules.py asks the planner, validity.py beside it tries which placements
would be correct. After a change of the rules: `just ops`, and read the difference.
"""

import json
import sys
from collections.abc import Iterator

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the harness reads ops.toml by tomllib", allow_module_level=True)
pytest.importorskip("torch")

from harness import rules, validity
from harness.entries import ROOT
from samples import Sample, given

import gt

AGAIN = "`just ops` writes it again"


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with rules.session():
        yield


@pytest.fixture(autouse=True)
def no_kernel_fails() -> Iterator[None]:
    """A member's refusal raises at the next number that is read, once everything has run."""
    yield
    gt.debug.get_worker_stats()
    gt.ones(1).item()


def written(name: str) -> dict[str, object]:
    return json.loads((ROOT / "tests/operators/harness" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", rules.rows())
def test_the_committed_rules_are_the_codes(row):
    plan = {case.title: rules.line(case) for case in rules.cases(row)}
    assert written("rules.json").get(row) == plan, AGAIN


def test_no_row_is_left_over():
    assert list(written("rules.json")) == rules.rows(), AGAIN


@pytest.mark.parametrize("row", rules.rows())
def test_nothing_more_is_right_without_a_rule(row):
    texts = {text for case in rules.cases(row) for text in validity.unruled(case)}
    known = set(written("unruled.json").get(row, []))
    assert texts <= known, f"new: {sorted(texts - known)}; a rule has been lost"
    assert known <= texts, f"a rule has been found for {sorted(known - texts)}: {AGAIN}"


# ---- the checks themselves ----

MATRICES = rules.Case("matmul", Sample((given(3, 4), given(4, 5, seed=1))))
SUM = rules.Case("sum", Sample((given(3, 4),), ((0,), False, None)))
SOFTMAX = rules.Case("softmax", Sample((given(3, 4),), (1, None)))
EXPONENTIAL = rules.Case("exp", Sample((given(3, 4),)))
SIGMOID = rules.Case("sigmoid", Sample((given(3, 4),)))


def _id(x: object) -> str:
    return x.row if isinstance(x, rules.Case) else str(x)


@pytest.mark.parametrize(
    ("case", "how", "expected"),
    [
        (MATRICES, ("shard(0)", "replicate"), ("shard(0)",)),
        (MATRICES, ("shard(1)", "shard(0)"), ("partial(sum)",)),
        (MATRICES, ("partial(sum)", "replicate"), ("partial(sum)",)),
        (MATRICES, ("partial(sum)", "partial(sum)"), None),
        (MATRICES, ("shard(1)", "replicate"), None),
        (SUM, ("shard(0)",), ("partial(sum)",)),
        (SUM, ("shard(1)",), ("shard(0)",)),
        (SUM, ("partial(max)",), None),
        (SOFTMAX, ("shard(0)",), ("shard(0)",)),
        (SOFTMAX, ("shard(1)",), None),
        (EXPONENTIAL, ("partial(max)",), ("partial(max)",)),
        (EXPONENTIAL, ("partial(sum)",), ("partial(prod)",)),
        (SIGMOID, ("partial(sum)",), None),
    ],
    ids=_id,
)
def test_trying_out_finds_what_is_right(case, how, expected):
    assert validity.valid(case, how) == expected


@pytest.mark.parametrize(
    ("case", "how", "way", "gives"),
    [
        (MATRICES, ("shard(0)", "replicate"), "kept", "shard(0)"),
        (MATRICES, ("shard(1)", "replicate"), "reduced", "partial(sum)"),
        (MATRICES, ("partial(sum)", "replicate"), "kept", "partial(sum)"),
        (SUM, ("partial(max)",), "reduced", "replicate"),
        (SOFTMAX, ("shard(1)",), "reduced", "shard(1)"),
        (
            rules.Case("sort", Sample((given(3, 7),), (1, False, True))),
            ("shard(1)",),
            "gathered",
            "replicate",
        ),
    ],
    ids=_id,
)
def test_the_planner_is_read_rightly(case, how, way, gives):
    plan = rules.planned(case, how)
    assert (plan.way, plan.gives[0]) == (way, gives)


# ---- what samples do not show ----

WRAPPED = {
    "mul": lambda x: x * gt.tensor([1.5, 2.0]),
    "div": lambda x: x / gt.tensor([1.5, 2.0]),
    "add": lambda x: x + x.to(gt.int32),
    "sum": lambda x: x.sum(),
    "where": lambda x: gt.where(gt.tensor([True, False]), x, x.to(gt.int32)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_contributions_of_integers_that_wrap_round_are_reduced_before_they_are_widened(name):
    rows = gt.tensor([[200, 3], [100, 4], [250, 5]], dtype=gt.uint8)
    whole = rows.sum(0, dtype=gt.uint8)
    spread = gt.distribute(rows, dim=0).sum(0, dtype=gt.uint8)
    assert spread.layout.is_partial
    assert WRAPPED[name](spread).tolist() == WRAPPED[name](whole).tolist()
