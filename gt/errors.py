"""The exceptions that GT raises, each also of the class that PyTorch raises for the same mistake.

A user's mistake, a worker's failure and a lost connection are different types. The texts are
written where the mistake is found (shape and dtype rules in `gt._core`, which finds the classes
here by their names); here stand only the classes.
"""

import builtins

__all__ = [
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
    "UnreadFailureWarning",
    "UnsupportedDtype",
    "WorkerError",
]


class Error(Exception):
    """Any error that GT raises on purpose."""


class ShapeError(Error, RuntimeError):
    """Operands whose shapes do not fit the operation."""


class DtypeError(Error, RuntimeError):
    """Operands whose element types do not fit the operation."""


class IndexOutOfRange(Error, builtins.IndexError):
    """A dimension or an index outside the tensor."""


class InvalidValue(Error, ValueError):
    """An argument of the right type with a value that has no meaning there."""


class InvalidType(Error, TypeError):
    """An argument of a type that the operation does not take."""


class NotSupported(Error, NotImplementedError):
    """Something that PyTorch has and GT does not, or not for these operands."""


class UnsupportedDtype(DtypeError, NotSupported):
    """An element type that the operation is not made for, in PyTorch neither."""


class InvalidUse(Error, RuntimeError):
    """A use that PyTorch refuses for a reason other than shapes and element types."""


class NotDifferentiable(Error, RuntimeError):
    """A gradient was asked for where none is defined."""


class DerivativeNotImplemented(NotDifferentiable, NotImplementedError):
    """A missing gradient that PyTorch refuses with a NotImplementedError."""


class WorkerError(Error, RuntimeError):
    """An instruction failed on a worker; names the operation, its operands and the user's line."""


class LinAlgError(WorkerError):
    """A matrix that has no inverse or no factors, or whose iteration does not end."""


class OutOfMemoryError(WorkerError):
    """A worker's device had no memory for an instruction's result."""


class ConfigError(Error, ValueError):
    """A layout that cannot be meant, as a file or a program writes it; names the place.

    Args:
        text: what is wrong.
        remedy: what to write instead.
        key: the key of the entry that is at fault, where the place is not known yet.
        file: the file, or the call that was made.
        line: from 1 on.
        column: from 1 on.
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
    """The dispatcher cannot be reached any more; the session's tensors are gone."""


class NoWorker(ConnectionLost):
    """No worker has joined the dispatcher within the limit; the session is as it was."""


class UnreadFailureWarning(RuntimeWarning):
    """An instruction failed and nobody has read its result: the session's next read warns of it."""


def out_refused(function: str) -> InvalidType:
    """The error of a function that is called with `out=`."""
    return InvalidType(
        f"{function}(): out= is not taken, results are values of their own: write "
        f"out = gt.{function}(...), or out.copy_(gt.{function}(...)) where others read out"
    )


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
