"""`python -m gt.server` is the program `gt-dispatcher`, with the same options: see `--help`.

`--end-with-input` is one more, for programs that start it: it ends when they do, however they end.
A standby has no thread that could watch its input, so `--standby` does not go with it.
GT_INSTRUCTION_LOG is `--instruction-log` where no option says another file, and
GT_DEBUG_DISPATCHER `--log-decisions`.
"""

from __future__ import annotations

import signal
import sys

from gt._core import serve
from gt.config import debugs_dispatcher, instruction_log
from gt.launch import watch

ENDS_WITH_INPUT = "--end-with-input"
STANDBY = "--standby"
USAGE_STATUS = 2
LOG = "--instruction-log"
DECISIONS = "--log-decisions"


def main() -> int:
    """Serves until SIGINT or SIGTERM; returns the exit code."""
    # Rust listens for it and passes it on to Python, whose handler would raise KeyboardInterrupt.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = [word for word in sys.argv[1:] if word != ENDS_WITH_INPUT]
    if len(words) < len(sys.argv[1:]):
        if STANDBY in words:
            sys.stderr.write(f"gt-dispatcher: {STANDBY} does not go with {ENDS_WITH_INPUT}\n")
            return USAGE_STATUS
        watch.end_with_input()
    return serve([*words, *log_words(words)])


def log_words(words: list[str]) -> list[str]:
    """Command-line words for GT_INSTRUCTION_LOG and GT_DEBUG_DISPATCHER."""
    file = instruction_log()
    named = any(word.partition("=")[0] == LOG for word in words)
    log = [] if file is None or named else [LOG, file]
    return [*log, DECISIONS] if debugs_dispatcher() and DECISIONS not in words else log


if __name__ == "__main__":
    sys.exit(main())
