"""The text of a call's arguments in an instruction: written by a client, read by a worker.

`_0, [1, 2], dtype=float32`: arguments in the schema's order, `_k` for operand k, Python's literals,
dtypes by name, and `inf` and `nan`. Both sides know this file; it imports neither torch nor the
client.
"""

import ast
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

# Arguments and keyword arguments of a call.
Arguments = tuple[list[Any], dict[str, Any]]
Build = Callable[[Sequence[Any]], Arguments]

_NUMBERS = {"inf": math.inf, "nan": math.nan}


def literal(value: object) -> str:
    """The text of an argument without tensors: None, a number, a word, or a list of them."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    return repr(value)


@functools.lru_cache(maxsize=4096)
def parse(text: str, dtypes: Callable[[str], object]) -> tuple[Build, int]:
    """A function that makes the arguments from operands, and the number of operands that it takes.

    ValueError for a text that is no list of arguments.
    """
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} are no arguments: {error.msg}") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{text!r} are no arguments")  # noqa: TRY004 - what a text says
    readers = [_reader(node, dtypes) for node in call.args]
    named = {str(word.arg): _reader(word.value, dtypes) for word in call.keywords}
    count = 1 + max((int(node.id[1:]) for node in ast.walk(call) if _is_operand(node)), default=-1)
    # Values without operands are read once.
    values = [
        None if _reads_operands(node) else read(())
        for node, read in zip(call.args, readers, strict=True)
    ]
    places = [
        (place, read)
        for place, (node, read) in enumerate(zip(call.args, readers, strict=True))
        if _reads_operands(node)
    ]

    def build(operands: Sequence[Any]) -> Arguments:
        filled = values.copy()
        for place, read in places:
            filled[place] = read(operands)
        return filled, {name: read(operands) for name, read in named.items()}

    return build, count


def _reads_operands(node: ast.expr) -> bool:
    """True if an argument contains operands."""
    return any(_is_operand(inner) for inner in ast.walk(node))


def _is_operand(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id[:1] == "_" and node.id[1:].isdecimal()


def _reader(node: ast.expr, dtypes: Callable[[str], object]) -> Callable[[Sequence[Any]], Any]:
    match node:
        case ast.Name(id=name) if _is_operand(node):
            place = int(name[1:])
            return lambda operands: operands[place]
        case ast.Name(id=name):
            value = _NUMBERS[name] if name in _NUMBERS else dtypes(name)
        case ast.Constant(value=value):
            pass
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            read = _reader(operand, dtypes)
            return lambda operands: -read(operands)
        case ast.List(elts=items):
            reads = [_reader(item, dtypes) for item in items]
            return lambda operands: [read(operands) for read in reads]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):  # of a complex
            first, second = _reader(left, dtypes), _reader(right, dtypes)
            factor = 1 if isinstance(sign, ast.Add) else -1
            return lambda operands: first(operands) + factor * second(operands)
        case _:
            raise ValueError(f"{ast.unparse(node)} is no argument")
    return lambda _: value
