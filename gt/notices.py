"""Notices: what GT says beside errors and warnings, by the logger `gt` of the standard library.

Where nobody has configured logging, a notice is a line on standard error: one that matters
(WARNING) always, one of progress (INFO) at a terminal, in a notebook, or where GT_VERBOSE asks.
Workers are processes of their own, and their standard error is their log: they write there.
"""

import logging
import sys

from gt import config

__all__ = ["ERROR", "INFO", "WARNING", "say"]

ERROR, INFO, WARNING = logging.ERROR, logging.INFO, logging.WARNING
_logger = logging.getLogger("gt")


def say(text: str, level: int = WARNING) -> None:
    """Tell people something.

    Args:
        text: one line, without the name of the program that says it.
        level: of `logging`.
    """
    if _logger.hasHandlers():
        if _logger.level == logging.NOTSET:
            _logger.setLevel(logging.INFO)  # the root's own level is for programs that log much
        _logger.log(level, text)
    elif sys.stderr is None:
        return  # the program was started without
    elif level >= max(_logger.level, WARNING) or (level >= _logger.level and _shows_progress()):
        sys.stderr.write(f"gt: {text}\n")


def _shows_progress() -> bool:
    is_watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    return is_watched or config.is_verbose()
