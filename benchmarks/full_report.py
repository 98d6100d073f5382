"""The dated result file of full.py and its picture; reads the results of the parts."""

import io
import json
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt
from PIL import Image

from gt.tools.demo.plot import running_mean

FOLDER = Path(__file__).resolve().parent / "full"
MEGABYTE = 1 << 20
DTYPES = ("float64", "float32")
MEAN_STEPS = 20
EQUAL_AT = 1e-19  # stands for no difference on a logarithmic axis
Figures = dict[str, Any]

CLAIMS = {
    "gpt": "a character GPT with dropout, 300 steps under 12 layouts, two dtypes: the losses "
    "of one worker (pipelines bit for bit, the others to 1e-9 and 1e-5)",
    "vocabulary": "vocabulary 50257 over TP 2, 3 and 4: 2,000 steps, each loss sharded and "
    "unsharded from the same parameters to 1e-6",
    "demo": "the Mini-GPT of 204,673,024 parameters on eight workers by each command, without the "
    "YAML and under two others: the same losses (1e-4)",
    "memory": "1 GB created cut over 4 workers is nowhere whole; FSDP's peak beside the replicated",
    "programs": "random programs under random layouts on real workers, values and gradients",
    "operators": "every sample of every operator under drawn layouts: 0 wrong, 0 refused",
    "clusters": "simulated clusters with faults",
    "simulated": "random programs with layouts in the simulator",
    "parallel": "beside DistributedDataParallel and DTensor on Gloo, 2 processes",
    "others": "the other slow tests",
}


def tests(path: Path) -> Iterator[tuple[str, bool, Figures]]:
    """Each test in pytest's XML: its name, whether it passed, and its figures."""
    if not path.exists():
        return
    for case in ET.parse(path).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        passed = all(case.find(word) is None for word in ("failure", "error"))
        figures = {one.get("name", ""): one.get("value", "") for one in case.iter("property")}
        yield case.get("name", ""), passed, figures


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def in_megabytes(count: float) -> str:
    return f"{count / MEGABYTE:,.1f}"


def counted(results: list[tuple[str, bool, Figures]]) -> str:
    failed = [name for name, passed, _ in results if not passed]
    text = f"{len(results) - len(failed)} of {len(results)} passed"
    return f"{text}; failed: {', '.join(failed)}" if failed else text


def worst(results: list[tuple[str, bool, Figures]]) -> str:
    differences = [
        float(figures["difference"]) for *_, figures in results if "difference" in figures
    ]
    return f"largest difference {max(differences):.1e}" if differences else "no figure"


# ---- the parts ----


def gpt(kept: Path) -> tuple[str, str]:
    """The figure of the part, and its table of differences and bytes."""
    results = list(tests(kept / "gpt.xml"))
    runs: dict[str, dict[str, Figures]] = {}
    for name, _, figures in results:
        layout, dtype = re.findall(r"\w+", name.partition("[")[2])
        if "losses" in figures:
            runs.setdefault(layout, {})[dtype] = figures
    if not runs:
        return counted(results), ""
    draw(runs)
    rows = []
    for layout, by_dtype in runs.items():
        step = json.loads(by_dtype.get("float32", next(iter(by_dtype.values())))["a_step"])
        differences = [
            f"{float(by_dtype[dtype]['difference']):.1e}" if dtype in by_dtype else ""
            for dtype in DTYPES
        ]
        counts = (f"{value:,}" for value in step.values())
        rows.append([layout, *differences, *counts])
    head = ["layout", *(f"{dtype}, difference" for dtype in DTYPES)]
    head += ["bytes moved a step", "all-reduces", "reduce-scatters", "all-gathers", "all-to-alls"]
    text = (
        "Losses: the largest relative difference from one worker's in 300 steps. Bytes and "
        "collectives of one step, counted by the dispatcher (`gt.debug.stats()`) in float32.\n\n"
        + table([*head, "transfers"], rows)
        + "\n\n![One loss curve, and the difference of each layout from it](../layouts.png)"
    )
    lasting = [f"{dtype} {worst([one for one in results if dtype in one[0]])}" for dtype in DTYPES]
    return f"{counted(results)}; {'; '.join(lasting)}", text


