"""`gt launch`, `gt up` and `gt down`: the command lines, and the plan that they mean."""

from __future__ import annotations

import argparse
import dataclasses
import secrets
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from gt import config
from gt.config import variables
from gt.launch import ENGINES, engine, head, stay, submission
from gt.launch.engine import (
    HERE,
    LOOPBACK,
    Attached,
    Engine,
    Host,
    LaunchError,
    Plan,
    Submitted,
    rendered,
)

MISTAKEN = 2  # the exit status of a command line that means nothing, as argparse's
JOIN_SECONDS = 300.0
NAME = "gt"
PORT = "PORT"  # in a text, of a dispatcher that will take a free one
PORT_SUBMITTED = "12345"  # a port of every example, where each pod has ports of its own


def launch(words: Sequence[str]) -> int:
    """`gt launch`: workers, a program on them, and nothing left when it has ended."""
    options, program = _parsed("launch", "Start workers, run a program on them, end them.", words)
    if not program and not options.stays:
        sys.stderr.write("gt launch: a program is missing: gt launch … -- python train.py\n")
        return MISTAKEN
    try:
        described = engine(options.on)
        plan = _plan(options, described, program)
        if options.dry_run:
            sys.stdout.write(rendered(described, plan))
            return 0
        _check_programs(described, program)
        if isinstance(described, Submitted):
            return submission.run(described, plan)
        assert isinstance(described, Attached), described
        run = head.Head(
            plan,
            described,
            join_seconds=options.join_seconds or None,
            address_file=None if options.address_file is None else Path(options.address_file),
        )
        return run.run()
    except (LaunchError, OSError) as error:
        sys.stderr.write(f"gt launch: {error}\n")
        return 1


def up(words: Sequence[str]) -> int:
    """`gt up`: a cluster that stays until `gt down`."""
    options, program = _parsed("up", "Start a cluster that stays until gt down.", words)
    if program:
        sys.stderr.write("gt up: a cluster that stays has no program; gt launch runs one\n")
        return MISTAKEN
    try:
        if not options.dry_run and stay.shown(options.name):
            return 0
        described = engine(options.on)
        file = str(stay.Cluster(options.name).address_file)
        plan = dataclasses.replace(_plan(options, described, ()), address_file=file)
        if options.dry_run:
            sys.stdout.write(rendered(described, plan))
            return 0
        _check_programs(described, ())
        return stay.up(described, plan, words)
    except (LaunchError, OSError) as error:
        sys.stderr.write(f"gt up: {error}\n")
        return 1


def down(words: Sequence[str]) -> int:
    """`gt down`: end a cluster of `gt up`."""
    parser = argparse.ArgumentParser(prog="gt down", description="End a cluster of gt up.")
    parser.add_argument("name", nargs="?", default=NAME, help="which (default: %(default)s)")
    try:
        return stay.down(parser.parse_args(words).name)
    except (LaunchError, OSError) as error:
        sys.stderr.write(f"gt down: {error}\n")
        return 1


def _parsed(
    name: str, description: str, words: Sequence[str]
) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """Options, and the program behind `--`."""
    words = list(words)
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog=f"gt {name}",
        description=description,
        usage=f"gt {name} [options]" + (" -- program …" if name == "launch" else ""),
    )
    _add_options(parser)
    options, unknown = parser.parse_known_args(words[:end])
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)} (a program stands behind --)")
    return options, tuple(words[end + 1 :])


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--on", default="local", metavar="ENGINE", help=f"{', '.join(ENGINES)} (local)")
    add("-n", "--workers", type=_count, metavar="N", help="how many (default: one a GPU here)")
    add("--gpus", type=int, default=1, metavar="N", help="of a worker, where ENGINE hands out (1)")
    add("--hosts", default="", metavar="HOST[:N],…", help="where, and how many workers on each")
    add("--hosts-file", metavar="FILE", help="the same, a line each: HOST, or HOST slots=N")
    add("--host", metavar="ADDRESS", help="of this machine, as workers call it (its name)")
    add("-p", "--port", type=int, default=0, help="of the dispatcher (default: a free one)")
    add("--python", metavar="PATH", help="interpreter where workers are (default: this one)")
    add("--env", action="append", default=[], metavar="NAME[=VALUE]", help="goes with workers")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of ENGINE's")
    add("--option", action="append", default=[], metavar="WORD", help="for ENGINE's own command")
    add("--policy", metavar="FILE", help="of the dispatcher: shares, priorities and quotas by user")
    add("--standby", action="store_true", help="the dispatcher goes on if it is killed")
    add("--name", default=NAME, help="of the job, or of the cluster that stays (%(default)s)")
    add(
        "--join-seconds", type=float, default=JOIN_SECONDS, metavar="N",
        help="that all workers may take to join; 0 for ever (%(default)g)",
    )  # fmt: skip
    add("--dry-run", action="store_true", help="print the text that would be submitted")
    add("--stays", action="store_true", help=argparse.SUPPRESS)
    add("--address-file", metavar="FILE", help=argparse.SUPPRESS)


def _count(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word)):
        raise argparse.ArgumentTypeError(f"{word}: expected a number from 1")
    return int(word)


