"""`gt run`: a PyTorch program as it stands, on GT.

`import torch` finds PyTorch with GT's torch front end or, with `--native`, GT itself
(gt/compat/torch_imports.py). The program runs in this process, as `python` runs it (program.py).
"""

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gt import config
from gt.compat import torch_imports, version
from gt.errors import ConfigError, ConnectionLost, NoWorker
from gt.tools import program
from gt.tools.cli import count

FRONT_END = "gt.torch"
VALUED = ("--layout", "--workers", "--connect")  # options with a value
MISTAKEN = 2


def main(words: Sequence[str]) -> int:
    """Run the program on the command line; its exceptions propagate.

    Args:
        words: words after `gt run`.

    Returns:
        Exit status of a program that returns or cannot start.
    """
    own, arguments = split(words)
    parser = _parser()
    options = parser.parse_args(own)
    if (options.file is None) == (options.module is None):
        parser.error("one program, a file or -m MODULE, is to be named")
    try:
        _set(options)
        way = _native() if options.native else _through_front_end(options.file or options.module)
        sys.stderr.write(f"gt run: {way}\n")
        if options.connect:
            _connect(options)
        if options.module is not None:
            program.run_module(options.module, arguments)
        else:
            program.run_file(options.file, arguments)
    except program.StartError as error:
        sys.stderr.write(f"gt run: {error}\n")
        return error.status
    return 0


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words for `gt run`, ending with the program's name, and those for the program."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at].startswith("-m"):
            at += 1 if len(words[at]) > len("-m") else 2
            return list(words[:at]), list(words[at:])
        if words[at] == "--":
            return list(words[: at + 2]), list(words[at + 2 :])
        at += 2 if words[at] in VALUED else 1
    return list(words[: at + 1]), list(words[at + 1 :])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gt run",
        usage="gt run [options] (FILE | -m MODULE) [arguments of the program]",
        description="Run a PyTorch program as it stands, on GT.",
        allow_abbrev=False,
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a Python program")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="the same by a module's name")
    parser.add_argument(
        "--native",
        action="store_true",
        help="`import torch` is answered by gt itself; PyTorch is not imported",
    )
    parser.add_argument("--layout", metavar="FILE", help="the YAML file of layouts (GT_CONFIG)")
    parser.add_argument("--workers", type=count, metavar="N", help="how many workers (GT_WORKERS)")
    parser.add_argument(
        "--connect", metavar="HOST:PORT", help="a dispatcher that runs already (GT_ADDRESS)"
    )
    return parser


def _set(options: argparse.Namespace) -> None:
    """Set variables from the options: processes that the program starts inherit them.

    Raises:
        StartError: the layout file has a mistake.
    """
    if options.layout is not None:
        from gt.config import document

        try:
            document.load(options.layout)
        except (ConfigError, OSError) as error:
            raise program.StartError(str(error), MISTAKEN) from None
        config.set_variables(GT_CONFIG=os.fspath(Path(options.layout).absolute()))
    if options.workers is not None and not options.connect:
        config.set_variables(GT_WORKERS=str(options.workers))
    if options.connect:
        config.set_variables(GT_ADDRESS=options.connect)


def _connect(options: argparse.Namespace) -> None:
    """Connect before the program begins, so that errors appear at once.

    Raises:
        StartError: no dispatcher answers, or too few workers have joined it.
    """
    from gt.sessions.session import connect

    try:
        connect(options.connect, workers=options.workers or 0)
    except (ConfigError, ConnectionLost, NoWorker, ValueError) as error:
        raise program.StartError(str(error), 1) from None


def _native() -> str:
    """Make `import torch` return GT; prints a message."""
    torch_imports.install()
    return f"natively: `import torch` is gt {version.gt}"


def _through_front_end(name: str) -> str:
    """Make PyTorch load GT's front end; prints a message.

    Raises:
        StartError: the front end does not exist.
    """
    if importlib.util.find_spec(FRONT_END) is None:
        text = f"the torch front end ({FRONT_END}) is not in this GT; `gt run --native {name}`"
        raise program.StartError(f"{text} runs the program with gt as its torch", MISTAKEN)
    importlib.import_module(f"{FRONT_END}.anywhere").install()
    torch = importlib.import_module("torch")
    return f"through the torch front end: PyTorch {torch.__version__}, device mux"
