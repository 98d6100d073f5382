"""Data types for launchers: an engine as data, and the plan of one launch.

There are two kinds of engine: an Attached engine has commands that run beside `gt launch`, which
runs the dispatcher and the program; a Submitted engine gets a text that contains all of them.
Nothing here starts a process.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"
HERE = ("localhost", LOOPBACK, "::1")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only used with a token file


class LaunchError(ValueError):
    """The reason why a launch is impossible, as text for the user."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that takes workers."""

    name: str
    workers: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One launch.

    Args:
        name: name of the job, for engines that name jobs.
        workers: number of workers.
        gpus: number per worker, for engines that allocate GPUs; 0 requests none.
        program: words of the command; empty for a cluster that stays.
        hosts: hosts in order; empty leaves the choice to the engine.
        address: HOST:PORT of the dispatcher, as workers call it.
        python: interpreter on the workers' hosts.
        folder: working directory of the started processes.
        environment: variables that are passed to workers on other hosts.
        settings: all settings of the engine.
        options: options for the engine's own command, unchanged.
        token: token of the launch, if the text must contain it; empty if it is passed in GT_TOKEN.
        address_file: file for the address of a cluster that stays, on storage that its hosts share.
        policy: file of the dispatcher's policy, where the dispatcher runs; empty for none.
        has_standby: whether the dispatcher keeps a standby.
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
    policy: str = ""
    has_standby: bool = False

    @property
    def host(self) -> str:
        """Host of the dispatcher's address."""
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> str:
        """Port of the dispatcher's address."""
        return self.address.rpartition(":")[2]

    @property
    def serving(self) -> list[str]:
        """Words for the dispatcher's command, behind its address and tokens."""
        policy = ["--policy", self.policy] if self.policy else []
        return [*policy, "--standby"] if self.has_standby else policy

    @property
    def is_here(self) -> bool:
        """True if no other host is named."""
        return all(host.name in HERE for host in self.hosts)

    def worker(self, *words: str) -> list[str]:
        """The command of a worker."""
        return [self.python, "-m", "gt.worker", *words]

    def one_worker(self) -> list[str]:
        """Command of a worker that an engine starts individually: a parent process reports its end
        at once.
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
        label: name of the process in reports about its end.
        words: words of the command. GT_ADDRESS and GT_TOKEN are in its environment.
        takes_token: whether it reads the token from the first line of its input, which stays open.
    """

    label: str
    words: tuple[str, ...]
    takes_token: bool = False


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Description of an engine, which starts workers.

    Args:
        name: value of `--on`.
        summary: one line.
        needs: programs that must be on the path.
        modules: Python modules that must be installed.
        settings: names and defaults for `--set`.
        python: interpreter on the workers' hosts; empty for the current one.
    """

    name: str
    summary: str
    needs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    python: str = ""

    def missing(self) -> list[str]:
        """Programs and modules that are missing."""
        programs = [name for name in self.needs if shutil.which(name) is None]
        return programs + [name for name in self.modules if importlib.util.find_spec(name) is None]


@dataclass(frozen=True, kw_only=True)
class Attached(Engine):
    """An engine whose commands start workers and run as long as they do.

    Args:
        commands: function from a plan with a known address to the commands.
        takes_hosts: whether `--hosts` is allowed.
        reaches_out: whether workers run on other hosts even if the plan names none.
    """

    commands: Callable[[Plan], Sequence[Command]]
    takes_hosts: bool = False
    reaches_out: bool = False


@dataclass(frozen=True, kw_only=True)
class Submitted(Engine):
    """An engine that starts everything from a text.

    Args:
        text: function from a plan to the text to submit.
        submit: command that reads the text; the first word that it prints is the job.
        follow: command that prints the job's output, and ends with it and its status.
        cancel: command that ends the job and removes it.
        address: address of the dispatcher if it is known before it runs, else empty.
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
    lines += [shlex.join([*serve, "--token-file", "TOKENS", *plan.serving])]
    lines += [f"# {plan.workers} workers"] if (commands := engine.commands(plan)) else []
    for command in commands:
        read = " <<< $GT_TOKEN" if command.takes_token else ""
        lines += [f"GT_ADDRESS={plan.address} {shlex.join(command.words)}{read}"]
    if plan.program:
        lines += [f"# the program, when {plan.workers} have joined"]
        lines += [f"GT_ADDRESS={plan.address} {shlex.join(plan.program)}"]
    return "".join(f"{line}\n" for line in lines)
