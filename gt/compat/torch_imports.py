"""`import torch` answered by GT, for programs that cannot be edited: `gt run --native`.

Once `install` has run, `torch` and each module below it are the module of that name in `gt`: one
object under two names, for any importer and form of import. PyTorch itself is not loaded. Processes
that `multiprocessing` starts get the same answers.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

__all__ = [
    "install",
    "is_installed",
    "own_name",
    "shown_name",
    "torch_is_installed",
]

# Files of PyTorch from which programs import names that the package has, too: in GT the package
# itself.
FILES = (
    "amp.autocast_mode",
    "autograd.variable",
    "cpu.amp.autocast_mode",
    "cpu.amp.grad_scaler",
    "cuda.amp.autocast_mode",
    "cuda.amp.grad_scaler",
    "cuda.random",
    "multiprocessing.spawn",
    "nn.parallel.data_parallel",
    "nn.parallel.distributed",
    "signal.windows.windows",
)
# Modules of PyTorch that are objects with attributes in GT.
NAMESPACES = (
    "backends.cuda",
    "backends.cudnn",
    "backends.mha",
    "backends.mkl",
    "backends.mkldnn",
    "backends.mps",
    "backends.openmp",
    "backends.opt_einsum",
)


def own_name(name: str) -> str:
    """GT's name for a module of PyTorch."""
    below = name.partition(".")[2]
    home = below.rpartition(".")[0] if below in FILES else below
    return f"gt.{home}" if home else "gt"


def shown_name(name: str) -> str:
    """The program's name for a module of GT."""
    below = name.partition(".")[2]
    return ".".join(filter(None, ["torch", below])) if is_installed() else name


class _Torch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `torch` and the modules below it, and loads GT's module of that name."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - GT's module has its own path
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "torch":
            return None
        if _found(fullname) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:  # noqa: ARG002
        """None: the import makes an empty module, which `exec_module` replaces."""
        return

    def exec_module(self, module: types.ModuleType) -> None:
        """Replaces the entry of sys.modules, which the import returns."""
        name = module.__name__
        own = _found(name)
        assert own is not None, "or there would be no such spec"
        sys.modules[name] = own
        for file in (*FILES, *NAMESPACES):
            folder, _, last = file.rpartition(".")
            if f"torch.{folder}" == name:
                # The import itself would set the attribute, which may be a function's name.
                sys.modules[f"{name}.{last}"] = getattr(own, last) if file in NAMESPACES else own
                if not hasattr(own, last):
                    setattr(own, last, own)


def _found(name: str) -> types.ModuleType | None:
    """GT's module for a name of PyTorch, loaded; None if there is none."""
    own = own_name(name)
    try:
        return importlib.import_module(own)
    except ModuleNotFoundError as error:
        if error.name != own:  # its own error, or a missing library
            raise
        return None


class _Answered:
    """Part of a child process's start data; unpickling it installs the answers there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (install, ())


def is_installed() -> bool:
    """True if GT answers `import torch` in this process."""
    return any(isinstance(finder, _Torch) for finder in sys.meta_path)


def torch_is_installed() -> bool:
    """True if PyTorch is installed, which workers import, whatever `import torch` gives here."""
    finders = (finder for finder in sys.meta_path if not isinstance(finder, _Torch))
    return any(finder.find_spec("torch", None) is not None for finder in finders)


def install() -> None:
    """Answer every import of torch by GT from here on.

    Raises:
        RuntimeError: PyTorch is loaded, so that tensors of both would meet in one program.
    """
    if is_installed():
        return
    if "torch" in sys.modules:
        raise RuntimeError("PyTorch is loaded in this process already")
    sys.meta_path.insert(0, _Torch())
    importlib.import_module("torch")
    for name, action in (
        ("multiprocessing.spawn", _answer_in_children),
        ("multiprocessing.forkserver", _answer_in_servers),
    ):
        importlib.import_module("gt.import_hooks").follow(name, action)


def _answer_in_children(module: types.ModuleType) -> None:
    """Makes new child processes install the answers before they import the program's file."""
    preparation = module.get_preparation_data

    def preparation_data(name: str) -> dict[str, object]:
        return {"import torch": _Answered(), **preparation(name)}

    vars(module)["get_preparation_data"] = preparation_data


def _answer_in_servers(module: types.ModuleType) -> None:
    """Makes fork servers install the answers before they import the program's file."""
    module.set_forkserver_preload([__name__])
