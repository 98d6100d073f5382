"""`python -m gt.guava.dispatcher`: the dispatcher of a run, which ends with the orchestrator.

It is `gt-dispatcher` with the same options. The orchestrator holds the other end of its standard
input, a pipe that the system closes when the orchestrator ends in any way.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from gt.compat.server.__main__ import main

__all__: list[str] = []


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main())
