"""The `gt` command: each subcommand is imported when it is asked for.

The tools are filters: `-` is standard input, results go to standard output, complaints to standard
error, and a closed pipe ends them quietly.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence

from gt.compat import version

INTERRUPTED = 130  # a shell's exit status for Ctrl-C
# Subcommands with a command line of their own: module, function, summary.
OWN = {
    "token": ("gt.tools.credentials", "issue", "a new token of a user, and its line for the file"),
    "cert": ("gt.tools.credentials", "certify", "an authority and a dispatcher's certificate"),
    "demo": ("gt.tools.demo", "main", "train two small models on real data"),
    "run": ("gt.tools.run", "main", "run a PyTorch program as it stands"),
    "launch": (
        "gt.launch.command",
        "launch",
        "start workers on an engine, run a program, end them",
    ),
    "up": ("gt.launch.command", "up", "start a cluster that stays"),
    "down": ("gt.launch.command", "down", "end a cluster of gt up"),
    "worker": ("gt.worker.__main__", "main", "one worker, or several; as python -m gt.worker"),
}
# Subcommands for sessions and their users, with their summaries.
SESSIONS = {
    "sessions": "the named sessions: who has them, what they hold, how long they stay",
    "usage": "by user: sessions, weight, bytes and quota, device seconds, byte hours",
    "attach": "what a named session holds, and a Python prompt in it",
    "detach": "take a named session from its client; it stays for its lease",
    "kill": "end a named session, with all that it holds",
}
LISTS = ("sessions", "usage")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        arguments: as on the command line; those of the process if not given.

    Returns:
        Exit code: 0 for success, 1 for wrong input, 2 for a wrong command line.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] and words[0] in OWN:
        module, function, _ = OWN[words[0]]
        run: Callable[[Sequence[str]], int] = getattr(importlib.import_module(module), function)
        return run(words[1:])
    options = _parser().parse_args(words)
    try:
        code = _sessions(options) if options.command in SESSIONS else _run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Buffered text has no reader left; without this Python would report an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, RuntimeError, ValueError) as error:
        print(f"gt {options.command}: {error}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gt", description="Tools of GT.")
    parser.add_argument("--version", action="version", version=f"gt {version.gt}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, _, summary) in OWN.items():
        commands.add_parser(name, help=summary, add_help=False)
    trace = commands.add_parser("trace", help="read an instruction log (GT_INSTRUCTION_LOG)")
    trace.add_argument("file", help="the log, or - for standard input")
    trace.add_argument(
        "--check", action="store_true", help="read every line as an instruction, and count them"
    )
    trace.add_argument(
        "--long",
        action="store_true",
        help="TENSOR[3] := ADD TENSOR[0] TENSOR[2] for %%3 = add %%0 %%2",
    )
    top = commands.add_parser("top", help="what dispatcher and workers are doing")
    top.add_argument("address", nargs="?", help="host:port (default: GT_ADDRESS, 127.0.0.1:12345)")
    top.add_argument("--once", action="store_true", help="print once and end")
    top.add_argument("--json", action="store_true", help="one JSON object a line; ends with --once")
    top.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="between two prints (1)"
    )
    for name, summary in SESSIONS.items():
        session = commands.add_parser(name, help=summary)
        if name in LISTS:
            session.add_argument("--json", action="store_true", help="one JSON object a line")
        else:
            session.add_argument("name", help="the session, as gt.connect(address, session=NAME)")
        session.add_argument("address", nargs="?", help="host:port (default: as for gt top)")
    picture = commands.add_parser("visualize", help="draw an instruction log as a time line")
    picture.add_argument("file", help="the log, or - for standard input")
    picture.add_argument(
        "-o", "--output", default="timeline.svg", metavar="PICTURE",
        help="a .svg or .png file (default: %(default)s)",
    )  # fmt: skip
    layouts = commands.add_parser("config", help="inspect a layout file (GT_CONFIG)")
    asked = layouts.add_subparsers(dest="question", required=True, metavar="QUESTION")
    check = asked.add_parser("check", help="report mistakes with line and column")
    check.add_argument("file", help="the YAML file, or - for standard input")
    check.add_argument("--workers", type=count, metavar="N", help="how many workers there will be")
    command = asked.add_parser(
        "explain", help="run a script under it; the layouts of each signal's tensors, what moved"
    )
    command.add_argument("file", help="the YAML file")
    command.add_argument("script", help="a Python program")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    prices = commands.add_parser("prices", help="measure what traffic between workers costs")
    prices.add_argument("file", help="the file of prices that is rewritten (GT_PRICES)")
    prices.add_argument("--workers", type=count, default=2, metavar="N", help="how many to start")
    machine = commands.add_parser("env", help="machine, versions and GT_* variables, for a report")
    machine.add_argument("--json", action="store_true", help="one JSON object")
    machine = commands.add_parser("doctor", help="what this machine lacks, and what to type")
    machine.add_argument("--json", action="store_true", help="a list of JSON objects")
    commands.add_parser("version", help="print the version")
    return parser


def count(word: str) -> int:
    """A number of at least 1; argparse turns the error into a message."""
    count = int(word)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{word} is not 1 or more")
    return count


def _sessions(options: argparse.Namespace) -> int:
    from gt.tools import sessions, usage

    if options.command == "usage":
        return usage.show(options.address, as_json=options.json)
    if options.command == "sessions":
        return sessions.show(options.address, as_json=options.json)
    if options.command == "attach":
        return sessions.attach(options.address, options.name)
    action = "end" if options.command == "kill" else "detach"
    return sessions.change(options.address, action, options.name)


def _run(options: argparse.Namespace) -> int:
    if options.command == "trace":
        from gt.tools import trace

        if options.check:
            return trace.check(options.file)
        return trace.show(options.file, long=options.long)
    if options.command == "top":
        from gt.tools import top

        return top.run(
            options.address, once=options.once, as_json=options.json, interval=options.interval
        )
    if options.command == "visualize":
        from gt.tools import timeline

        return timeline.draw(options.file, options.output)
    if options.command == "env":
        from gt.tools import environment

        return environment.run(as_json=options.json)
    if options.command == "doctor":
        from gt.tools import doctor

        return doctor.run(as_json=options.json)
    if options.command == "prices":
        from gt.tools import prices

        return prices.run(options.file, workers=options.workers)
    if options.command == "config" and options.question == "explain":
        from gt.tools import config_explain

        return config_explain.run(options.file, options.script, options.arguments)
    if options.command == "config":
        from gt.tools import config_check

        return config_check.run(options.file, workers=options.workers)
    print(f"gt {version.gt}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
