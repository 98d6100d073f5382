"""Values that another session has published and granted: `gt.session("exp1")["w"]`."""

import threading
from collections.abc import Iterator, Mapping

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidType, UnknownName
from gt.sessions import contents
from gt.sessions.contents import Published

# A session holds one name of another one at a time, between asking for it and taking its values.
_lock = threading.Lock()


class OtherSession(Mapping[str, Published]):
    """The names that another session grants to this one, and their values, which are read-only.

    Reading a name takes all of its values as they were at one moment; read again for later ones.
    Nothing moves, and the other session may publish again or end meanwhile.

    Args:
        name: name of the session.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise InvalidType(f"gt.session: a name is a string, not {_core.class_name(name)}")
        self._name = name

    def __getitem__(self, name: str) -> Published:
        """Value of a name, or of a path that begins with a name.

        Raises:
            UnknownName: there is no such session, or it does not grant the name; the error says who
                holds it and what is granted.
        """
        names = self._names()
        if name not in names:
            for entry, path in contents.split(name):
                result = contents.part_at(self._borrowed(entry), path) if entry in names else None
                if result is not None:
                    return result[0]
        return self._borrowed(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except UnknownName:
            return False
        return isinstance(name, str)

    def __repr__(self) -> str:
        return f"gt.session({self._name!r})"

    def _names(self) -> list[str]:
        return self._ask("").splitlines()

    def _borrowed(self, name: str) -> Published:
        with _lock:
            length = int(self._ask(name))
            try:
                return contents.value(f"{self._name}\t{name}", length, self._read_only)
            finally:
                _core.borrow("", "")

    def _ask(self, name: str) -> str:
        answer = _core.borrow(self._name, name)
        if answer.startswith("-"):
            raise UnknownName(answer[1:])
        return answer[1:]

    def _read_only(self, tensor: Tensor) -> Tensor:
        why = (
            f"this tensor belongs to session {self._name!r} and is read-only here; clone() it for "
            "one that can be written to"
        )
        return _core.read_only(tensor, why)
