"""Measures the project's claims at their stated sizes, part by part; `just full` runs this.

`python benchmarks/full.py [PART ...]` runs those parts (default: all) and keeps the results of each
under target/full/. `--report` writes them as benchmarks/full/DATE.md, with a picture of the loss
curves: every part with the commit that it ran on. Parts are slow tests, which write their figures
into pytest's XML, and commands; full_report.py formats the report.
"""

import argparse
import json
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from full_report import write
from pairs import load, machine

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "target/full"
SEEDS = "0..20000"
PYTEST = (sys.executable, "-m", "pytest", "--quiet")
OF_PARTS = ("gpt_layouts", "cut_embeddings", "tuning_demo", "memory_layouts", "placements")


def slow(*words: str) -> list[str]:
    """The pytest command for the slow tests among these words."""
    return [*PYTEST, "--slow", "-m", "slow", *words]


def simulator(kind: str) -> list[str]:
    return ["cargo", "run", "--release", "--quiet", "-p", "gt-sim", "--", kind, SEEDS]


PARTS = {
    "gpt": slow("tests/layouts/test_gpt_layouts.py"),
    "vocabulary": slow("tests/layouts/test_cut_embeddings.py"),
    "demo": slow("tests/layouts/test_tuning_demo.py"),
    "memory": [*PYTEST, "--slow", "tests/layouts/test_memory_layouts.py"],
    "programs": slow("tests/layouts/test_placements.py", "-k", "programs"),
    "operators": slow("tests/layouts/test_placements.py", "-k", "sample"),
    "clusters": simulator("--range"),
    "simulated": simulator("--programs"),
    "parallel": [sys.executable, "benchmarks/parallel.py", "--steps", "8"],
    "others": slow(*(f"--ignore=tests/layouts/test_{name}.py" for name in OF_PARTS)),
}


def commit() -> str:
    """The checked-out commit, marked where files differ from it."""
    name = subprocess.check_output(["git", "rev-parse", "--short=9", "HEAD"], cwd=ROOT, text=True)
    changed = subprocess.check_output(
        ["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, text=True
    )
    return name.strip() + (" with changes" if changed else "")


def run(part: str) -> int:
    """Run one part, print its output, and keep it; returns its exit code."""
    command = PARTS[part]
    if "pytest" in command:
        command = [*command, f"--junitxml={KEPT / part}.xml"]
    print(f"== {part}: {' '.join(command)}", flush=True)
    facts = {"part": part, "commit": commit(), "machine": machine(), "load": load()}
    facts["date"] = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    start = time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        printed = ""
        for line in process.stdout or ():
            print(line, end="", flush=True)
            printed += line
    facts |= {"seconds": round(time.monotonic() - start), "code": process.returncode}
    facts["printed"] = printed[-8_000:]
    (KEPT / f"{part}.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    print(f"== {part}: {facts['seconds']} s, exit code {process.returncode}", flush=True)
    return process.returncode


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--report", action="store_true", help="write what has been run, run nothing"
    )
    words = parser.parse_args()
    for part in words.parts:
        if part not in PARTS:
            parser.error(f"{part} is none of {', '.join(PARTS)}")
    KEPT.mkdir(parents=True, exist_ok=True)
    failed = []
    if not words.report:
        failed = [part for part in words.parts or PARTS if run(part) != 0]
    if words.report or not words.parts:
        print(write(KEPT, [part for part in PARTS if (KEPT / f"{part}.json").exists()]))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
