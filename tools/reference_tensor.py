"""Texts of tools/reference.py for methods and attributes of Tensor.

A method that is also a function has the function's sentence, its arguments without the tensor, and
its example, in which `gt.add(a, b)` becomes `x.add(b)`. The text of a method that Rust defines
begins after the signature, which Python shows by itself.
"""

import ast
import dataclasses
import inspect
import warnings
from collections.abc import Iterator

from python_source import ROOT
from reference_examples import (
    FOUND,
    TENSORS,
    arguments,
    candidates,
    choices,
    is_random,
    of_lines,
    section,
    shown,
    telling,
)
from reference_sentences import (
    RAISES,
    argument_lines,
    family_of,
    own_doc,
    returns_of,
    sections,
    summary_of,
    tensors_of,
    wrapped,
)
from reference_sources import EXAMPLES, SENTENCES, Signature, head, of_stub, shown_type

import gt

SPACE = "gt.Tensor"


def names() -> list[str]:
    """Public attributes, without those that raise AttributeError."""
    shown = (name for name in dir(gt.Tensor) if not name.startswith("_"))
    return [name for name in shown if hasattr(gt.Tensor, name)]


@dataclasses.dataclass(frozen=True)
class Stub:
    """A method in the stub: its signatures without the tensor, and its docstring."""

    signatures: list[Signature]
    text: str


def of_class() -> dict[str, Stub]:
    tree = ast.parse((ROOT / "gt/_core.pyi").read_text())
    nodes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    found: dict[str, Stub] = {}
    for node in next(nodes).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            result = shown_type(ast.unparse(node.annotation))
            found[node.target.id] = Stub([Signature((), result)], "")
        if not isinstance(node, ast.FunctionDef) or any(
            "setter" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            continue
        whole = of_stub(node)
        signature = dataclasses.replace(whole, parameters=whole.parameters[1:])
        known = found.setdefault(node.name, Stub([], ast.get_docstring(node) or ""))
        known.signatures.append(signature)
    return found


STUBS = of_class()


def is_attribute(value: object) -> bool:
    return isinstance(value, property) or inspect.isgetsetdescriptor(value)


def entry(name: str) -> tuple[list[str], str]:
    """The forms of a call that Python shows by itself, and the text."""
    value = inspect.getattr_static(gt.Tensor, name)
    stub = STUBS[name]
    function = getattr(gt, name, None)
    source = value if function is None and inspect.isfunction(value) else function
    written = own_doc(source) if source is not None else ""
    body = sections(written)
    rest = "\n".join(body[""]).partition("\n\n")[2].strip()
    heads = [] if is_attribute(value) else [head(name, each) for each in stub.signatures]
    lines = [summary(name, value, stub)]
    if inspect.isfunction(value):
        lines, heads = [*heads, "", *lines], []
    if rest and not SENTENCES.get(name):
        lines += ["", rest]
    if arguments := argument_lines(SPACE, name, stub.signatures, written):
        lines += ["", "Args:", *arguments]
    family = family_of(name, "", tensors_of(stub.signatures) + 1)
    lines += ["", "Returns:", *wrapped(returns_of(name, family, stub.signatures))]
    raised = body.get("Raises") or ([f"    {RAISES[family]}"] if family in RAISES else [])
    if raised:
        lines += ["", "Raises:", *(line for line in raised if line.strip())]
    lines += section(lambda: example(name, stub, attribute=is_attribute(value)))
    return heads, "\n".join(lines)


def summary(name: str, value: object, stub: Stub) -> str:
    function = getattr(gt, name, None)
    known = SENTENCES.get(f"Tensor.{name}")
    if known:
        return known
    if inspect.isroutine(value) and not inspect.isfunction(value):
        return stub.text
    if callable(function) and not isinstance(function, type):
        return summary_of("gt", name, function)
    if stub.text or (isinstance(value, property) and value.__doc__):
        text = stub.text or str(value.__doc__)
        return " ".join(text.partition("\n\n")[0].split())
    if name.endswith("_"):
        return f"`{name.removesuffix('_')}`, written into the tensor."
    raise LookupError("no sentence: tools/reference/sentences.txt, as Tensor.NAME")


# ---- examples ----------------------------------------------------------------------------------


def example(name: str, stub: Stub, *, attribute: bool) -> list[str]:
    """The written example, else the function's, else a call whose results equal PyTorch's."""
    if fixed := EXAMPLES.get(f"{SPACE}.{name}"):
        return of_lines(fixed.split("; "))
    if lines := derived(name):
        return lines
    calls = (
        (f"{receiver}{call}", f"x = {receiver}; x{call}")
        for receiver, call in tried(name, stub, attribute=attribute)
    )
    return of_lines(telling(calls, is_random=is_random(name)).split("; "))


def derived(name: str) -> list[str]:
    """The function's example with the method in its place, if its output is equal."""
    function = next((n for n in (name, name.removesuffix("_")) if f"gt.{n}" in FOUND), None)
    if function is None:
        return []
    known = FOUND[f"gt.{function}"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            lines = of_lines(as_method(known, function, name))
        except Exception:  # noqa: BLE001 - the method takes other arguments than the function
            return []
    return lines if shown(lines) == shown(of_lines(known)) else []


def as_method(statements: list[str], function: str, name: str) -> list[str]:
    rewriter = Rewriter(function, name)
    changed = [ast.unparse(rewriter.visit(ast.parse(statement))) for statement in statements]
    receivers = [f"x = {rewriter.receiver}"] if rewriter.receiver else []
    return [*changed[:-1], *receivers, changed[-1]]


class Rewriter(ast.NodeTransformer):
    """Rewrites `gt.function(a, b)` as `x.name(b)`, where x is `receiver`, unless `a` is a name."""

    def __init__(self, function: str, name: str) -> None:
        self.function = function
        self.name = name
        self.receiver = ""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) != f"gt.{self.function}" or not node.args:
            return node
        first = node.args[0]
        if not isinstance(first, ast.Name):
            self.receiver = ast.unparse(first)
            first = ast.Name("x")
        return ast.Call(ast.Attribute(first, self.name), node.args[1:], node.keywords)


def tried(name: str, stub: Stub, *, attribute: bool) -> Iterator[tuple[str, str]]:
    """Calls of the method, or reads of the attribute, on sample tensors."""
    tensors = tuple(f"gt.{text}" for text in TENSORS)
    if attribute:
        yield from ((tensor, f".{name}") for tensor in tensors)
        return
    for signature in stub.signatures:
        required = [p for p in signature.parameters if not p.default and p.starred != "**"]
        for receiver, *texts in choices([tensors, *(candidates(SPACE, p) for p in required)]):
            yield receiver, f".{name}({arguments(required, texts)})"
