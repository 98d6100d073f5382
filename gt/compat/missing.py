"""Errors for names that a module does not have: they say whether PyTorch has it, and what is
nearest.

The list of PyTorch's names, which tools/missing_names.py writes, is read at the first miss.
"""

import difflib
import functools
import pathlib
import sys

from gt.compat import torch_imports

__all__ = ["attribute_error", "method_error", "names_of"]

FILE = pathlib.Path(__file__).with_name("missing_names.txt")
_PAGE = "; docs/coverage.md lists what it has."
_ALIKE_MIN = 0.75  # ratio of difflib: about one letter in four differs
_SHORT_MAX = 2  # letters: too short to be called similar, such as `fx` and `fix`
# Replacements whose names are not spelt alike.
INSTEAD = {
    ("gt", "complex32"): "gt.complex64",
    ("gt", "export"): "gt.save of a state_dict()",
    ("gt", "hub"): "gt.load of a checkpoint file",
    ("gt.utils", "benchmark"): "timeit around gt.cuda.synchronize()",
    ("gt.nn.attention", "flex_attention"): "gt.nn.functional.scaled_dot_product_attention",
}

# Replacements of methods, as expressions of a tensor x.
INSTEAD_OF_METHODS = {
    "apply_": "an operator over all of x, or gt.tensor of what Python makes of x.tolist()",
    "cholesky": "gt.linalg.cholesky(x)",
    "eig": "gt.linalg.eig(x)",
    "lstsq": "gt.linalg.lstsq(y, x), operands in the other order",
    "map_": "an operator over all of x and y",
    "qr": "gt.linalg.qr(x)",
    "solve": "gt.linalg.solve(y, x), operands in the other order",
    "storage": "x.untyped_storage()",
    "symeig": "gt.linalg.eigh(x)",
}


def attribute_error(module: str, name: str, *, imported: bool = False) -> AttributeError:
    """The error for `module.name`, which does not exist.

    Args:
        imported: True if it was imported as a module, so that only modules are suggested.
    """
    shown = [] if name.startswith("_") else dir(sys.modules[module])
    if imported:
        shown = [near for near in shown if f"{module}.{near}" in sys.modules]
    near = _nearest(name, shown)
    if name in names_of(module):
        path = ".".join([*module.split(".")[1:], name])  # such as `utils.benchmark`
        text = f"PyTorch has `{path}`; GT does not yet{_PAGE}"
        if instead := INSTEAD.get((module, name)) or (near and f"{module}.{near}"):
            text += f" The nearest is {instead}."
        text += _way_out()
    else:
        text = f"module {torch_imports.shown_name(module)!r} has no attribute {name!r}"
        if near:
            text += f". Did you mean: {near!r}?"
    return AttributeError(text)


def method_error(name: str, shown: list[str]) -> AttributeError:
    """The error for a tensor method of PyTorch that GT lacks.

    Args:
        shown: the methods that GT has.
    """
    text = f"PyTorch has `Tensor.{name}`; GT does not yet{_PAGE}"
    near = _nearest(name, shown)
    if instead := INSTEAD_OF_METHODS.get(name) or (near and f"Tensor.{near}"):
        text += f" The nearest is {instead}."
    return AttributeError(text + _way_out())


def _way_out() -> str:
    """Advice for a program whose torch is GT, and which cannot be edited."""
    if not torch_imports.is_installed():
        return ""
    return " `gt run` without --native runs the program with PyTorch's own."


def _nearest(name: str, shown: list[str]) -> str | None:
    """The name in `shown` that is equal except for case and underscores, or else the most similar
    one.
    """
    plain = name.replace("_", "").lower()
    alike = [other for other in shown if other.replace("_", "").lower() == plain]
    alike += difflib.get_close_matches(name, shown, n=1, cutoff=_ALIKE_MIN)
    return alike[0] if alike and len(name) > _SHORT_MAX else None


def names_of(module: str) -> frozenset[str]:
    """PyTorch's names of `module`."""
    return _names().get(module, frozenset())


@functools.cache
def _names() -> dict[str, frozenset[str]]:
    """PyTorch's names, by GT's module."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    parts = [line.split() for line in lines if not line.startswith("#")]
    return {module: frozenset(names) for module, *names in parts}
