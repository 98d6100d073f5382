"""Warnings of torch and numpy during execution: a line of the worker's log, once for each text.

The log of a worker is its stderr. The place in the worker where a warning arose is of no use to a
reader, so the line names the operator instead.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import TextIO

from gt._core import executing_op

# Limit of texts that are remembered; a text with a number in it may differ each time.
TEXTS_MAX = 1024
# torch adds its C++ file to a warning that comes through Python, not to one from the helper.
_PLACE_IN_TORCH = re.compile(r" ?\(Triggered internally at [^)]*\)")


class Log:
    """Replacement of `warnings.showwarning`."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,  # noqa: ARG002 - within torch or the worker
        lineno: int,  # noqa: ARG002
        file: TextIO | None = None,  # noqa: ARG002
        line: str | None = None,  # noqa: ARG002
    ) -> None:
        """Writes the warning to the log unless its text has been written before."""
        text = _PLACE_IN_TORCH.sub("", " ".join(str(message).split()))
        if text in self.told or len(self.told) == TEXTS_MAX:
            return
        self.told.add(text)
        op = executing_op()
        if op == "aten_meta" and "is non-contiguous" in text:
            return  # operands of such a question are one element, expanded; a user's are not
        place = "" if op is None else f"in `{op}`: "
        sys.stderr.write(f"gt.worker: {place}{category.__name__}: {text}\n")


def install() -> None:
    """Makes this process's warnings lines of its log."""
    warnings.showwarning = Log().show
