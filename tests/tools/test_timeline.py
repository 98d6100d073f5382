"""`gt visualize`: where its marks and ticks are, which rows it has, what its colours mean."""

import itertools
import random
import re

import pytest

from gt import _core
from gt.tools import log, timeline
from gt.tools.time_axis import BREAK_WIDTH, BREAKS_MAX, TimeAxis

LEFT, RIGHT = 90.0, 1180.0
LETTER_WIDTH = 6.6


def times_of(seed):
    """Instants in microseconds to seconds, as bursts with waits between them."""
    draw = random.Random(seed)
    scale = 10.0 ** draw.uniform(-6, 1)
    waits = [
        draw.expovariate(1 / scale) * draw.choice([1, 1, 1, 1, 0, draw.choice([1, 30, 5000])])
        for _ in range(draw.choice([0, 1, 2, 5, 40, 400]))
    ]
    return list(itertools.accumulate(waits, initial=draw.uniform(0, 86_000)))


@pytest.mark.parametrize("seed", range(60))
def test_marks_are_in_order_and_fill_the_picture(seed):
    times = times_of(seed)
    axis = TimeAxis(times, LEFT, RIGHT)
    assert axis.places == sorted(axis.places)
    assert axis.places[0] == LEFT
    if axis.seconds > 1e-6:
        assert axis.places[-1] == pytest.approx(RIGHT)
    assert axis.seconds == pytest.approx(times[-1] - times[0], abs=1e-9)
    assert len(axis.breaks) <= BREAKS_MAX


@pytest.mark.parametrize("seed", range(60))
def test_a_tick_is_between_the_marks_of_its_time_and_touches_no_other(seed):
    times = times_of(seed)
    axis = TimeAxis(times, LEFT, RIGHT)
    marks = [(time - times[0], place) for time, place in zip(times, axis.places, strict=True)]
    end = -1e9
    for x, text in axis.ticks(LETTER_WIDTH):
        seconds = float(text.replace(",", "")) / 1e3
        assert x >= max(place for time, place in marks if time <= seconds + 1e-9) - 0.5
        assert x <= min(place for time, place in marks if time >= seconds - 1e-9) + 0.5
        assert not any(start < x < start + BREAK_WIDTH for start, _ in axis.breaks)
        half = LETTER_WIDTH * len(text) / 2
        assert x - half > end
        end = x + half


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([3.0], "0"),
        ([3.0, 3.0, 3.0], "0"),
        ([3.0, 3.25, 3.5], "0 50 100 150 200 250 300 350 400 450 500"),
        ([0.0, 0.0004, 0.0010], "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0"),
        (
            [0.0, 0.001, 0.002, 40.0, 40.002],
            "0 0.5 1.0 1.5 2.0 40,000.5 40,001.0 40,001.5 40,002.0",
        ),
    ],
    ids=str,
)
def test_ticks_are_round_milliseconds_since_the_first(times, expected):
    assert [
        text for _, text in TimeAxis(times, LEFT, RIGHT).ticks(LETTER_WIDTH)
    ] == expected.split()


def test_a_time_that_goes_back_counts_as_no_time():
    assert TimeAxis([5.0, 6.0, 0.5, 1.5], LEFT, RIGHT).seconds == 2.0  # past midnight


# ---- rows and legend ----

ADD = "%3 = add %1 2.5  # f32[] replicate@[1] 11:56:05.2"
SCOPED = "%4 = add %1 2.5 @layer1  # f32[] shard(0)@[0,2] 11:56:05.3"
READ = "read %3 request=1 start=0 count=1  # 11:56:05.4"
FAILED = "%5 = matmul %1 %1  # f32[] replicate@[1] 11:56:05.5 ERROR no memory"


def picture(*lines):
    return timeline.arranged([entry for line in lines if (entry := log.entry(line))])


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ([ADD], ["worker 1"]),
        ([ADD, SCOPED], ["signals", "worker 0", "worker 1", "worker 2"]),
        ([ADD, READ], ["worker 1", "program"]),
        ([READ], ["program"]),
    ],
    ids=str,
)
def test_a_row_is_drawn_where_something_is_in_it(lines, rows):
    words = [word for word in picture(*lines).words if word.x < timeline.LEFT and not word.middle]
    assert sorted(word.text for word in words) == sorted([*rows, "time, ms"])
    assert [word.text for word in sorted(words, key=lambda word: word.y)] == [*rows, "time, ms"]


