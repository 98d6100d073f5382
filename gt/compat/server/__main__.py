"""`python -m gt.server` is the program `gt-dispatcher`, with the same options: see `--help`.

GT_INSTRUCTION_LOG is `--instruction-log` where no option says another file.
"""

from __future__ import annotations

import signal
import sys

from gt._core import serve
from gt.config import instruction_log

LOG = "--instruction-log"


def main() -> int:
    """Serves until SIGINT or SIGTERM; returns the exit code."""
    # Rust listens for it and passes it on to Python, whose handler would raise KeyboardInterrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = sys.argv[1:]
    return serve([*words, *log_words(words)])


def log_words(words: list[str]) -> list[str]:
    """Command-line words for GT_INSTRUCTION_LOG."""
    file = instruction_log()
    named = any(word.partition("=")[0] == LOG for word in words)
    return [] if file is None or named else [LOG, file]


if __name__ == "__main__":
    sys.exit(main())
