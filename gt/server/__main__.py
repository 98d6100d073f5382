"""`python -m gt.server` is the program `gt-dispatcher`, with the same options: see `--help`."""

from __future__ import annotations

import signal
import sys

from gt._core import serve


def main() -> int:
    """Serves until SIGINT or SIGTERM; returns the exit code."""
    # Rust listens for it and passes it on to Python, whose handler would raise KeyboardInterrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return serve(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
