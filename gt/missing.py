"""What a module says of a name that it does not have: whether PyTorch has it, and what is nearest.

The list of PyTorch's names, which tools/missing_names.py writes, is read at the first miss.
"""

import difflib
import functools
import pathlib
import sys

from gt.misses import hook

__all__ = ["attribute_error", "hook", "method_error", "names_of"]

FILE = pathlib.Path(__file__).with_name("missing_names.txt")
# What does the same by another name, where spelling does not lead to it.
INSTEAD = {
    ("gt", "export"): "gt.save of a state_dict()",
    ("gt", "hub"): "gt.load of a checkpoint file",
    ("gt.utils", "benchmark"): "timeit around gt.cuda.synchronize()",
    ("gt.nn.attention", "flex_attention"): "gt.nn.functional.scaled_dot_product_attention",
    ("gt", "multiprocessing"): "gt.utils.data.DataLoader(num_workers=…), whose workers are threads",
    (
        "gt.optim",
        "SparseAdam",
    ): "gt.optim.Adam: all gradients are dense, an Embedding's too",
}


def attribute_error(module: str, name: str, *, imported: bool = False) -> AttributeError:
    """The error for `module.name`, which does not exist.

    Args:
        imported: it was to be a module, so that only a module is near it.
    """
    shown = [] if name.startswith("_") else dir(sys.modules[module])
    if imported:
        shown = [near for near in shown if f"{module}.{near}" in sys.modules]
    nearest = difflib.get_close_matches(name, shown, n=1, cutoff=0.75)
    if name in names_of(module):
        text = f"PyTorch has `{name}`; GT does not yet."
        if instead := INSTEAD.get((module, name)) or (nearest and f"{module}.{nearest[0]}"):
            text += f" The nearest is {instead}."
    else:
        text = f"module {module!r} has no attribute {name!r}"
        if nearest:
            text += f". Did you mean: {nearest[0]!r}?"
    return AttributeError(text)


def method_error(name: str, shown: list[str]) -> AttributeError:
    """The error for a method of PyTorch's tensors that GT's do not have.

    Args:
        shown: what GT's have.
    """
    text = f"PyTorch has `Tensor.{name}`; GT does not yet."
    if nearest := difflib.get_close_matches(name, shown, n=1, cutoff=0.75):
        text += f" The nearest is Tensor.{nearest[0]}."
    return AttributeError(text)


def names_of(module: str) -> frozenset[str]:
    """PyTorch's names of `module`."""
    return _names().get(module, frozenset())


@functools.cache
def _names() -> dict[str, frozenset[str]]:
    """PyTorch's names, by GT's module."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    parts = [line.split() for line in lines if not line.startswith("#")]
    return {module: frozenset(names) for module, *names in parts}
