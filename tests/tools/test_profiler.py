"""gt.profiler: schedules are PyTorch's, ranges say how long the workers took and what they ran."""

import json
import pathlib

import pytest
import torch

import gt
from gt.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@pytest.mark.parametrize(
    "options",
    [
        {"wait": 1, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 0, "active": 1},
        {"wait": 2, "warmup": 0, "active": 3, "repeat": 2},
        {"wait": 1, "warmup": 2, "active": 1, "repeat": 1, "skip_first": 3},
        {"wait": 3, "warmup": 1, "active": 2, "skip_first": 2, "skip_first_wait": 1},
    ],
)
def test_schedules_are_pytorchs(options: dict[str, int]) -> None:
    ours, theirs = schedule(**options), torch.profiler.schedule(**options)
    assert [ours(n).name for n in range(30)] == [theirs(n).name for n in range(30)]
    with pytest.raises(AssertionError, match="Step must be non-negative"):
        ours(-1)


def test_a_schedule_records_something() -> None:
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        schedule(wait=1, warmup=1, active=0)


@record_function("product")
def product(x: gt.Tensor) -> gt.Tensor:
    return x @ x


def test_ranges_count_what_the_workers_ran(tmp_path: pathlib.Path) -> None:
    x = gt.ones(8, 8) + 1
    with record_function("outside"):
        product(x)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        y = x + 1
        with record_function("step"):
            for _ in range(3):
                y = product(y)
        with pytest.raises(RuntimeError, match="already enabled"):
            profile().start()
    product(y)
    rows = {row.key: row for row in profiled.key_averages()}
    assert {name: (row.count, row.kernels) for name, row in rows.items()} == {
        "step": (1, 3),
        "product": (3, 3),
    }
    step, parts = rows["step"], rows["product"]
    assert 0 < parts.cpu_time_total <= step.cpu_time_total
    assert parts.cpu_time == parts.cpu_time_total / 3
    lines = profiled.key_averages().table(sort_by="count", row_limit=1).splitlines()
    assert lines[1].split()[0] == "Name"
    assert (lines[3].split()[0], lines[3].split()[-2:]) == ("product", ["3", "3"])
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events] == ["product"] * 3 + ["step"]


def test_each_round_of_a_schedule_is_ready(tmp_path: pathlib.Path) -> None:
    rounds, x = [], gt.ones(4)
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(
        schedule=plan,
        on_trace_ready=lambda one: rounds.append([part.name for part in one.events()]),
    ) as profiled:
        for _ in range(9):
            with record_function("forward"):
                x = x * 2
            profiled.step()
    assert rounds == [
        ["forward", "ProfilerStep#2", "forward", "ProfilerStep#3"],
        ["forward", "ProfilerStep#6", "forward", "ProfilerStep#7"],
    ]
    assert profiled.current_action is ProfilerAction.NONE
    write = gt.profiler.tensorboard_trace_handler(str(tmp_path / "log"), "here")
    write(profiled)
    (file,) = (tmp_path / "log").iterdir()
    assert file.name.startswith("here.")
    assert file.name.endswith(".pt.trace.json")


def test_what_profiles_kernels_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match=r"PyTorch has `profiler\.itt`; GT does not yet"):
        getattr(gt.profiler, "itt")  # noqa: B009
    with pytest.raises(AttributeError, match=r"timeit around gt\.cuda\.synchronize\(\)"):
        getattr(gt.utils, "benchmark")  # noqa: B009
