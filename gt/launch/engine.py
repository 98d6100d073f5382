"""Descriptions that launchers fill in: an engine as data, and the plan of one launch.

Two kinds of engine: one whose commands run beside `gt launch`, which holds the dispatcher and the
program (Attached), and one to which a text is submitted that holds all of them (Submitted). Nothing
here starts anything.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"
HERE = ("localhost", LOOPBACK, "::1")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only ever with a token file


class LaunchError(ValueError):
    """Why nothing can be launched so, for the person who asks."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that takes workers."""

    name: str
    workers: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One launch.

    Args:
        name: of the job, where an engine names jobs.
        workers: how many.
        gpus: of each worker, where an engine hands them out; 0 asks for none.
        program: its words; empty for a cluster that stays.
        hosts: where, in order; empty leaves it to the engine.
        address: HOST:PORT of the dispatcher, as workers call it.
        python: the interpreter on the workers' hosts.
        folder: the working directory of what is started.
        environment: variables that go with the workers to other hosts.
        settings: the engine's, all of them.
        options: words for the engine's own command, as they are.
        token: of the launch, for a text that has to hold it; empty where it travels by GT_TOKEN.
        address_file: where a cluster that stays leaves its address, on what its hosts share.
    """

    name: str
    workers: int
    gpus: int
    program: tuple[str, ...]
    hosts: tuple[Host, ...]
    address: str
    python: str
    folder: str
    environment: Mapping[str, str]
    settings: Mapping[str, str]
    options: tuple[str, ...]
    token: str = ""
    address_file: str = ""

    @property
    def host(self) -> str:
        """Host of the dispatcher's address."""
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> str:
        """Port of the dispatcher's address."""
        return self.address.rpartition(":")[2]

    @property
    def is_here(self) -> bool:
        """True if no other host is named."""
        return all(host.name in HERE for host in self.hosts)

    def worker(self, *words: str) -> list[str]:
        """The command of a worker."""
        return [self.python, "-m", "gt.worker", *words]

    def one_worker(self) -> list[str]:
        """The command of a worker that an engine starts one by one: a parent reports its end at
        once.
        """
        return self.worker("--launch", "auto", "--count", "1")

    def launcher(self, *words: str) -> list[str]:
        """The command of `gt launch` on another host, with the program."""
        program = ["--", *self.program] if self.program else ["--stays"]
        return [self.python, "-m", "gt", "launch", *words, *program]


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command that starts workers.

    Args:
        label: who it is, where its end is reported.
        words: as typed. GT_ADDRESS and GT_TOKEN are in its environment.
        takes_token: whether it reads the token as the first line of its input, which stays open.
    """

    label: str
    words: tuple[str, ...]
    takes_token: bool = False


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Description of an engine, which starts workers.

    Args:
        name: the word of `--on`.
        summary: one line.
        needs: programs that must be on the path.
        modules: of Python, that must be installed.
        settings: names and defaults of `--set`.
        python: the interpreter where workers are; empty for the one here.
    """

    name: str
    summary: str
    needs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    python: str = ""

    def missing(self) -> list[str]:
        """Programs and modules that are not here."""
        programs = [name for name in self.needs if shutil.which(name) is None]
        return programs + [name for name in self.modules if importlib.util.find_spec(name) is None]


@dataclass(frozen=True, kw_only=True)
class Attached(Engine):
    """Starts workers by commands that run as long as they do.

    Args:
        commands: which, of a plan whose address is known.
        takes_hosts: whether `--hosts` may say where.
        reaches_out: whether workers come from other hosts even where the plan names none.
    """

    commands: Callable[[Plan], Sequence[Command]]
    takes_hosts: bool = False
    reaches_out: bool = False


@dataclass(frozen=True, kw_only=True)
class Submitted(Engine):
    """Starts everything from a text.

    Args:
        text: what is submitted.
        submit: the command that reads it; the first word that it prints is the job.
        follow: the command that prints the job's output and ends with it and its status.
        cancel: the command that ends the job and leaves nothing of it.
        address: of the dispatcher where it is known before it runs, else empty.
    """

    text: Callable[[Plan], str]
    submit: Callable[[Plan], Sequence[str]]
    follow: Callable[[Plan, str], Sequence[str]]
    cancel: Callable[[Plan, str], Sequence[str]]
    address: Callable[[Plan], str] = lambda _plan: ""


def rendered(engine: Engine, plan: Plan) -> str:
    """The text that would be submitted, or the commands that would be typed, for a person."""
    if isinstance(engine, Submitted):
        return engine.text(plan)
    assert isinstance(engine, Attached), engine
    host = LOOPBACK if plan.host == LOOPBACK else EVERYWHERE
    serve = [plan.python, "-m", "gt.server", "--host", host, "-p", plan.port]
    lines = ["# the dispatcher, with a token of this launch in TOKENS and in GT_TOKEN"]
    lines += [shlex.join([*serve, "--token-file", "TOKENS"])]
    lines += [f"# {plan.workers} workers"] if (commands := engine.commands(plan)) else []
    for command in commands:
        read = " <<< $GT_TOKEN" if command.takes_token else ""
        lines += [f"GT_ADDRESS={plan.address} {shlex.join(command.words)}{read}"]
    if plan.program:
        lines += [f"# the program, when {plan.workers} have joined"]
        lines += [f"GT_ADDRESS={plan.address} {shlex.join(plan.program)}"]
    return "".join(f"{line}\n" for line in lines)
