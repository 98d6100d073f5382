"""`python -m gt.worker`: one worker process."""

from __future__ import annotations

import argparse
import ipaddress
import math
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from gt import config
from gt.config import place
from gt.errors import ConfigError
from gt.worker import fork_server, forks, startup
from gt.worker.links import Links

PORT_MAX = 2**16 - 1
THREADS_MAX = 2**16 - 1
COUNT_MAX = 1024  # a larger count is a typing mistake
AUTO_WAIT_SECONDS = 60.0  # an engine starts workers and dispatcher in any order
INDEX_MAX = 2**32 - 1  # the handshake's limit; the dispatcher has one of its own
MISTAKEN = 2  # exit status for wrong arguments, as argparse's


def _number(least: int, most: int) -> Callable[[str], int]:
    """A parser of integers from `least` to `most`."""

    def read(word: str) -> int:
        if not (word.isascii() and word.isdigit()) or not least <= int(word) <= most:
            raise argparse.ArgumentTypeError(f"{word!r} is no number from {least} to {most}")
        return int(word)

    return read


def _network(word: str) -> str:
    """The word, if it names a network."""
    try:
        ipaddress.ip_network(word, strict=False)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return word


def _seconds(word: str) -> float:
    """A number of seconds, 0 or more."""
    seconds = float(word)
    if not math.isfinite(seconds) or seconds < 0:
        raise argparse.ArgumentTypeError(f"{word!r} is no time")
    return seconds


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line; the list of options comes only with --help."""

    def error(self, message: str) -> NoReturn:
        self.exit(MISTAKEN, f"gt.worker: {message} (--help lists the options)\n")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="python -m gt.worker", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="the dispatcher's host")
    parser.add_argument(
        "-p",
        "--port",
        type=_number(1, PORT_MAX),
        help="the dispatcher's port (default: host and port of GT_ADDRESS)",
    )
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
    _add_engine_options(parser)
    _add_link_options(parser)
    parser.add_argument("--control-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--fork-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    ways = [arguments.port, arguments.unix, arguments.control_fd, arguments.fork_fd]
    if not any(way is not None for way in ways) and _takes_address(arguments):
        return arguments
    if sum(way is not None for way in ways) != 1:
        parser.error("one of --port and --unix says where the dispatcher is")
    return arguments


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Adds options for engines that start many workers."""
    parser.add_argument(
        "--count",
        type=_number(1, COUNT_MAX),
        metavar="N",
        help="so many workers, forked from one process: as fast as one; --id is then the first's",
    )
    parser.add_argument(
        "--supervise",
        action="store_true",
        help="start another worker in the place of one that dies after it has joined (by a signal,"
        " a crash in a library, out of memory): same index, same GPU, same settings. What it alone"
        " held is lost, and its programs go on",
    )
    parser.add_argument("--place-seconds", type=_seconds, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument(
        "--gpu",
        type=_number(0, INDEX_MAX),
        metavar="N",
        help="which of the GPUs that it may use (default: by its rank on the host, or its index)",
    )
    parser.add_argument(
        "--launch",
        choices=["auto"],
        help="take index, GPU and threads from the variables of torchrun, MPI, Slurm or Kubernetes",
    )
    parser.add_argument(
        "--wait-seconds",
        type=_seconds,
        metavar="N",
        help="call again for so long where no dispatcher answers yet (0; with --launch auto"
        f" {AUTO_WAIT_SECONDS:.0f})",
    )
    parser.add_argument(
        "--end-with-input", action="store_true", help="end when standard input does"
    )


def _add_link_options(parser: argparse.ArgumentParser) -> None:
    """Adds options of links to other hosts."""
    usual = Links()
    parser.add_argument(
        "--ask-seconds",
        type=_seconds,
        default=usual.ask_seconds,
        metavar="N",
        help="ask a host again that has not answered for so long (%(default)g; 0: never)",
    )
    parser.add_argument(
        "--asks",
        type=_number(0, INDEX_MAX),
        default=usual.asks,
        metavar="N",
        help="so often; without an answer the connection is broken (%(default)d)",
    )
    parser.add_argument(
        "--resume-seconds",
        type=_seconds,
        default=usual.resume_seconds,
        metavar="N",
        help="take a broken link up again within (%(default)g; 0: no limit)",
    )
    parser.add_argument(
        "--peer-seconds",
        type=_seconds,
        default=usual.peer_seconds,
        metavar="N",
        help="the link to a worker is broken whose host has not acknowledged bytes for so long"
        " (%(default)g; 0: no limit)",
    )


def _takes_address(arguments: argparse.Namespace) -> bool:
    """Takes the dispatcher's address from GT_ADDRESS as if it were typed; False if it
    is not set.
    """
    address = config.address()
    if address is None:
        return False
    if address.startswith("unix:"):
        arguments.unix = address.removeprefix("unix:")
        return True
    host, _, port = address.rpartition(":")
    try:
        arguments.port = _number(1, PORT_MAX)(port)
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"GT_ADDRESS={address}: {error}") from None
    arguments.host = host.strip("[]")
    return True


def _start(arguments: argparse.Namespace) -> startup.Start:
    """The options of the command line; those that it leaves out come from the environment.

    Raises:
        ConfigError: a variable's text has no meaning.
    """
    own = None if arguments.launch is None else place.found(config.with_settings())
    count = arguments.count or 1
    threads = arguments.threads or config.threads()
    index, gpu = arguments.id, arguments.gpu
    if own is not None:
        threads = threads or place.threads(own, config.core_count(), os.cpu_count() or 1)
        index = own.rank * count if index is None else index
        gpu = own.local_rank if gpu is None else gpu
    wait = AUTO_WAIT_SECONDS if own is not None else 0.0
    return startup.Start(
        backend=arguments.backend or config.backend(),
        threads=threads,
        index=index,
        token=config.token() or "",
        tls_ca=config.tls_ca(),
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
        links=Links(
            ask_seconds=arguments.ask_seconds,
            asks=arguments.asks,
            resume_seconds=arguments.resume_seconds,
            peer_seconds=arguments.peer_seconds,
        ),
        instruction_log=config.instruction_log(),
        shows_executions=config.debugs_worker(),
        aten_rows=config.aten_rows(),
        is_verbose=config.is_verbose(),
        gpu=gpu,
        place_seconds=arguments.place_seconds,
        wait_seconds=wait if arguments.wait_seconds is None else arguments.wait_seconds,
    )


def main(words: Sequence[str] | None = None) -> int:
    """Runs until the dispatcher is gone; returns the exit status.

    Args:
        words: the command line; that of the process if not given.
    """
    if sys.stderr is None:  # the program was started without
        sys.stderr = pathlib.Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    try:
        arguments = _arguments(words)
        start = _start(arguments)
        if arguments.fork_fd is not None:
            return fork_server.run(start, arguments.fork_fd)
        if arguments.count is not None or arguments.end_with_input or arguments.supervise:
            return forks.run(
                start,
                arguments.count or 1,
                ends_with_input=arguments.end_with_input,
                supervises=arguments.supervise,
            )
        return startup.run(start)
    except (startup.StartError, ConfigError) as error:
        sys.stderr.write(f"gt.worker: {error}\n")
        return MISTAKEN


if __name__ == "__main__":
    sys.exit(main())
