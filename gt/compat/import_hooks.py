"""Hooks that extend a library when a program imports it: a collate function for torch's loader,
einops' backend and layers, einx's backend.

The libraries are not imported here; one that is already loaded is extended at once. Errors of
imports that find nothing in GT are made here too: `import gt.fx`,
`from gt.nn import CrossMapLRN2d`.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from gt._core import Tensor
from gt.composite.joining import stack

Action = Callable[[types.ModuleType], None]
Replacement = Callable[[types.ModuleType, Action], None]


class _Then(importlib.abc.Loader):
    """A module's own loader, with an action after the module has loaded."""

    def __init__(self, loader: importlib.abc.Loader, action: Action) -> None:
        self.loader, self.action = loader, action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self.loader.exec_module(module)
        self.action(module)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the loader offers
        return getattr(self.loader, name)


class _Later(importlib.abc.Loader):
    """A loader that fills a module otherwise, with the module's own loader at hand."""

    def __init__(self, loader: importlib.abc.Loader, replacement: Replacement) -> None:
        self.loader, self.replacement = loader, replacement

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        self.replacement(module, self.loader.exec_module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the tables as the other finders do, and adds the actions."""

    def __init__(self) -> None:
        self.searching: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the search starts again
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.searching or not (fullname in ACTIONS or fullname in REPLACEMENTS):
            return None
        self.searching.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.searching.discard(fullname)
        if spec is not None and spec.loader is not None:
            if fullname in ACTIONS:
                spec.loader = _Then(spec.loader, ACTIONS[fullname])
            else:
                spec.loader = _Later(spec.loader, REPLACEMENTS[fullname])
        return spec


class _Missing(importlib.abc.MetaPathFinder):
    """The last finder: an import of a name that only PyTorch has fails with the error
    of `gt.name`.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - nothing is searched
        target: types.ModuleType | None = None,  # noqa: ARG002
    ) -> None:
        parent, _, name = fullname.rpartition(".")
        if parent.partition(".")[0] != "gt":
            return
        missing = importlib.import_module("gt.missing")
        if name in missing.names_of(parent) and not hasattr(sys.modules[parent], name):
            # Without `name=`: a `from` import would take the error for its own, and drop the text.
            raise ModuleNotFoundError(str(missing.attribute_error(parent, name, imported=True)))


def _collate(module: types.ModuleType) -> None:
    """Makes torch.utils.data.DataLoader stack GT's tensors like its own."""

    def stacked(batch: list[Tensor], *, collate_fn_map: object = None) -> Tensor:
        del collate_fn_map
        return stack(batch, 0)

    module.default_collate_fn_map[Tensor] = stacked


def _einops(module: types.ModuleType) -> None:
    importlib.import_module("gt.einops_backend").register(module)


def _einops_layers(module: types.ModuleType) -> None:
    importlib.import_module("gt.einops_backend").add_layers(module)


def _einops_layers_of_torch(module: types.ModuleType, load: Action) -> None:
    importlib.import_module("gt.einops_backend").choose_layers(module, load)


def _einx(module: types.ModuleType) -> None:
    importlib.import_module("gt.einx_backend").register(module)


ACTIONS: dict[str, Action] = {
    "torch.utils.data._utils.collate": _collate,
    "einops._backends": _einops,
    "einops.layers": _einops_layers,
    "einx": _einx,
}
REPLACEMENTS: dict[str, Replacement] = {"einops.layers.torch": _einops_layers_of_torch}


def install() -> None:
    """Watches for the imports, and runs the actions for modules that are loaded already."""
    sys.meta_path.insert(0, _Finder())
    sys.meta_path.append(_Missing())
    for name, action in list(ACTIONS.items()):
        follow(name, action)


def follow(name: str, action: Action) -> None:
    """Runs `action` after the import of a module; at once if it is loaded already."""
    ACTIONS[name] = action
    if name in sys.modules:
        action(sys.modules[name])
