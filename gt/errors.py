"""The exceptions that GT raises, each also of PyTorch's class for the same mistake.

A user's mistake, a worker's failure and a lost connection are different types. The messages are
written where the mistake is found (shape and dtype rules in `gt._core`, which looks the classes up
here by name); only the classes are here.
"""

import builtins

__all__ = [
    "CancelledError",
    "ConfigError",
    "ConnectionLost",
    "DerivativeNotImplemented",
    "DtypeError",
    "Error",
    "IndexOutOfRange",
    "InvalidType",
    "InvalidUse",
    "InvalidValue",
    "LinAlgError",
    "NoWorker",
    "NotDifferentiable",
    "NotSupported",
    "OutOfMemoryError",
    "ShapeError",
    "UnknownName",
    "UnreadFailureWarning",
    "UnsupportedDtype",
    "WorkerError",
]


class Error(Exception):
    """Base of all errors that GT raises on purpose."""


class ShapeError(Error, RuntimeError):
    """Operands whose shapes do not match the operation."""


class DtypeError(Error, RuntimeError):
    """Operands whose dtypes do not match the operation."""


class IndexOutOfRange(Error, builtins.IndexError):
    """A dimension or an index out of the tensor's range."""


class InvalidValue(Error, ValueError):
    """An argument of the right type with a meaningless value."""


class InvalidType(Error, TypeError):
    """An argument of a type that the operation does not accept."""


class NotSupported(Error, NotImplementedError):
    """A feature of PyTorch that GT lacks, or lacks for these operands."""


class UnsupportedDtype(DtypeError, NotSupported):
    """A dtype that the operation does not support, in PyTorch neither."""


class InvalidUse(Error, RuntimeError):
    """A use that PyTorch refuses for a reason other than shapes and element types."""


class NotDifferentiable(Error, RuntimeError):
    """A gradient was requested where none is defined."""


class DerivativeNotImplemented(NotDifferentiable, NotImplementedError):
    """A missing gradient that PyTorch refuses with a NotImplementedError."""


class WorkerError(Error, RuntimeError):
    """An instruction failed on a worker; names the operation, its operands and the user's line."""


class CancelledError(Error, RuntimeError):
    """Ctrl-C or `gt.cancel()` dropped a value before it was computed; names the operation."""


class LinAlgError(WorkerError):
    """A matrix without an inverse or factors, or an iteration that does not converge."""


class OutOfMemoryError(WorkerError):
    """A worker's device is out of memory for an instruction's result."""


class ConfigError(Error, ValueError):
    """An invalid layout in a file or a program; names the place.

    Args:
        text: the mistake.
        remedy: the correction.
        key: the key of the faulty entry, if its place is not known yet.
        file: the file, or the name of the call.
        line: line, from 1 on.
        column: column, from 1 on.
    """

    def __init__(
        self,
        text: str,
        remedy: str = "",
        *,
        key: str | None = None,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__("".join((f"{place}: " if place else "", text, remedy and f"; {remedy}")))
        self.text, self.remedy, self.key = text, remedy, key
        self.file, self.line, self.column = file, line, column


class ConnectionLost(Error, builtins.ConnectionError):
    """The dispatcher cannot be reached any more; the session's tensors are lost."""


class NoWorker(ConnectionLost):
    """No worker has joined the dispatcher within the limit; the session is unchanged."""


class UnknownName(Error, KeyError):
    """A name under which the session publishes nothing; the text lists those that it has."""

    def __str__(self) -> str:
        """The text itself, where a KeyError shows its quotes."""
        return str(self.args[0])


class UnreadFailureWarning(RuntimeWarning):
    """An instruction failed and nobody has read its result; issued at the session's next read."""


def out_refused(function: str) -> InvalidType:
    """The error of a function that is called with `out=`."""
    return InvalidType(
        f"{function}(): out= is not taken, results are values of their own: write "
        f"out = gt.{function}(...), or out.copy_(gt.{function}(...)) where others read out"
    )


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
