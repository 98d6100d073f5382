"""`python -m gt.server` is the program `gt-dispatcher`, with the same options: see `--help`."""

from __future__ import annotations

import sys

from gt._core import serve


def main() -> int:
    """Serves until SIGINT or SIGTERM; returns the exit code."""
    return serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
