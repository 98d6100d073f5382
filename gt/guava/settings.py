"""The settings of a run as data: accepted values, default, and environment variable of each.

config.py declares the fields with their types.
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
TRIES_MAX, SECONDS_MAX = 1000, 1e6  # larger values are typing errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """Type of a setting.

    Args:
        expected: description of the values for an error.
        parse: converts a word from the environment to a value; ValueError for an invalid word.
        accept: converts an argument to a value; ValueError for an invalid argument.
    """

    expected: str
    parse: Callable[[str], object]
    accept: Callable[[object], object]


def _whole(least: int, most: float = math.inf) -> Kind:
    def accept(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ValueError  # noqa: TRY004 - one error for all invalid values
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
            raise ValueError  # noqa: TRY004 - one error for all invalid values
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
            raise ValueError  # noqa: TRY004 - one error for all invalid values
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
    """A field of the configuration: an argument takes precedence over the variable, then the
    default.
    """
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
    """A field's value in its normal form.

    Raises:
        ConfigError: the value is invalid; the message names the field and its variable, if it has
            one.
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
