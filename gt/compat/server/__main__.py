"""`python -m gt.server` is the program `gt-dispatcher`, with the same options: see `--help`.

GT_INSTRUCTION_LOG is `--instruction-log` where no option says another file, and
GT_DEBUG_DISPATCHER `--log-decisions`.
"""

from __future__ import annotations

import signal
import sys

from gt._core import serve
from gt.config import debugs_dispatcher, instruction_log

LOG = "--instruction-log"
DECISIONS = "--log-decisions"


def main() -> int:
    """Serves until SIGINT or SIGTERM; returns the exit code."""
    # Rust listens for it and passes it on to Python, whose handler would raise KeyboardInterrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = sys.argv[1:]
    return serve([*words, *log_words(words)])


def log_words(words: list[str]) -> list[str]:
    """Command-line words for GT_INSTRUCTION_LOG and GT_DEBUG_DISPATCHER."""
    file = instruction_log()
    named = any(word.partition("=")[0] == LOG for word in words)
    log = [] if file is None or named else [LOG, file]
    return [*log, DECISIONS] if debugs_dispatcher() and DECISIONS not in words else log


if __name__ == "__main__":
    sys.exit(main())
