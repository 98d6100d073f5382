"""Warnings with the line of the user's program that caused them."""

import inspect
import pathlib
import warnings

HERE = str(pathlib.Path(__file__).resolve().parent.parent)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside of GT."""
    frame, level = inspect.currentframe(), 1  # a level of 1 is this line
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
