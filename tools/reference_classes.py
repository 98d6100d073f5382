"""Texts of tools/reference.py for classes: modules, optimizers, data sets, distributions.

A class's text has its docstring, the arguments of `__init__`, the shapes that a module takes and
returns, and an example. Arguments that its docstring does not explain are explained by its bases,
else by tools/reference/parameters.txt. Examples are written by hand; PyTorch gives the same results
where it has the class.
"""

import importlib
import inspect
from collections.abc import Iterator

import torch
from reference_examples import NoExample, of_lines, section, shown
from reference_sentences import own_arguments, sections, wrapped
from reference_sources import EXAMPLES, PARAMETERS, SHAPES, head, of_function

SPACES = ("gt.nn", "gt.optim", "gt.optim.lr_scheduler", "gt.utils.data", "gt.distributions")


def names(space: str) -> list[str]:
    return [name for name, _ in classes(space)]


def classes(space: str) -> Iterator[tuple[str, type]]:
    module = importlib.import_module(space)
    for name in sorted({*getattr(module, "__all__", ()), *dir(module)}):
        value = getattr(module, name)
        if isinstance(value, type) and not name.startswith("_") and value.__name__ == name:
            yield name, value


def entry(space: str, name: str) -> tuple[list[str], str]:
    """The form of a call, which Python shows by itself, and the text."""
    kind = dict(classes(space))[name]
    body = sections(inspect.cleandoc(vars(kind).get("__doc__") or ""))
    text = "\n".join(body[""]).strip()
    if not text:
        raise LookupError("no docstring")
    lines = [text]
    if taken := argument_lines(space, kind):
        lines += ["", "Args:", *taken]
    if space == "gt.nn" and name in SHAPES:
        lines += [
            "",
            "Shape:",
            *(line for part in SHAPES[name].split("; ") for line in wrapped(part)),
        ]
    for title in ("Attributes", "Raises"):
        if title in body:
            lines += ["", f"{title}:", *(line for line in body[title] if line.strip())]
    form = head(name, of_function(kind)).partition(" -> ")[0]
    lines += section(lambda: example(f"{space}.{name}"))
    return [form], "\n".join(lines)


def argument_lines(space: str, kind: type) -> list[str]:
    lines = []
    documented = [own_arguments(vars(base).get("__doc__") or "") for base in kind.__mro__[:-1]]
    for parameter in of_function(kind).parameters:
        word = parameter.name
        found = [PARAMETERS.get(f"{space}.{kind.__name__}.{word}"), documented[0].get(word)]
        found += [told.get(word) for told in documented[1:]]
        found += [PARAMETERS.get(f"{space}.{word}"), PARAMETERS.get(word)]
        phrase = next(filter(None, found), None)
        if phrase is None:
            raise LookupError(f"{word} has no phrase: parameters.txt")
        shown_type = parameter.type.replace(" | ", " or ")
        title = word if shown_type == "object" else f"{word} ({shown_type})"
        lines += wrapped(f"{parameter.starred}{title}: {phrase}")
    return lines


def example(name: str) -> list[str]:
    """The written example, which gives equal results in PyTorch where it has the same classes."""
    if name not in EXAMPLES:
        raise NoExample
    statements = EXAMPLES[name].split("; ")
    lines = of_lines(statements)
    try:
        theirs = of_lines([text.replace("gt.", "torch.") for text in statements], torch=torch)
    except AttributeError:  # a class of GT's own
        return lines
    plain = [line.replace("torch.", "gt.") for line in shown(theirs)]
    if plain != shown(lines):
        raise LookupError(f"PyTorch's example gives {plain}")
    return lines
