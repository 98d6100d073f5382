"""Arguments of a call as PyTorch binds them: to the first overload that they fit."""

import re
from collections.abc import Mapping, Sequence

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidType, InvalidUse, InvalidValue, out_refused
from gt.tensors.aten import arguments, schemas
from gt.tensors.aten.schemas import Argument, Schema
from gt.tensors.dtypes import check_layout

# Alternative names that PyTorch accepts for an argument.
_OTHER_NAMES = {"dim": ("axis",), "keepdim": ("keepdims",), "self": ("input", "x")}
_UNFIT = object()


def bind(
    name: str, args: Sequence[object], named: Mapping[str, object], *, is_method: bool = False
) -> tuple[Schema, list[object]]:
    """The first overload that takes these arguments, and its arguments' values in order.

    Raises InvalidType with PyTorch's text if none does. A method's first argument has no position
    there.
    """
    if named.get("out") is not None:
        raise out_refused(_title(name))
    return bound_to(name, schemas.of(name), args, named, is_method=is_method)


def bound_to(
    name: str,
    candidates: Sequence[Schema],
    args: Sequence[object],
    named: Mapping[str, object],
    *,
    is_method: bool = False,
) -> tuple[Schema, list[object]]:
    """Binds as `bind` does, to one of `candidates`, which errors call `name`."""
    complaints = []
    for schema in candidates:
        bound = _fitted(schema, args, named, is_method)
        if isinstance(bound, list):
            return schema, bound
        complaints.append(bound)
    if len(candidates) == 1:
        raise InvalidType(f"{name}(){complaints[0]}")
    kinds = [_core.class_name(value) for value in args[is_method:]]
    kinds += [f"{word}={type(value).__name__}" for word, value in named.items()]
    lines = "".join(f"\n * {_signature(schema)}" for schema in candidates)
    raise InvalidType(
        f"{name}() received an invalid combination of arguments - got ({', '.join(kinds)}), "
        f"but expected one of:{lines}"
    )


def _fitted(
    schema: Schema, args: Sequence[object], named: Mapping[str, object], is_method: bool
) -> list[object] | str:
    """The values of the arguments in order, or the reason why they do not fit, in
    PyTorch's words.
    """
    positional = [argument for argument in schema.arguments if not argument.is_keyword]
    args = _variadic(schema, positional, args) or args
    if len(args) > len(positional):
        most, count = len(positional) - is_method, len(args) - is_method
        least = sum(argument.is_required for argument in positional) - is_method
        takes = f"{most}" if least == most else f"from {least} to {most}"
        plural = "" if most == 1 else "s"
        return f" takes {takes} positional argument{plural} but {count} were given"
    rest = dict(named)
    values = {argument.name: value for argument, value in zip(positional, args, strict=False)}
    for argument in schema.arguments:
        word = next((word for word in _words(argument.name) if word in rest), None)
        if word is not None:
            if argument.name in values:
                return f" got multiple values for argument '{word}'"
            values[argument.name] = rest.pop(word)
    bound = _all_converted(schema, values, set(named), is_method)
    if isinstance(bound, list) and rest.pop("out", None) is None and rest:
        return f" got an unexpected keyword argument '{next(iter(rest))}'"
    return bound


def _title(name: str) -> str:
    """The name as programs write it: `linalg.svd` for `linalg_svd`."""
    return re.sub("^(fft|linalg|special)_", r"\1.", name)


def _shown(argument: Argument) -> str:
    """An argument's name in PyTorch's functions."""
    return "input" if (argument.name, argument.type) == ("self", "Tensor") else argument.name


def _all_converted(
    schema: Schema, values: Mapping[str, object], named: set[str], is_method: bool
) -> list[object] | str:
    bound: list[object] = []
    for place, argument in enumerate(schema.arguments, 1 - is_method):
        if argument.name not in values:
            if argument.is_required:
                return _without(schema, values)
            bound.append(argument.default)
            continue
        value = values[argument.name]
        if argument.type == "Tensor[]":
            _require_tensors(value, place - 1 + is_method)
        converted = _converted(argument, value)
        if converted is _UNFIT:
            wanted = f"must be {_type_word(argument)}, not {_core.class_name(value)}"
            where = "" if named & set(_words(argument.name)) else f" (position {place})"
            return f": argument '{_shown(argument)}'{where} {wanted}"
        bound.append(converted)
    return _numbers_that_fit(schema, bound)


def _without(schema: Schema, values: Mapping[str, object]) -> str:
    missing = [f'"{_shown(x)}"' for x in schema.arguments if x.is_required and x.name not in values]
    plural = "s" if len(missing) == 1 else ""  # PyTorch's own plural rule
    return f" missing {len(missing)} required positional argument{plural}: {', '.join(missing)}"


def _require_tensors(value: object, place: int) -> None:
    """PyTorch accepts any list for one of tensors, and checks its elements later."""
    for at, item in enumerate(value if isinstance(value, list | tuple) else ()):
        if not isinstance(item, Tensor):
            kind = _core.class_name(item)
            text = f"expected Tensor as element {at} in argument {place}, but got {kind}"
            raise InvalidType(text)


def _words(name: str) -> tuple[str, ...]:
    return (name, *_OTHER_NAMES.get(name, ()))


def _variadic(
    schema: Schema, positional: Sequence[Argument], args: Sequence[object]
) -> list[object] | None:
    """The arguments with trailing integers or tensors collected, if the last argument is a list of
    them.
    """
    sizes = len(positional) == 2 and positional[1].type.startswith("int[") and len(args) > 2
    if sizes and all(isinstance(x, int) for x in args[1:]):
        return [args[0], list(args[1:])]
    first = schema.arguments[0] if schema.arguments else None
    if (
        first is not None
        and (first.type, first.name) == ("Tensor[]", "tensors")
        and args
        and isinstance(args[0], Tensor)
    ):
        return [list(args)]
    return None


