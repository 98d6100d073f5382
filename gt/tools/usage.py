"""`gt usage`: what each user of a dispatcher has, holds and has used."""

import json

import gt
from gt import _core
from gt.tools import sessions

COLUMNS = ("user", "sessions", "weight", "bytes", "quota", "device_seconds", "byte_hours")

Row = dict[str, str | int | float | None]


def rows() -> list[Row]:
    """A row for each user of the connected dispatcher, the asker first."""
    listed: list[Row] = []
    for line in _core.session_request("usage", "").splitlines():
        words = line.split(" ", 6)
        if words[0] == "more":
            listed.append({"more": int(words[1])})
            continue
        open_sessions, weight, held, quota, device, byte_hours, user = words
        listed.append(
            {
                "user": None if user == "-" else user,
                "sessions": int(open_sessions),
                "weight": float(weight),
                "bytes": int(held),
                "quota": None if quota == "-" else int(quota),
                "device_seconds": float(device),
                "byte_hours": int(byte_hours),
            }
        )
    return listed


def show(address: str | None, *, as_json: bool) -> int:
    """Print the users, one a line."""
    sessions.connect(address)
    try:
        listed = rows()
    finally:
        gt.disconnect()
    if as_json:
        for row in listed:
            print(json.dumps(row))
        return 0
    lines = [[_cell(row[name]) for name in COLUMNS] for row in listed if "more" not in row]
    print("\n".join(sessions.aligned([list(COLUMNS), *lines])))
    for row in listed:
        if "more" in row:
            print(f"and {row['more']} more")
    return 0


def _cell(value: str | float | None) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
