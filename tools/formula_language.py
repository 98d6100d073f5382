"""The language of gradient formulas, beyond the names of a row. Data only.

A formula is an expression in Python's syntax, one a differentiable operand:

- names: operands, attributes, `out` and `out1`, `g` and `g1` (the gradients of the results), for an
  item of a list `position`, and `create_graph`; `not_implemented` is PyTorch's error; the dtype
  `int64`;
- `+ - * / // % ** @`, comparisons, `a if test else b`, `and`, `or`, `not`, `x is None`,
  `[*shape(x), 1]`, `shape(x)[:-1]`;
- `vjp(operator)`: the gradient by one instruction of an operator that has the same operands and
  attributes, which gives those of all operands that need one; the last gradient of an operator
  whose results the row does not count;
- calls: operators of the table (operands, then attributes, in the row's order or by name),
  definitions of ops.toml, the functions of SHAPES, and functions of gt/tensors/gradients.py.

Tests are decided when the formula is evaluated: they read attributes, shapes, and numbers in the
place of operands. Standard library only.
"""

import ast
import math
import sys
from collections.abc import Callable

# Functions on shapes: their arguments (a letter each, see ACCEPTED), the kind of the result, and
# Rust's `Function`.
SHAPES = {
    "shape": ("m", "ints", "Shape"),
    "dtype": ("m", "dtype", "Dtype"),
    "ndim": ("m", "number", "Rank"),
    "numel": ("m", "number", "Elements"),
    "size": ("mn", "number", "Size"),
    "product": ("i", "number", "Product"),
    "count": ("id", "number", "Count"),
    "kept": ("id", "ints", "Kept"),
    "last": ("i", "ints", "Last"),
    "swapped": ("n", "ints", "Swapped"),
    "inverse": ("i", "ints", "Inverse"),
    "before": ("n", "number", "Before"),
    "max": ("nn", "number", "Max"),
    "is_number": ("v", "bool", "IsNumber"),
    "detach": ("v", "value", "Detach"),
    "sum_to": ("ti", "tensor", "SumTo"),
}
# Kinds of expressions that an argument accepts. `value`: a tensor, or a number in the place of an
# operand. For m only the metadata is read, so an operand need not be saved for it.
ACCEPTED = {
    "m": ("tensor", "value"),
    "t": ("tensor", "value"),
    "v": ("tensor", "value", "number"),
    "n": ("number",),
    "i": ("ints",),
    "d": ("ints", "number", "none"),
}
ATTRIBUTES = {
    "bool": "bool",
    "int": "number",
    "float": "number",
    "scalar": "number",
    "dtype": "dtype",
    "ints": "ints",
    "choice": "word",
}
INFIX: dict[type[ast.AST], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.FloorDiv: "FloorDivide",
    ast.Mod: "Remainder",
    ast.Pow: "Pow",
    ast.MatMult: "Matmul",
    ast.Eq: "Eq",
    ast.NotEq: "Ne",
    ast.Lt: "Lt",
    ast.LtE: "Le",
    ast.Gt: "Gt",
    ast.GtE: "Ge",
}
DTYPES = {"int64": "I64"}
CONSTANTS = {"pi": math.pi, "inf": math.inf, "nan": math.nan}
OF_CONSTANTS: dict[str, Callable[[float], float]] = {"sqrt": math.sqrt, "log": math.log}


def parse(where: str, text: str) -> ast.expr:
    try:
        return ast.parse(f"({text})", mode="eval").body
    except SyntaxError as error:
        sys.exit(f"ops.toml: {where}: {text!r}: {error.msg}")


def constant(tree: ast.expr) -> float | None:
    """The number that an expression of literals equals, or None."""
    match tree:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return CONSTANTS.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = constant(operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=symbol, right=right):
            return _of_two(symbol, constant(left), constant(right))
        case ast.Call(func=ast.Name(id=name), args=[argument]) if name in OF_CONSTANTS:
            inner = constant(argument)
            return None if inner is None else OF_CONSTANTS[name](inner)
    return None


def _of_two(symbol: ast.operator, left: float | None, right: float | None) -> float | None:
    if left is None or right is None:
        return None
    if isinstance(symbol, ast.Mult):
        return left * right
    return left / right if isinstance(symbol, ast.Div) else None
