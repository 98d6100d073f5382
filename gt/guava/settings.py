"""The settings of a run as data: what each takes, its default, and the variable that may set it.

The fields themselves, with their types, stand in config.py.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any, TypeVar

from gt.config import environment
from gt.config.variables import OFF, ON, SWITCH, Variable
from gt.errors import ConfigError

__all__ = ["MASTER_IP", "MASTER_PORT", "check", "setting"]

T = TypeVar("T")
FAMILY = "Guava"
PORT_MAX = 2**16 - 1
TRIES_MAX, SECONDS_MAX = 1000, 1e6  # more is a slip of the hand


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """Type of a setting.

    Args:
        expected: description of the values for an error.
        parse: a function from a word of the environment to a value; ValueError for a word without
            meaning.
        accept: a function from an argument to a value; ValueError for an argument without meaning.
    """

    expected: str
    parse: Callable[[str], object]
    accept: Callable[[object], object]


def _whole(least: int, most: float = math.inf) -> Kind:
    def accept(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ValueError  # noqa: TRY004 - one error for all that is not taken
        number = int(value)
        if not least <= number <= most:
            raise ValueError
        return number

    bounds = f"of at least {least}" if most == math.inf else f"from {least} to {most:.0f}"
    return Kind(
        expected=f"a whole number {bounds}",
        parse=lambda word: accept(int(word)),
        accept=accept,
    )


def _real(least: float, most: float = math.inf, *, none: bool = False) -> Kind:
    def accept(value: object) -> float | None:
        if value is None and none:
            return None
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise ValueError  # noqa: TRY004 - one error for all that is not taken
        number = float(value)
        if not (math.isfinite(number) and least <= number <= most):
            raise ValueError
        return number

    bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
    return Kind(
        expected=f"a number {bounds}{', or None' * none}",
        parse=lambda word: accept(float(word)),
        accept=accept,
    )


def _switch() -> Kind:
    def parse(word: str) -> bool:
        if word.lower() not in ON + OFF:
            raise ValueError
        return word.lower() in ON

    def accept(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError  # noqa: TRY004 - one error for all that is not taken
        return value

    return Kind(expected="True or False", parse=parse, accept=accept)


def _text() -> Kind:
    def accept(value: object) -> str:
        text = str(value)
        if not text:
            raise ValueError
        return text

    return Kind(expected="a text that is not empty", parse=accept, accept=accept)


def _port() -> Kind:
    number = _whole(0)

    def accept(value: object) -> int:
        port = number.accept(value)
        if not isinstance(port, int) or port > PORT_MAX:
            raise ValueError
        return port

    return Kind(
        expected=f"a port, 0 (a free one) to {PORT_MAX}",
        parse=lambda word: accept(int(word)),
        accept=accept,
    )


COUNT, NUMBER, SWITCHED, TEXT = _whole(1), _whole(0), _switch(), _text()
TRIES, SECONDS = _whole(0, TRIES_MAX), _real(0.0, SECONDS_MAX)
AMOUNT, SHARE, LIMIT, PORT = _real(0.0), _real(0.0, 1.0), _real(0.0, none=True), _port()


def setting(kind: Kind, default: T, variable: str | None = None) -> Any:  # noqa: ANN401 - a field
    """A field of the configuration: an argument beats the variable, that the default."""
    metadata: dict[str, object] = {"kind": kind, "default": default}
    if variable is None:
        return dataclasses.field(default=default, metadata=metadata)
    row = _variable(variable, kind, default)
    metadata["variable"] = row
    return dataclasses.field(default_factory=lambda: environment.read(row), metadata=metadata)


def _variable(name: str, kind: Kind, default: T) -> Variable[Any]:
    return Variable(
        name=name,
        family=FAMILY,
        default=default,
        parse=kind.parse,
        expected=SWITCH if kind is SWITCHED else kind.expected,
        summary="",
    )


def check(field: dataclasses.Field[Any], value: object) -> object:
    """The value that a field takes.

    Raises:
        ConfigError: it means nothing there; names the field and, where it has one, its variable.
    """
    kind: Kind = field.metadata["kind"]
    try:
        return kind.accept(value)
    except ValueError:
        row = field.metadata.get("variable")
        also = "" if row is None else f" (variable {row.name})"
        raise ConfigError(
            f"{field.name}={value!r}{also}: expected {kind.expected}", key=field.name
        ) from None


MASTER_IP = _variable("MASTER_IP", TEXT, "localhost")
MASTER_PORT = _variable("MASTER_PORT", PORT, 29500)
