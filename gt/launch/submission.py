"""A launch by a text: submitted, followed to its end, and removed."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

from gt.launch import watch
from gt.launch.engine import LaunchError, Plan, Submitted


def run(engine: Submitted, plan: Plan) -> int:
    """Submit, print the program's output, and end with its status; a signal cancels the job.

    Raises:
        LaunchError: the text was rejected.
    """
    job = submit(engine, plan)
    try:
        with watch.on_signal(_stop, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            return subprocess.run(engine.follow(plan, job), check=False).returncode
    except _Stopped:
        return 128 + signal.SIGTERM
    finally:
        cancel(engine.cancel(plan, job))


def submit(engine: Submitted, plan: Plan) -> str:
    """Submit the text; returns the job's name.

    Raises:
        LaunchError: the text was rejected; the message has the engine's output.
    """
    done = subprocess.run(
        engine.submit(plan),
        input=engine.text(plan),
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout.replace(";", " ").split()
    if done.returncode or not words:
        said = (done.stderr or done.stdout).strip()
        raise LaunchError(
            f"{engine.submit(plan)[0]} has ended {watch.manner(done.returncode)}: {said}"
        )
    return words[0]


def cancel(words: Sequence[str]) -> None:
    """End a job; a job that has ended already is no error."""
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


class _Stopped(Exception):
    """The launch was asked to end."""


def _stop(number: int) -> None:
    raise _Stopped(number)