def _plan(options: argparse.Namespace, described: Engine, program: tuple[str, ...]) -> Plan:
    named = _hosts(options, described)
    workers = options.workers or sum(count or 1 for _, count in named) or config.gpu_count()
    if not workers:
        raise LaunchError("-n is missing: how many workers, since there is no GPU here")
    hosts = _spread(named, workers)
    is_submitted = isinstance(described, Submitted)
    port = str(options.port) if options.port or not options.dry_run else PORT
    if is_submitted and not options.port:
        port = PORT_SUBMITTED
    return Plan(
        name=options.name,
        workers=workers,
        gpus=options.gpus,
        program=program,
        hosts=hosts,
        address=f"{options.host or _own_host(described, hosts)}:{port}",
        python=options.python or described.python or sys.executable,
        folder=str(Path.cwd()),
        environment=_environment(options.env),
        settings=_settings(options.set, described),
        options=tuple(options.option),
        token=config.token() or secrets.token_hex(16) if is_submitted else "",
        policy=_policy(options.policy, described),
        has_standby=_has_standby(options, described),
    )


def _has_standby(options: argparse.Namespace, described: Engine) -> bool:
    """True if the dispatcher keeps a standby, where its process can have one."""
    if options.standby and described.name == "k8s":
        raise LaunchError("--standby: a pod ends with its first process, and the standby with it")
    return bool(options.standby)


def _policy(file: str | None, described: Engine) -> str:
    """The policy's file, which the dispatcher reads where it runs."""
    if file is None:
        return ""
    if described.name == "k8s":
        raise LaunchError(
            "--policy: a pod has no files of this machine; mount it and start gt.server"
        )
    path = Path(file).absolute()
    if not path.is_file():
        raise LaunchError(f"--policy: there is no file {path}")
    return str(path)


def _own_host(described: Engine, hosts: Sequence[Host]) -> str:
    """The loopback interface where no worker comes from elsewhere, else this machine's name."""
    reaches_out = isinstance(described, Attached) and described.reaches_out
    if reaches_out or any(host.name not in HERE for host in hosts):
        return socket.gethostname()
    return LOOPBACK


def _hosts(options: argparse.Namespace, described: Engine) -> list[tuple[str, int | None]]:
    """Names, and how many workers each takes where that is said."""
    words = [word for word in options.hosts.split(",") if word]
    if options.hosts_file is not None:
        lines = Path(options.hosts_file).read_text(encoding="utf-8").splitlines()
        stripped = [line.partition("#")[0].split() for line in lines]
        words += [":".join([line[0], *_slots(line[1:])]) for line in stripped if line]
    if words and not (isinstance(described, Attached) and described.takes_hosts):
        raise LaunchError(f"--on {described.name} takes no hosts")
    named: list[tuple[str, int | None]] = []
    for word in words:
        name, _, count = word.partition(":")
        if not name or (count and not (count.isdigit() and int(count))):
            raise LaunchError(f"host {word!r}: expected HOST or HOST:WORKERS")
        named.append((name, int(count) if count else None))
    return named


def _slots(words: Sequence[str]) -> list[str]:
    """The number in `slots=4`, as host files of mpirun have it."""
    return [word.removeprefix("slots=") for word in words if word.startswith("slots=")]


def _spread(named: Sequence[tuple[str, int | None]], workers: int) -> tuple[Host, ...]:
    """Workers on hosts in order: as many as each says, what is left evenly on the others."""
    if not named:
        return ()
    left = workers - sum(count or 0 for _, count in named)
    places = [place for place, (_, count) in enumerate(named) if count is None]
    counts = [count or 0 for _, count in named]
    for number, place in enumerate(places):
        counts[place] = left // len(places) + (number < left % len(places))
    if left < 0 or (left and not places):
        raise LaunchError(f"-n {workers}: the hosts take {workers - left} workers")
    hosts = [
        Host(name=name, workers=count)
        for (name, _), count in zip(named, counts, strict=True)
        if count
    ]
    return tuple(hosts)


def _environment(words: Sequence[str]) -> dict[str, str]:
    """GT's variables that are not of one session, and those that are asked for."""
    current = config.with_settings()
    sent = {
        variable.name: current[variable.name]
        for variable in variables.VARIABLES
        if current.get(variable.name)
        and not variable.of_session
        and variable not in (variables.TOKEN, variables.CACHE_DIR)
        and variable.family in (variables.EVERYBODY, variables.WORKERS)
    }
    for word in words:
        name, sign, value = word.partition("=")
        if not sign and name not in current:
            raise LaunchError(f"--env {name}: no variable of that name is set")
        sent[name] = value if sign else current[name]
    return sent


def _settings(words: Sequence[str], described: Engine) -> dict[str, str]:
    settings = dict(described.settings)
    for word in words:
        name, sign, value = word.partition("=")
        if name not in settings or not sign:
            known = f"settings of {described.name} are {', '.join(settings)}"
            known = known if settings else f"{described.name} has no settings"
            raise LaunchError(f"--set {word}: {known}")
        settings[name] = value
    return settings


def _check_programs(described: Engine, program: Sequence[str]) -> None:
    """Report missing programs before anything starts."""
    if missing := described.missing():
        raise LaunchError(f"--on {described.name}: not found: {', '.join(missing)}; see gt doctor")
    if program and shutil.which(program[0]) is None:
        raise LaunchError(f"the program is not found: {program[0]}")
