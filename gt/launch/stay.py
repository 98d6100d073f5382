"""Clusters that stay: `gt up` starts one and remembers it in a file, `gt down` ends it.

A cluster of an attached engine is a `gt launch` in a session of its own, with a log; one of a
submitted engine is a job.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gt import config
from gt.launch import submission
from gt.launch.engine import Engine, LaunchError, Plan, Submitted
from gt.launch.head import write_secret

STOP_SECONDS = 30.0  # a launch kills unresponsive processes within this time
LOOK_SECONDS = 0.05
NAME = re.compile(r"[A-Za-z0-9_-]+")


def up(engine: Engine, plan: Plan, words: Sequence[str]) -> int:
    """Start a cluster; print the settings that a shell needs to use it.

    Args:
        engine: engine of the cluster.
        plan: plan without a program.
        words: words of the command line, which `gt launch` accepts too.

    Raises:
        LaunchError: the cluster did not start.
    """
    cluster = Cluster(plan.name)
    if isinstance(engine, Submitted):
        cluster.submit(engine, plan)
        return 0
    cluster.start(words)
    sys.stderr.write(f"gt up: the cluster {plan.name} stays until: gt down {plan.name}\n")
    sys.stdout.write(cluster.exports())
    return 0


def shown(name: str) -> bool:
    """True if a cluster of that name is up; then prints the settings that a shell needs
    to use it.
    """
    cluster = Cluster(name)
    if not cluster.is_up():
        return False
    sys.stderr.write(f"gt up: {name} is up already\n")
    sys.stdout.write(cluster.exports())
    return True


def down(name: str) -> int:
    """End a cluster, and wait until it has ended.

    Raises:
        LaunchError: there is no cluster of that name, or it does not end.
    """
    cluster = Cluster(name)
    is_of_this_shell = cluster.address() == config.address() is not None
    cluster.end()
    if is_of_this_shell:
        sys.stderr.write(f"gt down: {name} has ended; type: unset GT_ADDRESS GT_TOKEN\n")
    return 0


class Cluster:
    """Files of one cluster: the means to end it, its address and token, its log.

    Args:
        name: name of the cluster.
    """

    def __init__(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise LaunchError(f"--name {name}: expected letters, digits, - and _")
        self._name = name
        self._folder = config.cache_folder() / "clusters"
        self._state = self._folder / f"{name}.json"
        self.address_file = self._folder / f"{name}.address"
        self._log = self._folder / f"{name}.log"

    def is_up(self) -> bool:
        """True if its process is alive, or if it is a job."""
        facts = _read(self._state)
        return "end" in facts or (bool(facts) and _is_alive(facts))

    def address(self) -> str | None:
        """HOST:PORT of its dispatcher; None where it is not known yet."""
        return _read(self.address_file).get("address")

    def exports(self) -> str:
        """Lines for a shell, with the token: for `eval`, not for a log.

        Raises:
            LaunchError: a job that has not started yet has no address.
        """
        facts = _read(self.address_file)
        if not facts:
            raise LaunchError(f"{self._name} has no address yet: its workers have not joined")
        pairs = {"GT_ADDRESS": facts["address"], "GT_TOKEN": facts["token"]}
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in pairs.items())

    def submit(self, engine: Submitted, plan: Plan) -> None:
        """Submit the text of a cluster."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.address_file.unlink(missing_ok=True)
        job = submission.submit(engine, plan)
        end = shlex.join(engine.cancel(plan, job))
        write_secret(self._state, {"end": end})
        if address := engine.address(plan):
            write_secret(self.address_file, {"address": address, "token": plan.token})
        sys.stderr.write(f"gt up: {engine.name} has taken {job}; gt down {self._name} ends it\n")

    def start(self, words: Sequence[str]) -> None:
        """Start `gt launch` and wait until its workers have joined.

        Raises:
            LaunchError: it ended instead; the message has its output.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.address_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "gt", "launch", *words]
        command += ["--stays", "--address-file", str(self.address_file)]
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        write_secret(self._state, {"process": str(process.pid), "start": _start_time(process.pid)})
        try:
            self._wait_for_address(process)
        except BaseException:  # Ctrl-C too: a partial cluster is removed
            self.end()
            raise

    def _wait_for_address(self, process: subprocess.Popen[bytes]) -> None:
        while not self.address_file.exists():
            if process.poll() is not None:
                raise LaunchError(self._log.read_text(encoding="utf-8").strip())
            time.sleep(LOOK_SECONDS)

    def end(self) -> None:
        """End it and wait until it has ended; only the log is kept.

        Raises:
            LaunchError: the cluster does not exist, or does not end.
        """
        facts = _read(self._state)
        if not facts:
            names = sorted(path.stem for path in self._folder.glob("*.json"))
            raise LaunchError(f"no cluster {self._name}; there are: {', '.join(names) or 'none'}")
        if "end" in facts:
            submission.cancel(shlex.split(facts["end"]))
        elif _is_alive(facts):
            os.kill(int(facts["process"]), signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while _is_alive(facts):
                if time.monotonic() > deadline:
                    raise LaunchError(f"process {facts['process']} does not end; see {self._log}")
                time.sleep(LOOK_SECONDS)
        self._state.unlink(missing_ok=True)
        self.address_file.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, str]:
    try:
        facts: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return facts


def _is_alive(facts: Mapping[str, str]) -> bool:
    """True if the process is alive: number and start time match, and it is no zombie."""
    return _start_time(int(facts["process"])) == facts["start"] != ""


def _start_time(pid: int) -> str:
    """Start time of a process in ticks since boot; empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    words = text.rpartition(")")[2].split()  # a name in brackets may hold anything
    return "" if words[0] in {"Z", "X"} else words[19]
