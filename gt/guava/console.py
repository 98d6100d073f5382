"""Messages of a run, line by line; a progress bar on display stays below them."""

from __future__ import annotations

import sys

__all__ = ["say", "say_once"]

_said: set[str] = set()


def say(text: str) -> None:
    """Write one line to standard output."""
    bar = sys.modules.get("tqdm")
    if bar is not None:
        bar.tqdm.write(f"guava: {text}")
    elif sys.stdout is not None:
        sys.stdout.write(f"guava: {text}\n")
    if sys.stdout is not None:
        sys.stdout.flush()


def say_once(text: str) -> None:
    """Write a line unless it was written before."""
    if text not in _said:
        _said.add(text)
        say(text)
