"""Notices: messages beside errors and warnings, by the logger `gt` of the standard library.

If logging is not configured, a notice is a line on standard error: an important one (WARNING)
always, one about progress (INFO) at a terminal, in a notebook, or with GT_VERBOSE. Workers are
separate processes whose standard error is their log: they write there.
"""

import logging
import sys

from gt import config

__all__ = ["ERROR", "INFO", "WARNING", "say"]

ERROR, INFO, WARNING = logging.ERROR, logging.INFO, logging.WARNING
_logger = logging.getLogger("gt")


def say(text: str, level: int = WARNING) -> None:
    """Issue a notice.

    Args:
        text: one line, without the program's name.
        level: level of `logging`.
    """
    if _logger.hasHandlers():
        if _logger.level == logging.NOTSET:
            _logger.setLevel(logging.INFO)  # the root logger's level is for programs that log much
        _logger.log(level, text)
    elif sys.stderr is None:
        return  # the program was started without stderr
    elif level >= max(_logger.level, WARNING) or (level >= _logger.level and _shows_progress()):
        sys.stderr.write(f"gt: {text}\n")


def _shows_progress() -> bool:
    is_watched = sys.stderr.isatty() or "ipykernel" in sys.modules
    return is_watched or config.is_verbose()
