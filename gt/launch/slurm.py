"""Workers by Slurm: by srun within an allocation, or a batch job in which that happens.

The job's first node has dispatcher and program. As a program (`python -m gt.launch.slurm JOB FILE`)
this prints a job's output as it comes and ends with the job's status.
"""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import sys
import time

from gt.launch.engine import Attached, Command, Plan, Submitted

WARNING_SECONDS = 120  # from SIGTERM to the program, which may save, to the end of the time limit
LOOK_SECONDS = 1.0  # between two queries to the controller, which many users share
OUTPUT = "{name}-{job}.out"
# Settings that are options of sbatch by these names.
SETTINGS = ("account", "constraint", "cpus-per-task", "mem", "nodes", "partition", "qos", "time")
UNKNOWN = "Invalid job id"
INTERRUPTED = 130  # a shell's exit status for Ctrl-C
EXIT_CODE = re.compile(r"\bExitCode=(\d+):(\d+)")


def _steps(plan: Plan) -> list[Command]:
    words = ["srun", "--ntasks", str(plan.workers), "--kill-on-bad-exit=1", "--export=ALL"]
    words += [*plan.options, *plan.one_worker()]
    return [Command(label="srun", words=tuple(words))]


def _script(plan: Plan) -> str:
    """A batch script: its resource requests, and one command."""
    wanted = {
        "job-name": plan.name,
        "ntasks": str(plan.workers),
        **({"gpus-per-task": str(plan.gpus)} if plan.gpus else {}),
        "output": OUTPUT.format(name=plan.name, job="%j"),
        "chdir": plan.folder,
        "signal": f"B:TERM@{WARNING_SECONDS}",
        **{name: value for name, value in plan.settings.items() if value},
    }
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH --{name}={value}" for name, value in wanted.items()]
    lines += [f"#SBATCH {option}" for option in plan.options]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in plan.environment.items()]
    words = ["--on", "srun", "-n", str(plan.workers)]
    words += ["--address-file", plan.address_file] if plan.address_file else []
    words += plan.serving
    lines += [f"exec {shlex.join(plan.launcher(*words))}"]
    return "".join(f"{line}\n" for line in lines)


def _follow(plan: Plan, job: str) -> list[str]:
    path = pathlib.Path(plan.folder, OUTPUT.format(name=plan.name, job=job))
    return [sys.executable, "-m", "gt.launch.slurm", job, str(path)]


def main() -> int:
    """Print what a job writes until it has ended; returns its exit status."""
    job, file = sys.argv[1:]
    path, place = pathlib.Path(file), 0
    try:
        while _asked("squeue", "--noheader", "--format=%T", "--jobs", job).strip():
            place += _print_from(path, place)
            time.sleep(LOOK_SECONDS)
        text = _asked("scontrol", "show", "job", job)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        _print_from(path, place)
    if (match := EXIT_CODE.search(text)) is None:
        sys.stderr.write(f"gt launch: Slurm has forgotten how job {job} ended\n")
        return 1
    code, number = int(match[1]), int(match[2])
    return 128 + number if number else code


def _asked(*words: str) -> str:
    """The controller's answer, retried while it is busy or away; empty for an unknown job."""
    while True:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if not done.returncode:
            return done.stdout
        if UNKNOWN in done.stderr:
            return ""
        time.sleep(LOOK_SECONDS)


def _print_from(path: pathlib.Path, place: int) -> int:
    """Print the rest of a file; returns its length."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(place)
        data = file.read()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
    return len(data)


ENGINE = Submitted(
    name="slurm",
    summary="a batch job of Slurm: program, dispatcher and workers in one allocation",
    needs=("sbatch", "squeue", "scontrol", "scancel"),
    settings=dict.fromkeys(SETTINGS, ""),
    text=_script,
    submit=lambda _plan: ("sbatch", "--parsable"),
    follow=_follow,
    cancel=lambda _plan, job: ("scancel", "--quiet", job),
)
STEP = Attached(
    name="srun",
    summary="workers by srun, within an allocation of Slurm",
    needs=("srun",),
    commands=_steps,
    reaches_out=True,
)

if __name__ == "__main__":
    sys.exit(main())
