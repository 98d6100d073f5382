"""Examples of tools/reference.py: written ones, and generated calls run by GT and PyTorch."""

import contextlib
import io
import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from reference_sources import EXAMPLES, Parameter, Signature

import gt

ATTEMPTS = 400
BLANK = "<BLANKLINE>"  # as doctest has it

TENSORS = (
    "tensor([1.0, 2.0, 3.0])", "tensor([0.25, 0.5])", "tensor([[2.0, 1.0], [1.0, 3.0]])",
    "tensor([1, 2, 3])", "tensor([True, False])", "tensor([1.0 + 2.0j])", "ones(1, 2, 4)",
    "ones(1, 1, 4, 4)", "ones(1, 1, 4, 4, 4)", "tensor(2.0)", "tensor([[1, 0], [0, 1]])",
)  # fmt: skip
MATRICES = ("tensor([[2.0, 1.0], [1.0, 3.0]])", *TENSORS)
WORDS = {
    "int": ("1", "0", "2"),
    "float": ("0.5", "1.0"),
    "bool": ("True", "False"),
    "number": ("2", "0.5"),
    "str": ("'ij'", "'mean'", "'sum'"),
    "dtype": ("gt.float64",),
}


def candidates(space: str, parameter: Parameter) -> tuple[str, ...]:
    kind = parameter.type
    if "Sequence[Tensor]" in kind or (parameter.starred and "Tensor" in kind):
        return tuple(f"[gt.{a}, gt.{a}]" for a in TENSORS[:6])
    if re.search(r"\bTensor\b", kind):
        order = MATRICES if space == "gt.linalg" else TENSORS
        return tuple(f"gt.{text}" for text in order)
    if "Sequence[int]" in kind:
        return ("(0,)", "(2, 2)", "1", "(1, 2, 4)", "(0, 1)", "(2,)")
    for word, values in WORDS.items():
        if re.search(rf"\b{word}\b", kind):
            return values
    return ("gt.tensor([1.0, 2.0, 3.0])",)


def expressions(space: str, name: str, signatures: list[Signature]) -> Iterator[str]:
    for signature in signatures:
        required = [p for p in signature.parameters if not p.default and p.starred != "**"]
        options = [candidates(space, p) for p in required]
        for texts in choices(options):
            yield f"{space}.{name}({arguments(required, texts)})"


def choices(options: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Operands to try: equal positions of all options, then combinations up to a limit."""
    same = zip(*options, strict=False) if options else [()]
    yield from itertools.islice(itertools.chain(same, itertools.product(*options)), ATTEMPTS)


def arguments(parameters: list[Parameter], texts: Sequence[str]) -> str:
    """The texts as the arguments of a call."""
    return ", ".join(
        f"{p.name}={text}" if p.is_keyword else text.strip("[]") if p.starred else text
        for p, text in zip(parameters, texts, strict=True)
    )


def evaluated(expression: str) -> str | None:
    """Text of an expression's value, or None where GT or PyTorch refuses it or they differ."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("error")
        try:
            shown = [repr(eval(expression, {"gt": gt})) for _ in range(4)]
            theirs = eval(expression.replace("gt.", "torch."), {"torch": torch})
        except Exception:  # noqa: BLE001 - whatever it is, it is no example
            return None
    if len(set(shown)) > 1:
        return None
    plain = repr(theirs).replace("torch.", "gt.")
    alike = re.sub(r"\s+", "", shown[0]) == re.sub(r"\s+", "", plain)
    return shown[0] if alike and len(shown[0]) < 500 and shown[0] != "None" else None


class NoExample(LookupError):
    """No example was found, and none is written."""

    def __init__(self) -> None:
        super().__init__("no example: tools/reference/examples.txt")


# Statements of each function's example; those of methods are derived from them.
FOUND: dict[str, list[str]] = {}


def example_of(space: str, name: str, signatures: list[Signature]) -> list[str]:
    """Lines of a session that shows a function; random values are shown by their shape."""
    FOUND[f"{space}.{name}"] = statements = statements_of(space, name, signatures)
    return of_lines(statements)


def statements_of(space: str, name: str, signatures: list[Signature]) -> list[str]:
    if fixed := EXAMPLES.get(f"{space}.{name}"):
        return fixed.split("; ")
    tried = ((call, call) for call in expressions(space, name, signatures))
    return [telling(tried, is_random=is_random(name))]


def telling(calls: Iterable[tuple[str, str]], *, is_random: bool) -> str:
    """The first call whose results equal PyTorch's, preferably with values without NaN.

    Args:
        calls: pairs of the call that is run and the text that is shown.
        is_random: whether the shape is shown instead of values.
    """
    listed = list(calls)
    for ending in (".shape",) if is_random else ("", ".shape"):
        second = None
        for call, title in listed:
            text = evaluated(f"{call}{ending}")
            if text is not None and "nan" not in text:
                return f"{title}{ending}"
            second = second or (text and f"{title}{ending}")
        if second:
            return second
    raise NoExample


def is_random(name: str) -> bool:
    """True where two calls may give different values, so that no value can be an example."""
    if re.search("rand|dropout|empty|gumbel|fractional", name):
        return True
    packet = getattr(torch.ops.aten, name, None)
    overloads: list[str] = getattr(packet, "overloads", list)()
    tag = torch.Tag.nondeterministic_seeded
    return any(tag in getattr(packet, overload).tags for overload in overloads)


def section(lines: Callable[[], list[str]]) -> list[str]:
    """The part of a text with an example; empty where there is none."""
    try:
        return ["", "Example:", *lines()]
    except NoExample:
        return []


def shown(lines: list[str]) -> list[str]:
    """The output lines of a session, without the input lines."""
    return [line for line in lines if not line.startswith("    >>>")]


def of_lines(statements: list[str], **modules: object) -> list[str]:
    """Statements and their output, as a session of Python shows them."""
    names: dict[str, object] = {"gt": gt, **modules}
    lines = []
    for statement in statements:
        lines.append(f"    >>> {statement}")
        try:
            value = eval(statement, names)
        except SyntaxError:
            exec(statement, names)
            continue
        if value is not None:
            lines += [f"    {line or BLANK}" for line in repr(value).splitlines()]
    return lines
