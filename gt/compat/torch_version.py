"""Version strings as PyTorch programs compare them: ordered by their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gt import _core

__all__ = ["TorchVersion"]

_PHASES = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_PATTERN = (
    r"\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<phase>alpha|beta|preview|pre|a|b|c|rc)[-_.]?(?P<phase_number>\d*))?"
    r"(?:-(?P<post_alone>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*"
)

Key = tuple[object, ...]


class TorchVersion(str):
    """A version that compares by its numbers with strings, tuples and other versions.

    Text that is no version compares as a string.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __lt__(self, other: object) -> bool:
        return self._compared(other, "__lt__")

    def __le__(self, other: object) -> bool:
        return self._compared(other, "__le__")

    def __gt__(self, other: object) -> bool:
        return self._compared(other, "__gt__")

    def __ge__(self, other: object) -> bool:
        return self._compared(other, "__ge__")

    def __eq__(self, other: object) -> bool:
        return self._compared(other, "__eq__")

    def _compared(self, other: object, method: str) -> bool:
        ours, theirs = _key(str(self)), _key(_text(other))
        if ours is None or theirs is None:
            compare: Callable[[object], bool] = getattr(super(), method)
            return compare(other)
        result: bool = getattr(ours, method)(theirs)
        return result


def _text(other: object) -> str:
    """A version's text; a tuple's items are joined by dots."""
    if isinstance(other, str):
        return str(other)
    if isinstance(other, Iterable):
        return ".".join(str(item) for item in other)
    # Only version objects of a packaging library have such a text.
    return str(other) if hasattr(other, "release") else ""


def _key(text: str) -> Key | None:
    """A sort key in the order of Python's versions, without trailing zeros; None for no version.

    A development release precedes its release, then come its phases, the release and post-releases.
    """
    match = re.fullmatch(_PATTERN, text.lower(), re.ASCII)
    if match is None:
        return None
    release = [int(number) for number in match["release"].split(".")]
    while release and not release[-1]:
        release.pop()
    is_post = match["post"] is not None or match["post_alone"] is not None
    post = int(match["post_alone"] or match["post_number"] or 0) if is_post else -1
    dev = (0, int(match["dev_number"] or 0)) if match["dev"] else (1, 0)
    if match["phase"]:
        phase = _PHASES.get(match["phase"], match["phase"]), int(match["phase_number"] or 0)
    else:
        phase = ("" if match["dev"] and not is_post else "~"), 0  # before "a", after "rc"
    local = re.split(r"[-_.]", match["local"]) if match["local"] else []
    words = [(1, int(word), "") if word.isdigit() else (0, 0, word) for word in local]
    return int(match["epoch"] or 0), release, phase, post, dev, words


# The PyTorch version whose interface GT has, then GT's own version: programs test it for functions.
__version__ = TorchVersion(f"2.15.0+gt{_core.__version__}")


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