def _converted(argument: Argument, value: object) -> object:
    """The value in the argument's type; `_UNFIT` if it has none."""
    kind = argument.type
    if value is None:
        # PyTorch's functions show an empty list as None: avg_pool2d(x, 2, None).
        is_empty = isinstance(argument.default, list) and not argument.default
        return argument.default if is_empty else None if kind.endswith("?") else _UNFIT
    kind = kind.removesuffix("?")
    if kind.endswith("]"):
        return _as_list(kind, value)
    return _as_one(kind, value)


def _as_list(kind: str, value: object) -> object:
    item, _, size = kind.removesuffix("]").partition("[")
    if size and not isinstance(value, list | tuple):  # int[2]: one number stands for each
        one = _as_one(item, value)
        return _UNFIT if one is _UNFIT else [one] * int(size)
    if isinstance(value, Tensor) or not isinstance(value, Sequence) or isinstance(value, str):
        return _UNFIT
    optional = item.endswith("?")
    items = [None if optional and x is None else _as_one(item.removesuffix("?"), x) for x in value]
    return _UNFIT if any(x is _UNFIT for x in items) else items


def _as_one(kind: str, value: object) -> object:
    if kind == "Tensor":
        return value if isinstance(value, Tensor) else _UNFIT
    if kind == "ScalarType":
        return value if isinstance(value, _core.dtype) else _UNFIT
    if kind == "Layout":
        check_layout(value, "operator")
    if kind in {"Device", "Layout", "MemoryFormat"}:
        return None
    if isinstance(value, Tensor):
        return _UNFIT
    if kind == "bool":
        return value if isinstance(value, bool) else _UNFIT
    if kind == "str":
        return value if isinstance(value, str) else _UNFIT
    return _as_number(kind, value)


def _as_number(kind: str, value: object) -> object:
    if hasattr(value, "item"):
        value = value.item()  # a numpy float64 is a float with another text
    if kind == "int":
        return _in_64_bits(value)
    if kind == "float":
        return float(value) if isinstance(value, int | float) else _UNFIT
    return value if isinstance(value, int | float | complex) else _UNFIT


def _in_64_bits(value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        return _UNFIT
    if not -(2**63) <= value < 2**63:
        raise InvalidValue("Overflow when unpacking long long")
    return value


def _numbers_that_fit(schema: Schema, bound: list[object]) -> list[object]:
    """Integers from 2**63 to 2**64, which PyTorch holds unsigned, as floats.

    A worker's PyTorch would read them as negative numbers.

    Raises:
        InvalidUse: Integer operands would hold it.
        OverflowError: The number exceeds PyTorch's range.
    """
    numbers = [
        (place, value)
        for place, (argument, value) in enumerate(zip(schema.arguments, bound, strict=True))
        if argument.type.startswith("Scalar") and isinstance(value, int)
    ]
    for place, value in numbers:
        if -(2**63) <= value < 2**63:
            continue
        if not 0 < value < 2**64:
            text = (
                "int too big to convert" if value > 0 else "can't convert negative int to unsigned"
            )
            raise OverflowError(text)
        tensors = [x for x in bound if isinstance(x, Tensor)]
        if not any(x.dtype.is_floating_point or x.dtype.is_complex for x in tensors):
            raise InvalidUse("value cannot be converted to type int64_t without overflow")
        bound[place] = float(value)
    return bound


def written(schema: Schema, bound: Sequence[object]) -> tuple[str, list[Tensor]]:
    """The text of the arguments, without defaults at the end, and the tensors among them."""
    operands: list[Tensor] = []
    pairs = list(zip(schema.arguments, bound, strict=True))
    positional = [pair for pair in pairs if not pair[0].is_keyword]
    while positional and not _differs(*positional[-1]):
        positional.pop()
    texts = [_text(value, operands) for _, value in positional]
    texts += [
        f"{argument.name}={_text(value, operands)}"
        for argument, value in pairs
        if argument.is_keyword and _differs(argument, value)
    ]
    return ", ".join(texts), operands


def _differs(argument: Argument, value: object) -> bool:
    """True if a value is not the argument's default; a tensor always differs."""
    if argument.is_required or isinstance(value, Tensor):
        return True
    if isinstance(value, list) and any(isinstance(x, Tensor) for x in value):
        return True
    return value != argument.default


def _text(value: object, operands: list[Tensor]) -> str:
    if isinstance(value, Tensor):
        operands.append(value)
        return f"_{len(operands) - 1}"
    if isinstance(value, list):
        return f"[{', '.join(_text(x, operands) for x in value)}]"
    if isinstance(value, _core.dtype):
        return value.name
    return arguments.literal(value)


# ---- the words of an error ----------------------------------------------------------------------


_TYPE_WORDS = {
    "Tensor[]": "tuple of Tensors",
    "Scalar": "Number",
    "int[]": "tuple of ints",
    "ScalarType": "torch.dtype",
}


def _type_word(argument: Argument) -> str:
    kind = argument.type.removesuffix("?")
    return _TYPE_WORDS.get(kind, "tuple of ints" if kind.startswith("int[") else kind)


def _signature(schema: Schema) -> str:
    words = [f"{_type_word(argument)} {_shown(argument)}" for argument in schema.arguments]
    return f"({', '.join(words)})"
