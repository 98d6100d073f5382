"""Contents of what is published under a name: the first of its values is a JSON text in bytes.

`{"structure": …, "tensors": [[shape, dtype, requires_grad, gradient], …]}`, where a gradient is a
row without one, or null. The other values follow in this order, the gradients last.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from gt import _core
from gt._core import Tensor
from gt.errors import Error, InvalidType
from gt.tensors.safetensors_file import Json

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


def unchanged(tensor: Tensor) -> Tensor:
    """The tensor."""
    return tensor


def part_at(value: Published, path: str) -> tuple[Published] | None:
    """The part at a path of keys, joined by dots and with dots of their own; None without one."""
    for key, part in value.items() if isinstance(value, dict) else ():
        if path == str(key):
            return (part,)
        below = path.removeprefix(f"{key}.")
        result = part_at(part, below) if path.startswith(f"{key}.") else None
        if result is not None:
            return result
    return None


def split(path: str) -> list[tuple[str, str]]:
    """Names that a path may begin with, the longest first, each with the rest of the path."""
    parts = path.split(".")
    counts = range(len(parts) - 1, 0, -1)
    return [(".".join(parts[:count]), ".".join(parts[count:])) for count in counts]


def row(tensor: Tensor) -> list[Json]:
    """Shape, dtype, and whether it requires a gradient as a leaf."""
    dtype = str(tensor.dtype).rpartition(".")[2]
    return [list(tensor.shape), dtype, tensor.is_leaf and tensor.requires_grad]


def value(name: str, length: int, made: Callable[[Tensor], Tensor] = unchanged) -> Published:
    """The value that the session keeps under a name.

    Args:
        name: the name.
        length: bytes of its contents.
        made: called with each tensor.
    """
    contents = _core.published(name, 0, (length,), _core.uint8)
    read = json.loads(bytes(_core.read_bytes(contents)))
    rows = read["tensors"]
    tensors = [made(_tensor(name, index, described)) for index, described in enumerate(rows, 1)]
    index = len(tensors) + 1
    for tensor, described in zip(tensors, rows, strict=True):
        if described[3] is not None:
            tensor.grad = made(_tensor(name, index, described[3]))
            index += 1
    return _rebuilt(read["structure"], tensors)


def _tensor(name: str, index: int, described: Sequence[Json]) -> Tensor:
    shape, dtype, requires_grad = described[:3]
    assert isinstance(shape, list), described
    assert isinstance(dtype, str), described
    sizes = [size for size in shape if isinstance(size, int)]
    tensor = _core.published(name, index, sizes, getattr(_core, dtype))
    return tensor.requires_grad_() if requires_grad else tensor


def structure_of(value: object, place: tuple[str, ...], tensors: list[Tensor]) -> Json:
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
                [key, structure_of(one, (*place, str(key)), tensors)] for key, one in value.items()
            ]
        }
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [structure_of(one, (*place, str(i)), tensors) for i, one in enumerate(value)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return structure_of(_state(value, where), place, tensors)


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