def draw(runs: dict[str, dict[str, Figures]]) -> None:
    """One worker's loss curve, and for each layout the largest difference from it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    losses = json.loads(runs["one"][DTYPES[0]]["losses"])
    left.plot(losses, linewidth=0.6, color="#90caf9", label="each step")
    mean = running_mean(losses, MEAN_STEPS)
    left.plot(mean, linewidth=1.6, color="#0d47a1", label=f"mean of {MEAN_STEPS} steps")
    left.set(title=f"one worker, {DTYPES[0]}", xlabel="step", ylabel="loss")
    left.legend()
    layouts = [layout for layout in runs if layout != "one"]
    styles = zip(DTYPES, ("#0d47a1", "#e65100"), (70, 18), ("left", "right"), strict=True)
    for dtype, colour, size, side in styles:
        epsilon = float(np.finfo(dtype).eps)
        right.axvline(epsilon, color=colour, linewidth=0.8, linestyle="--")
        right.text(
            epsilon, -0.9, f" {dtype}'s epsilon ", color=colour, fontsize=8, ha=side, va="bottom"
        )
        differences = [float(runs[layout][dtype]["difference"]) for layout in layouts]
        shown = [max(difference, EQUAL_AT) for difference in differences]
        right.scatter(shown, range(len(layouts)), color=colour, label=dtype, s=size, zorder=3)
    right.axvline(EQUAL_AT, color="#9e9e9e", linewidth=0.8)
    right.text(EQUAL_AT, -0.9, " equal", color="#616161", fontsize=8, ha="left", va="bottom")
    right.set(xscale="log", xlabel=f"largest relative difference of {len(losses)} losses")
    right.set_yticks(range(len(layouts)), layouts)
    right.set(xlim=(EQUAL_AT / 10, 1e-5), ylim=(len(layouts) - 0.5, -1.6))
    right.set_title(f"{len(layouts)} layouts have the losses of one worker")
    right.grid(axis="y", color="#eeeeee")
    right.legend(loc="lower center")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    with Image.open(drawn) as image:  # a fourth of the size, without a visible difference
        image.convert("RGB").quantize(128).save(FOLDER.parent / "layouts.png", optimize=True)
    plt.close(figure)


def demo(kept: Path) -> tuple[str, str]:
    results = list(tests(kept / "demo.xml"))
    rows = [
        [figures["way"], figures["losses"], f"{float(figures['difference']):.1e}"]
        for *_, figures in results
        if "way" in figures
    ]
    text = table(["way", "losses", "difference from one worker"], rows)
    return f"{counted(results)}; {worst(results)}", text if rows else ""


def memory(kept: Path) -> tuple[str, str]:
    results = list(tests(kept / "memory.xml"))
    parts, trained = [], {}
    for *_, figures in results:
        if "creation" in figures:
            parts.append(creation(json.loads(figures["creation"])))
        if "trained" in figures:
            trained |= json.loads(figures["trained"])
    rows = [
        [
            name,
            in_megabytes(one["parameters"]),
            in_megabytes(max(one["held"])),
            in_megabytes(max(one["peak"])),
            f"{max(one['peak']) / max(trained['one']['peak']):.2f}",
            in_megabytes(one["moved"]),
        ]
        for name, one in trained.items()
    ]
    head = [
        "MB of the fullest worker",
        "parameters",
        "after a step",
        "peak",
        "of one worker's peak",
    ]
    if rows:
        text = "An MLP of 8 x (1024 - 1024) in float32, batch 16, AdamW, three steps.\n\n"
        parts.append(text + table([*head, "moved in all"], rows))
    return counted(results), "\n\n".join(parts)


def creation(memory: Figures) -> str:
    shares: dict[float, list[str]] = {}
    most = 0.0
    for way, figures in memory["ways"].items():
        shares.setdefault(figures["share"], []).append(way)
        most = max(most, figures["held"] / memory["bytes"] / figures["share"])
    ways = "; ".join(f"{share:.2f} of it: {', '.join(ways)}" for share, ways in shares.items())
    grown = ", ".join(in_megabytes(one) for one in memory["workers"])
    return (
        f"{in_megabytes(memory['bytes'])} MB over 4 workers. What a worker may hold at most, "
        f"by the way in which it is made: {ways}. The fullest worker held {most:.3f} of that. "
        f"Processes grew at most by {grown} MB (workers), the client with the dispatcher by "
        f"{in_megabytes(memory['client'])} MB."
    )


def figure_of(part: str, kept: Path, facts: Figures) -> tuple[str, str]:
    """The text of the part's row, and its own paragraph."""
    last = facts["printed"].strip().splitlines()[-1:] or [""]
    if part == "gpt":
        return gpt(kept)
    if part == "demo":
        return demo(kept)
    if part == "memory":
        return memory(kept)
    if part == "parallel":
        rows = re.findall(r"^\| ([^|\n]+) \|.*\| ([\d.]+) x \|$", facts["printed"], re.MULTILINE)
        text = facts["printed"].strip().replace("\n|", "\n\n|", 1)
        return "; ".join(f"{way}: {ratio} of its time" for way, ratio in rows), text
    results = list(tests(kept / f"{part}.xml"))
    if part == "vocabulary":
        each = [
            f"TP {one['workers']}: {float(one['difference']):.1e}" for *_, one in results if one
        ]
        return f"{counted(results)}; largest differences {', '.join(each)}", ""
    if part == "programs":
        programs = sum(int(one.get("programs", 0)) for *_, one in results)
        return f"{programs:,} programs right; {counted(results)}", ""
    return (counted(results) if results else last[0]), ""


def write(kept: Path, parts: list[str]) -> str:
    """Write today's file; returns its path."""
    rows, paragraphs, machines = [], [], []
    FOLDER.mkdir(exist_ok=True)
    for part in parts:
        facts = json.loads((kept / f"{part}.json").read_text(encoding="utf-8"))
        figure, text = figure_of(part, kept, facts)
        state = "yes" if facts["code"] == 0 else "**no**"
        rows.append(
            [CLAIMS[part], figure, state, f"{facts['seconds']:,}", facts["commit"], facts["load"]]
        )
        machines.append(facts["machine"])
        paragraphs += [f"## {part}\n\n{text}"] if text else []
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    text = "\n\n".join(
        [
            f"# Full sizes, {today}",
            (
                f"{' / '.join(dict.fromkeys(machines))}. Written by `python benchmarks/full.py`; "
                "each row names the commit that it ran on, and the machine's load when it began."
            ),
            table(["what", "figure", "holds", "seconds", "commit", "load"], rows),
            *paragraphs,
        ]
    )
    file = FOLDER / f"{today}.md"
    file.write_text(text + "\n", encoding="utf-8")
    return str(file)
