"""`python -m gt.worker`: one worker process."""

from __future__ import annotations

import argparse
import ipaddress
import os
import pathlib
import sys
from collections.abc import Callable
from typing import NoReturn

from gt import config
from gt.errors import ConfigError
from gt.worker import fork_server, startup

PORT_MAX = 2**16 - 1
THREADS_MAX = 2**16 - 1
INDEX_MAX = 2**32 - 1  # what the handshake holds; the dispatcher has a limit of its own
MISTAKEN = 2  # the exit status of who was started wrong, as argparse's


def _number(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number within these."""

    def read(word: str) -> int:
        if not (word.isascii() and word.isdigit()) or not least <= int(word) <= most:
            raise argparse.ArgumentTypeError(f"{word!r} is no number from {least} to {most}")
        return int(word)

    return read


def _network(word: str) -> str:
    """The word, if it means a network."""
    try:
        ipaddress.ip_network(word, strict=False)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return word


class _Parser(argparse.ArgumentParser):
    """One line says what is wrong; the list of options is for who asks."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISTAKEN, f"gt.worker: {message} (--help lists the options)\n")


def _arguments() -> argparse.Namespace:
    parser = _Parser(prog="python -m gt.worker", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="the dispatcher's host")
    parser.add_argument("-p", "--port", type=_number(1, PORT_MAX), help="the dispatcher's port")
    parser.add_argument("--unix", metavar="PATH", help="the dispatcher's Unix socket, on its host")
    parser.add_argument(
        "--backend",
        choices=startup.BACKENDS,
        help="what executes (default: GT_BACKEND, else torch where it is installed, else native)",
    )
    parser.add_argument(
        "--threads",
        type=_number(1, THREADS_MAX),
        metavar="N",
        help="threads of a large operation (default: GT_THREADS, OMP_NUM_THREADS, else one a core)",
    )
    parser.add_argument(
        "--id",
        type=_number(0, INDEX_MAX),
        metavar="N",
        help="the index that this worker would like",
    )
    parser.add_argument(
        "--tcp", action="store_true", help="stay on TCP even on the dispatcher's host"
    )
    parser.add_argument(
        "--process-groups",
        choices=config.PROCESS_GROUPS,
        help="how collectives between hosts go: by torch.distributed's groups over gloo (CPU) or"
        " nccl (GPU), or by GT's own links (default: GT_PROCESS_GROUPS, else nccl on a GPU)",
    )
    parser.add_argument(
        "--trusted-network",
        action="append",
        type=_network,
        metavar="ADDRESS/BITS",
        help="where process groups may connect, which ask for no secret; may be repeated"
        " (default: GT_TRUSTED_NETWORKS, else nowhere)",
    )
    parser.add_argument("--control-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--fork-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    ways = [arguments.port, arguments.unix, arguments.control_fd, arguments.fork_fd]
    if sum(way is not None for way in ways) != 1:
        parser.error("one of --port and --unix says where the dispatcher is")
    return arguments


def _start(arguments: argparse.Namespace) -> startup.Start:
    """What the command line says, and the environment where that is silent.

    Raises:
        ConfigError: a variable means nothing.
    """
    return startup.Start(
        backend=arguments.backend or config.backend(),
        threads=arguments.threads or config.threads(),
        index=arguments.id,
        token=config.token() or "",
        control_fd=arguments.control_fd,
        host=arguments.host,
        port=arguments.port,
        unix=arguments.unix,
        rings=not arguments.tcp,
        process_groups=arguments.process_groups or config.process_groups(),
        trusted_networks=arguments.trusted_network or config.trusted_networks(),
        look_ahead=config.look_ahead(),
        idle_seconds=config.idle_seconds(),
        compression=config.compression(),
        native_rows=config.native_rows(),
        is_verbose=config.is_verbose(),
    )


def main() -> int:
    """Runs until the dispatcher is gone; returns the exit status."""
    if sys.stderr is None:  # the program was started without
        sys.stderr = pathlib.Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    arguments = _arguments()
    try:
        start = _start(arguments)
        if arguments.fork_fd is not None:
            return fork_server.run(start, arguments.fork_fd)
        return startup.run(start)
    except (startup.StartError, ConfigError) as error:
        sys.stderr.write(f"gt.worker: {error}\n")
        return MISTAKEN


if __name__ == "__main__":
    sys.exit(main())
