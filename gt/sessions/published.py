"""Values that a session keeps under names: gt.publish, gt.unpublish and gt.session.

A named session (`gt.connect(address, session="exp1")`) outlives its client, and its next client
finds what was published. The dispatcher keeps the values themselves, so nothing is copied to the
client or to a disk.
"""

import json
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from gt import _core
from gt._core import Tensor
from gt.errors import Error, InvalidType, InvalidValue, UnknownName
from gt.tensors.safetensors_file import Json

__all__ = ["publish", "unpublish"]

DEPTH_MAX = 64  # nested dictionaries and lists: far below the stack's limit
Published: TypeAlias = (
    Tensor
    | bool
    | int
    | float
    | str
    | list["Published"]
    | tuple["Published", ...]
    | dict[str | int, "Published"]
    | None
)


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
    structure = _described(value, (), tensors)
    rows: list[Json] = []
    gradients: list[Tensor] = []
    for tensor in tensors:
        gradient = tensor.grad if tensor.is_leaf else None
        rows.append([*_row(tensor), None if gradient is None else _row(gradient)])
        gradients += [] if gradient is None else [gradient]
    text = json.dumps({"structure": structure, "tensors": rows}, separators=(",", ":")).encode()
    contents = _core.from_bytes(bytearray(text), (len(text),), _core.uint8)
    _core.publish(name, [contents, *tensors, *gradients])


def unpublish(name: str) -> None:
    """Free a name of the session; values that nothing else holds are freed on the workers.

    Raises:
        UnknownName: The session has no such name; the error lists those that it has.
    """
    if name not in _names():
        raise _unknown(name)
    _core.publish(name, [])


class Session(Mapping[str, Published]):
    """The names of the session and their values: `gt.session["w"]`, `del gt.session["w"]`.

    A module's name holds its state_dict, for `model.load_state_dict(gt.session["model"])`; one
    tensor of it is `gt.session["model.0.weight"]`. Reading a name moves no bytes.
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> Published:
        """Value of a name, or of a path that begins with a name.

        Raises:
            UnknownName: The session has no such name; the error lists those that it has.
        """
        names = _names()
        if name in names:
            return _value(name, names[name])
        parts = name.split(".")
        for count in range(len(parts) - 1, 0, -1):
            entry, path = ".".join(parts[:count]), ".".join(parts[count:])
            if entry in names:
                result = _at(_value(entry, names[entry]), path)
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


def _at(value: Published, path: str) -> tuple[Published] | None:
    """The part at a path of keys, joined by dots and with dots of their own; None without one."""
    for key, part in value.items() if isinstance(value, dict) else ():
        if path == str(key):
            return (part,)
        result = _at(part, path.removeprefix(f"{key}.")) if path.startswith(f"{key}.") else None
        if result is not None:
            return result
    return None


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


# ---- contents: {"structure": …, "tensors": [[shape, dtype, requires_grad, gradient], …]}, where a
# gradient is a row without one, or null. The values follow in this order, the gradients last ----


def _row(tensor: Tensor) -> list[Json]:
    dtype = str(tensor.dtype).rpartition(".")[2]
    return [list(tensor.shape), dtype, tensor.is_leaf and tensor.requires_grad]


def _value(name: str, length: int) -> Published:
    contents = _core.published(name, 0, (length,), _core.uint8)
    read = json.loads(bytes(_core.read_bytes(contents)))
    tensors = [_tensor(name, index, row) for index, row in enumerate(read["tensors"], 1)]
    index = len(tensors) + 1
    for tensor, row in zip(tensors, read["tensors"], strict=True):
        if row[3] is not None:
            tensor.grad = _tensor(name, index, row[3])
            index += 1
    return _rebuilt(read["structure"], tensors)


def _tensor(name: str, index: int, row: Sequence[Json]) -> Tensor:
    shape, dtype, requires_grad = row[:3]
    assert isinstance(shape, list), row
    assert isinstance(dtype, str), row
    sizes = [size for size in shape if isinstance(size, int)]
    tensor = _core.published(name, index, sizes, getattr(_core, dtype))
    return tensor.requires_grad_() if requires_grad else tensor


def _described(value: object, place: tuple[str, ...], tensors: list[Tensor]) -> Json:
    """The structure of a value; its tensors are added to `tensors`."""
    where = ".".join(place) or "the value"
    if len(place) > DEPTH_MAX:
        raise InvalidType(f"publish: {where} is nested deeper than {DEPTH_MAX}")
    if isinstance(value, Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, Mapping):
        for key in value:
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise InvalidType(
                    f"publish: {where} has a key {key!r}; keys are strings and integers"
                )
        return {
            "dict": [
                [key, _described(one, (*place, str(key)), tensors)] for key, one in value.items()
            ]
        }
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_described(one, (*place, str(i)), tensors) for i, one in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _described(_state(value, where), place, tensors)


def _state(value: object, where: str) -> Mapping[str, object]:
    """The state of a module, an optimizer or a scheduler."""
    from gt.nn import Module

    if isinstance(value, Module):
        return value.state_dict(keep_vars=True)
    state_dict = getattr(value, "state_dict", None)
    state = state_dict() if callable(state_dict) else None
    if not isinstance(state, Mapping):
        raise InvalidType(
            f"publish: {where} is a {_core.class_name(value)}; tensors, modules, optimizers, "
            "dictionaries, lists, tuples, numbers, strings and None can be published"
        )
    return state


def _rebuilt(structure: Json, tensors: Sequence[Tensor]) -> Published:
    if structure is None or isinstance(structure, bool | int | float | str):
        return structure
    assert isinstance(structure, dict), structure
    ((kind, body),) = structure.items()
    if kind == "tensor" and isinstance(body, int):
        return tensors[body]
    if kind == "float" and isinstance(body, str):
        return float(body)
    if kind in ("list", "tuple") and isinstance(body, list):
        values = [_rebuilt(value, tensors) for value in body]
        return values if kind == "list" else tuple(values)
    if kind == "dict" and isinstance(body, list):
        return dict(_pair(item, tensors) for item in body)
    raise Error(f"the contents of a published value have a part without meaning: {kind}")


def _pair(item: Json, tensors: Sequence[Tensor]) -> tuple[str | int, Published]:
    assert isinstance(item, list), item
    assert isinstance(item[0], str | int), item
    return item[0], _rebuilt(item[1], tensors)