def test_the_legend_names_what_is_in_the_picture_in_words():
    drawn = picture(ADD, READ, FAILED)
    legend = [word.text for word in drawn.words if word.y > drawn.height - 30]
    assert legend == ["elementwise", "reads and layouts", "failed"]
    assert drawn.boxes[-1].color == timeline.FAILED


def test_a_wait_that_is_left_out_is_in_the_legend_and_says_how_long():
    lines = [f"%{k} = add %1 2.5  # f32[] replicate@[0] 11:56:05.{k:03}" for k in range(9)]
    late = "%9 = add %1 2.5  # f32[] replicate@[0] 11:59:05.000"
    drawn = picture(*lines, late)
    assert [word.text for word in drawn.words].count("time without instructions, left out") == 1
    assert "1.8e+05 ms without an instruction" in [box.hint for box in drawn.boxes]
    assert not any("left out" in word.text for word in picture(*lines).words)


def test_each_family_of_operators_has_words_and_a_colour_of_its_own():
    assert {family for _, family, *_ in _core.op_table()} == set(timeline.FAMILIES)
    for column in zip(*timeline.FAMILIES.values(), strict=True):
        assert len(set(column)) == len(timeline.FAMILIES)
    colours = [color for _, color in timeline.FAMILIES.values()] + [timeline.FAILED]
    for one, other in itertools.combinations(colours, 2):
        assert distance(one, other) > 60, (one, other)


def distance(one, other):
    """Distance of two colours in red, green and blue."""
    parts = [[int(color[place : place + 2], 16) for place in (1, 3, 5)] for color in (one, other)]
    return sum((a - b) ** 2 for a, b in zip(*parts, strict=True)) ** 0.5


LOG = """\
%0 = randn size=[2,2]   # f32[2,2] replicate@[0] 12:00:00.000100 s1 a.py:1
%1 = matmul %0 %0 @stage1   # f32[2,2] replicate@[1] 12:00:00.000200 s1 a.py:2 moved=16
%0 = full size=[2] value=1 dtype=f32   # f32[2] replicate@[1] 12:00:00.000250 s2 b.py:1
read %1 request=1 start=0 count=4   # 12:00:00.000300 s1
"""
NOON_US = 12 * 3600 * 1e6
RECORDS = {
    0: [("s1 %0 randn", 5000.0, 2000.0), ("s1 %1 send", 7000.0, 500.0)],
    1: [("s1 %1 receive", 6000.0, 1500.0), ("s2 %0 full", 7600.0, 100.0),
        ("s1 %1 matmul", 8000.0, 4000.0)],
}  # fmt: skip


def drawn(tmp_path, records):
    """The picture's boxes with hints, by their first line."""
    path = tmp_path / "log"
    path.write_text(LOG, encoding="utf-8")
    for worker, lines in records.items():
        text = "".join(f"{name} {NOON_US + start:.1f} {took:.1f}\n" for name, start, took in lines)
        (tmp_path / f"log.worker{worker}").write_text(f"{text}s1 %9 add 43", encoding="utf-8")
    assert timeline.draw(str(path), str(tmp_path / "line.svg")) == 0
    return (tmp_path / "line.svg").read_text(encoding="utf-8")


def test_marks_are_when_workers_executed(tmp_path):
    """Marks are as wide as their duration, in the rows of their workers; sessions are separate."""
    text = drawn(tmp_path, RECORDS)
    boxes = {
        hint: (float(x), float(y), float(width))
        for x, y, width, hint in re.findall(
            r'x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*><title>([^\n<]*)', text
        )
    }
    matmul = boxes["matmul on worker 1, 4.000 ms"]
    made = boxes["randn on worker 0, 2.000 ms"]
    assert matmul[2] == pytest.approx(2 * made[2], rel=0.02)
    assert made[0] + made[2] <= matmul[0]
    assert boxes["send on worker 0, 0.500 ms"][1] > made[1]  # beside what computes
    assert boxes["receive on worker 1, 1.500 ms"][1] > matmul[1]
    assert boxes["full on worker 1, 0.100 ms"][0] < matmul[0]
    assert "a mark is as long as a worker executed" in text
    assert "b.py:1" in text
    assert "stage1" in boxes


def test_without_records_marks_are_when_they_were_planned(tmp_path):
    assert "a mark is when the dispatcher planned" in drawn(tmp_path, {})
