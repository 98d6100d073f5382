"""The text of `help()`: arguments, results and an example of functions, methods and classes.

Each namespace has a file, which tools/reference.py writes (it also runs the examples). Objects
defined in Python get their text when their namespace loads, which is cheap. A `Function` looks its
text up on access, and methods defined in Rust have it compiled in (tools/gen.py).
"""

import functools
import pathlib
import types
from collections.abc import Mapping

_FOLDER = pathlib.Path(__file__).parent
_TAKING = (types.FunctionType, property, type)


def text(namespace: str, name: str) -> str | None:
    """Help text of a function in a namespace, `gt` or `gt.linalg`."""
    return _texts(namespace).get(name)


def attach(namespace: str, members: Mapping[str, object]) -> None:
    """Set the docstrings of functions, properties and classes defined in Python; leave others
    alone.

    An object with several names gets the text of its own name.
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
    """Texts of one namespace, by name. An entry is a form feed and the name, followed by lines of
    text.

    Behind the name, after a tab, stand the call forms for objects whose signature Python shows
    itself.
    """
    entries = (_FOLDER / f"{namespace}.txt").read_text(encoding="utf-8").split("\f")
    parted = (entry.partition("\n") for entry in entries[1:])
    return {title.partition("\t")[0]: written for title, _, written in parted}
