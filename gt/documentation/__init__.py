"""The text of `help()`: arguments, results and an example of functions, methods and classes.

A file for each namespace has it; tools/reference.py writes them, and runs the examples. What Python
defines gets its text when its namespace loads, which is cheap. A `Function` asks for it when it is
read, and methods that Rust defines are compiled with it (tools/gen.py).
"""

import functools
import pathlib
import types
from collections.abc import Mapping

_FOLDER = pathlib.Path(__file__).parent
_TAKING = (types.FunctionType, property, type)


def text(namespace: str, name: str) -> str | None:
    """What is written about a function of a namespace, `gt` or `gt.linalg`."""
    return _texts(namespace).get(name)


def attach(namespace: str, members: Mapping[str, object]) -> None:
    """Gives functions, properties and classes of Python their text, and leaves others alone.

    What has several names has the text of its own.
    """
    texts = _texts(namespace)
    for name, value in members.items():
        if name not in texts or not isinstance(value, _TAKING):
            continue
        own = getattr(value, "__name__", name)
        if own == name or members.get(own) is not value:
            value.__doc__ = texts[name]


@functools.cache
def _texts(namespace: str) -> dict[str, str]:
    """The entries of one namespace: a form feed, the name, and from the next line on the text.

    After the name, and a tab, stand forms of the call where Python shows them by itself.
    """
    entries = (_FOLDER / f"{namespace}.txt").read_text(encoding="utf-8").split("\f")
    parted = (entry.partition("\n") for entry in entries[1:])
    return {title.partition("\t")[0]: written for title, _, written in parted}
