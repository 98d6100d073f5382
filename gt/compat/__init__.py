"""Modules that programs import as `gt.NAME`: PyTorch's small ones, bridges to other libraries.

A file here, or in another of FOLDERS, is a module directly below `gt`: gt/compat/mps.py is
`gt.mps`, since `gt.__path__` has these folders. GT's own code imports it by its file's path, which
type checkers and linters follow; `gt.compat.mps` is a second name of the same module object.
"""

import importlib
import importlib.abc
import importlib.machinery
import pathlib
import sys
import types
from collections.abc import Sequence

FOLDERS = ("compat", "tensors", "sessions")
_PREFIXES = tuple(f"gt.{folder}." for folder in FOLDERS)


class _SecondNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `gt.compat.mps` and loads `gt.mps`: one object under two names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the module's first name has a path
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(_PREFIXES):
            return None
        first = first_name(fullname)
        try:
            # Here and not later: while it loads, it may import itself by its second name.
            importlib.import_module(first)
        except ModuleNotFoundError as error:
            if error.name != first:  # its own error
                raise
            return None
        # If it did so, the import system would take that entry's spec, and load it once more.
        sys.modules.pop(fullname, None)
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:  # noqa: ARG002
        """None: the import makes an empty module, which `exec_module` replaces."""
        return

    def exec_module(self, module: types.ModuleType) -> None:
        """Replaces the entry of sys.modules, which the import returns."""
        name = module.__name__
        sys.modules[name] = sys.modules[first_name(name)]


def first_name(name: str) -> str:
    """The name by which programs import a module: `gt.mps` for `gt.compat.mps`."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return f"gt.{name.removeprefix(prefix)}"
    return name


def _install() -> None:
    """Makes the modules in FOLDERS modules directly below `gt`."""
    sys.meta_path.insert(0, _SecondNames())
    home = pathlib.Path(__file__).parent.parent
    # After the checkout's own files, before those of an installed gt, which may be another version.
    sys.modules["gt"].__path__[1:1] = [str(home / folder) for folder in FOLDERS]


_install()
