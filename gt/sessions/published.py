"""Values that a session keeps under names: gt.publish, gt.unpublish, gt.grant and gt.session.

A named session (`gt.connect(address, session="exp1")`) outlives its client, and its next client
finds what was published. The dispatcher keeps the values themselves, so nothing is copied to the
client or to a disk.
"""

import json
import unicodedata
from collections.abc import Iterator, Mapping

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidType, InvalidValue, UnknownName
from gt.sessions import contents, other
from gt.sessions.contents import Published
from gt.tensors.safetensors_file import Json

__all__ = ["grant", "publish", "revoke", "unpublish"]


def publish(value: object, name: str) -> None:
    """Keep a value under a name of the session, for this client and for the next one.

    The values are those at the time of the call: publish again after a change, for instance after
    each step of training. Everything under one name is replaced at once, and with it the state of
    the random generator is kept; a client that is killed leaves either all of it or all of what was
    published before. No bytes move, but the memory is held until the name is published again or
    unpublished. The tape belongs to the client: leaves, parameters and their `.grad` are kept, the
    graph that computed a tensor is not.

    Args:
        value: A tensor, a module (its state_dict(), with gradients), an optimizer or scheduler (its
            state_dict()), or dictionaries, lists and tuples of these, numbers, strings and None.
        name: The name, of at most 128 bytes; `gt.session[name]` is the value.

    Raises:
        InvalidType: A value that cannot be published, named with its place.
        InvalidValue: An empty name, or one with control characters or too long.
    """
    _check(name)
    tensors: list[Tensor] = []
    structure = contents.structure_of(value, (), tensors)
    rows: list[Json] = []
    gradients: list[Tensor] = []
    for tensor in tensors:
        gradient = tensor.grad if tensor.is_leaf else None
        rows.append([*contents.row(tensor), None if gradient is None else contents.row(gradient)])
        gradients += [] if gradient is None else [gradient]
    text = json.dumps({"structure": structure, "tensors": rows}, separators=(",", ":")).encode()
    described = _core.from_bytes(bytearray(text), (len(text),), _core.uint8)
    _core.publish(name, [described, *tensors, *gradients])


def unpublish(name: str) -> None:
    """Free a name of the session; values that nothing else holds are freed on the workers.

    Raises:
        UnknownName: The session has no such name; the error lists those that it has.
    """
    if name not in _names():
        raise _unknown(name)
    _core.publish(name, [])


def grant(name: str, user: str = "") -> None:
    """Let other sessions read what this one has published under a name.

    `gt.session("exp1")["w"]` in a session of that user is then what is published as `w` here at
    that time, all of one moment, without bytes that move. They can compute with it and never write
    to it. It counts for the quota of this session and its user, also when this session has let it
    go and the other one has not. The grant is of the name: it holds for what is published under it
    later, and ends when the name is unpublished.

    Args:
        name: A name of this session, which has a name itself (`gt.connect(address, session=NAME)`).
        user: A user of the dispatcher's token file; every session of the dispatcher, if not given.

    Raises:
        UnknownName: The session has no such name; the error lists those that it has.
        InvalidValue: The session has no name, or a user is given and the dispatcher knows none.
    """
    _change_grant(name, user, is_revoked=False)


def revoke(name: str, user: str = "") -> None:
    """Take back a `gt.grant`; what others have read already stays theirs until they let it go.

    Args:
        name: The name that was granted.
        user: The user that it was granted to; every session, if not given.

    Raises:
        UnknownName: The session has no such name; the error lists those that it has.
        InvalidValue: There is no such grant.
    """
    _change_grant(name, user, is_revoked=True)


def _change_grant(name: str, user: str, *, is_revoked: bool) -> None:
    _check(name)
    if not isinstance(user, str):
        raise InvalidType(f"grant: a user is a string, not {_core.class_name(user)}")
    answer = _core.grant(name, user, is_revoked)
    if answer.startswith("-"):
        if name not in _names():
            raise _unknown(name)
        raise InvalidValue(f"gt.{'revoke' if is_revoked else 'grant'}: {answer[1:]}")


class Session(Mapping[str, Published]):
    """The names of the session and their values: `gt.session["w"]`, `del gt.session["w"]`.

    A module's name holds its state_dict, for `model.load_state_dict(gt.session["model"])`; one
    tensor of it is `gt.session["model.0.weight"]`. Reading a name moves no bytes.
    `gt.session("exp1")` is another session, of which this one reads what it was granted.
    """

    __slots__ = ()

    def __call__(self, name: str) -> other.OtherSession:
        """Another session of the same dispatcher, by its name: `gt.session("exp1")["w"]`."""
        return other.OtherSession(name)

    def __getitem__(self, name: str) -> Published:
        """Value of a name, or of a path that begins with a name.

        Raises:
            UnknownName: The session has no such name; the error lists those that it has.
        """
        names = _names()
        if name in names:
            return contents.value(name, names[name])
        for entry, path in contents.split(name):
            if entry in names:
                result = contents.part_at(contents.value(entry, names[entry]), path)
                if result is not None:
                    return result[0]
        raise _unknown(name)

    def __setitem__(self, name: str, value: object) -> None:
        publish(value, name)

    def __delitem__(self, name: str) -> None:
        unpublish(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except UnknownName:
            return False
        return isinstance(name, str)

    def __repr__(self) -> str:
        return f"gt.session with {', '.join(map(repr, self)) or 'no names'}"


session = Session()


def _check(name: str) -> None:
    if not isinstance(name, str):
        raise InvalidType(f"publish: a name is a string, not {_core.class_name(name)}")
    most = _core.PUBLISHED_NAME_BYTES_MAX
    is_control = any(unicodedata.category(letter) == "Cc" for letter in name)
    if not 0 < len(name.encode()) <= most or is_control:
        raise InvalidValue(
            f"publish: {name[:40]!r} is no name: 1 to {most} bytes without control characters"
        )


def _names() -> dict[str, int]:
    """The session's names, in the order of publication, with the bytes of each one's contents."""
    names: dict[str, int] = {}
    for line in _core.published_names().split("\n")[1:]:
        _, _, elements, name = line.split(" ", 3)
        names[name] = int(elements)
    return names


def sizes() -> dict[str, int]:
    """The session's names with the bytes that each one holds."""
    lines = [line.split(" ", 3) for line in _core.published_names().split("\n")[1:]]
    return {name: int(held) - int(contents) for _, held, contents, name in lines}


def _unknown(name: str) -> UnknownName:
    names = ", ".join(map(repr, _names())) or "nothing"
    return UnknownName(f"nothing is published as {name!r}; the session holds {names}")
