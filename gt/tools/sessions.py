"""`gt sessions`, `gt kill`, `gt detach`, `gt attach`: named sessions of a dispatcher."""

import code
import json
import sys
from collections.abc import Mapping

import gt
from gt import _core, config
from gt.errors import InvalidValue
from gt.sessions import published
from gt.tools import top

COLUMNS = ("session", "user", "state", "lease_left_s", "names", "values", "bytes")

Row = dict[str, str | int | bool | None]


def rows() -> list[Row]:
    """The named sessions of the connected dispatcher, the user's own first."""
    listed: list[Row] = []
    for line in _core.session_request("list", "").splitlines():
        words = line.split(" ", 7)
        if words[0] == "more":
            listed.append({"more": int(words[1])})
            continue
        whose, since, left, names, values, held, user, name = words
        listed.append(
            {
                "session": name,
                "user": None if user == "-" else user,
                "is_own": whose == "own",
                "detached_s": None if since == "-" else int(since),
                "lease_left_s": None if left == "-" else int(left),
                "names": int(names),
                "values": int(values),
                "bytes": int(held),
            }
        )
    return listed


def show(address: str | None, *, as_json: bool) -> int:
    """Print the named sessions, one a line."""
    where = connect(address)
    try:
        listed = rows()
        if as_json:
            for row in listed:
                print(json.dumps(row))
        elif listed:
            print(text(listed))
        else:
            print(f"{where}: no session has a name (gt.connect(address, session=NAME) opens one)")
    finally:
        gt.disconnect()
    return 0


def text(listed: list[Row]) -> str:
    """A table with a line for each session."""
    lines = [list(COLUMNS), *(_cells(row) for row in listed if "more" not in row)]
    more = [f"and {row['more']} more" for row in listed if "more" in row]
    return "\n".join(aligned(lines) + more)


def aligned(lines: list[list[str]]) -> list[str]:
    """The lines of a table, with columns of one width."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def _cells(row: Mapping[str, str | int | bool | None]) -> list[str]:
    detached = row["detached_s"]
    state = "attached" if detached is None else f"detached {detached} s ago"
    shown = {**row, "state": state, "user": row["user"] or "-"}
    if detached is None:
        shown["lease_left_s"] = "-"
    return [str(shown[name]) for name in COLUMNS]


def change(address: str | None, action: str, name: str) -> int:
    """Take a session from its client, or end it with all that it holds."""
    connect(address)
    try:
        answer = _core.session_request(action, name)
    finally:
        gt.disconnect()
    if not answer.startswith("+"):
        print(f"gt: {answer[1:]}", file=sys.stderr)
        return 1
    print(answer[1:])
    return 0


def attach(address: str | None, name: str) -> int:
    """Attach to a session that exists, print what it holds, and open a Python prompt."""
    where = connect(address)
    try:
        own = [str(row["session"]) for row in rows() if row.get("is_own")]
    finally:
        gt.disconnect()
    if name not in own:
        hint = f"there are {', '.join(own)}" if own else "no session has a name"
        raise InvalidValue(f"there is no session {name!r} at {where}; {hint}")
    gt.connect(where, session=name)
    try:
        for entry, held in published.sizes().items():
            print(f"{entry}  {held} bytes")
        if sys.stdin.isatty():
            banner = f"attached to {name}: gt.session holds its values; the prompt's end detaches"
            code.interact(banner, local={"gt": gt}, exitmsg="")
    finally:
        gt.disconnect()
    return 0


def connect(address: str | None) -> str:
    """Connect to a dispatcher, by default GT_ADDRESS's; returns its address."""
    where = address or config.session_options().address or top.ADDRESS
    gt.connect(where)
    return where
