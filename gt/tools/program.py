"""Runs a program in this process as `python FILE` and `python -m MODULE` do.

`sys.argv`, `sys.path[0]`, the module `__main__`, the text of a traceback and the exit status are
those of Python itself. Nothing here depends on tensors.
"""

import builtins
import importlib.util
import io
import os
import pkgutil
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path


class StartError(Exception):
    """The reason why a program cannot start, for the user; `status` is the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def run_file(file: str, arguments: Sequence[str]) -> None:
    """Run a script, or a folder or zip file with a `__main__.py`; its exceptions propagate.

    Raises:
        StartError: the program does not exist.
    """
    sys.argv = [file, *arguments]
    if not Path(file).exists():
        raise StartError(f"can't open file {str(Path(file).absolute())!r}: no such file", 2)
    path = os.path.abspath(file)  # noqa: PTH100 - as Python does, without following links
    importer = pkgutil.get_importer(path)
    if importer is not None:  # a folder or a zip file
        _first_on_path(path, instead=True)
        spec = importer.find_spec("__main__")
        if spec is None:
            raise StartError(f"can't find '__main__' module in {path!r}", 1)
        _run_spec(spec)
        return
    _first_on_path(os.path.dirname(os.path.realpath(file)))  # noqa: PTH120 - Python's own
    names = _main(path, SourceFileLoader("__main__", path), None)
    with io.open_code(path) as source:
        text = source.read()
    _execute(text, path, names)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module by name, or a package's `__main__`; its exceptions propagate.

    Raises:
        StartError: the module does not exist.
    """
    sys.argv = ["-m", *arguments]
    _first_on_path(str(Path.cwd()))
    spec = _spec(name)
    if spec.submodule_search_locations is not None:
        try:
            spec = _spec(f"{name}.__main__")
        except StartError as error:
            text = f"{error}; {name!r} is a package and cannot be directly executed"
            raise StartError(text, error.status) from None
    sys.argv[0] = spec.origin or name
    _run_spec(spec)


def _spec(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        text = f"Error while finding module specification for {name!r}"
        raise StartError(f"{text} ({type(error).__name__}: {error})", 1) from error
    if spec is None:
        raise StartError(f"No module named {name}", 1)
    return spec


def _run_spec(spec: ModuleSpec) -> None:
    compiled = getattr(spec.loader, "get_code", None)  # zipimport's loader has no class of its own
    code = None if compiled is None else compiled(spec.name)
    if code is None:
        raise StartError(f"No code object available for {spec.name}", 1)
    names = _main(spec.origin, spec.loader, spec)
    names["__cached__"] = spec.cached
    _execute(code, "", names)


def _first_on_path(folder: str, *, instead: bool = False) -> None:
    """Put `folder` first on `sys.path`, in place of the folder of the command `gt`."""
    if instead or not getattr(sys.flags, "safe_path", False):  # from Python 3.11 on
        sys.path[0] = folder


def _main(path: str | None, loader: object, spec: ModuleSpec | None) -> dict[str, object]:
    """The names of a new module `__main__`."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    vars(module).update(
        __annotations__={},
        __builtins__=builtins,
        __cached__=None,
        __file__=path,
        __loader__=loader,
        __package__=None if spec is None else spec.parent,
        __spec__=spec,
    )
    return vars(module)


def _execute(code: bytes | types.CodeType, path: str, names: dict[str, object]) -> None:
    """Run the code; a traceback begins at the program."""
    try:
        if isinstance(code, bytes):
            code = compile(code, path, "exec", dont_inherit=True)
        exec(code, names)  # noqa: S102 - the program that the user asks for
    except SystemExit:
        raise
    except BaseException as error:
        _trim(error.__traceback__)
        raise


def _trim(ours: types.TracebackType | None) -> None:
    """Remove our frames from an exception that leaves the program, so that its own hook
    shows it.
    """
    show, trace = sys.excepthook, ours and ours.tb_next

    def shown(kind: type[BaseException], error: BaseException, _: object) -> None:
        sys.excepthook = show
        sys.last_traceback = trace
        show(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown
