"""`gt cert` and `gt token`: files by which the members of a cluster know each other."""

import argparse
import pathlib
import socket
import sys
from collections.abc import Sequence

from gt import _core

DAYS = 365
DAYS_MAX = 3650  # as long as an authority is valid


def certify(words: Sequence[str] | None = None) -> int:
    """Write a certificate for a dispatcher, and an authority where the folder has none."""
    parser = argparse.ArgumentParser(
        prog="gt cert",
        description="Write an authority and a certificate for a dispatcher that it signs. Where "
        "the folder has an authority, it stays, and so does what clients and workers have of it.",
    )
    parser.add_argument("folder", help="where the four files go; best one of its own")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or address by which others reach the dispatcher; may be repeated (this host's"
        " name, localhost and its addresses are always there)",
    )
    parser.add_argument(
        "--days",
        type=_days,
        default=DAYS,
        metavar="N",
        help="how long the dispatcher's certificate is valid (%(default)s)",
    )
    arguments = parser.parse_args(words)
    hosts = _hosts(arguments.host)
    try:
        is_new = _core.write_certificates(arguments.folder, hosts, arguments.days)
    except ValueError as error:
        print(f"gt cert: {error}", file=sys.stderr)
        return 1
    _explain(pathlib.Path(arguments.folder), hosts, arguments.days, is_new=is_new)
    return 0


def issue(words: Sequence[str] | None = None) -> int:
    """Print a line for the token file on standard output, and the token itself beside it."""
    parser = argparse.ArgumentParser(
        prog="gt token",
        description="Make a token for a user: `gt token anna >> tokens`. The line that goes into "
        "the file holds its hash; the token is shown once, on standard error, and kept nowhere.",
    )
    parser.add_argument("name", help="the user")
    arguments = parser.parse_args(words)
    try:
        token, line = _core.new_token(arguments.name)
    except ValueError as error:
        print(f"gt token: {error}", file=sys.stderr)
        return 1
    print(line, flush=True)
    print(f"GT_TOKEN={token}", file=sys.stderr)
    return 0


def _days(word: str) -> int:
    days = int(word)
    if not 1 <= days <= DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{word} is not 1 to {DAYS_MAX}")
    return days


def _hosts(named: Sequence[str]) -> list[str]:
    """The names that were given and those that a host has anyway, each once."""
    own = ["localhost", "127.0.0.1", "::1"]
    if socket.gethostname().isascii():
        own.insert(0, socket.gethostname())
    return list(dict.fromkeys([*named, *own]))


def _explain(folder: pathlib.Path, hosts: Sequence[str], days: int, *, is_new: bool) -> None:
    if is_new:
        print(f"{folder / 'ca.pem'}: the authority; clients and workers need a copy")
        print(f"{folder / 'ca-key.pem'}: its key; keep it to yourself, nobody else needs it")
    print(f"{folder / 'server.pem'}: the dispatcher's certificate, for {', '.join(hosts)}")
    print(f"{folder / 'server-key.pem'}: its key; valid for {days} days")
    print("dispatcher:")
    files = f"--tls-cert {folder / 'server.pem'} --tls-key {folder / 'server-key.pem'}"
    print(f"  python -m gt.server --host 0.0.0.0 --token-file FILE {files}")
    print("workers and clients, with a copy of ca.pem:")
    print("  export GT_TLS_CA=ca.pem GT_TOKEN=…")
