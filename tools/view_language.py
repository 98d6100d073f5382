"""The language of a view's columns `strided.*`, compiled to Rust's `operator::Strided`.

Python's syntax over whole numbers and lists of them:

- lists: `sizes` and `strides` of the operand, `result` (the sizes of the result), attributes that
  are lists, `[*sizes, size]`, `set(sizes, dim, n)`, `without(sizes, [dim])`, `strides[dims]`,
  `inverse(dims)`, `stretched(sizes, strides, result)`, `regrouped(sizes, strides, result)`;
- numbers: attributes, `sizes[dim]` (1 of a scalar, which has no place), `len(sizes)`, `+ - * //`,
  `min`, `max`, comparisons, `a if test else b`.

Texts of errors have numbers in braces: "size is {size}". Standard library only.
"""

import ast
import re
from typing import Any

Row = dict[str, Any]

LISTS = {"sizes": "Sizes", "strides": "Strides", "result": "Result", "before": "Before"}
OF_ALL = ("stretched", "regrouped")
ARITHMETIC: dict[type[ast.AST], str] = {
    ast.Add: "Add",
    ast.Sub: "Subtract",
    ast.Mult: "Multiply",
    ast.FloorDiv: "Divide",
}
COLUMNS = ("dims", "sizes", "errors", "strides", "offset", "sized", "undo", "merged", "scatter")
HOLE = re.compile(r"\{([^}]+)\}")


def strided(row: Row, column: str) -> str:
    """The text of Rust's `Some(Strided { … })`."""
    return Writer(row).strided(row[column])


class Writer:
    """Compiles the expressions of one row."""

    def __init__(self, row: Row) -> None:
        self.row = row
        kinds = [text.removesuffix("+").rstrip("?").split(":") for text in row["attrs"]]
        self.attrs = [name for name, _ in kinds]
        self.lists = {name for name, kind in kinds if kind in {"ints", "list"}}

    def wrong(self, text: str) -> SystemExit:
        return SystemExit(f"ops.toml: {self.row['name']}: strided: {text}")

    def strided(self, columns: Row) -> str:
        if unknown := set(columns) - set(COLUMNS):
            raise self.wrong(f"no columns: {', '.join(sorted(unknown))}")
        for name in columns.get("dims", []):
            if name not in self.attrs:
                raise self.wrong(f"dims names attributes, not {name!r}")
        dims = sum(1 << self.attrs.index(name) for name in columns.get("dims", []))
        scatter = columns.get("scatter")
        camel = "".join(part.capitalize() for part in scatter.split("_")) if scatter else ""
        fields = {
            "dims": f"{dims:#b}",
            "sizes": self.optional(columns.get("sizes")),
            "errors": f"&[{', '.join(self.error(*pair) for pair in columns.get('errors', []))}]",
            "strides": self.list_of(columns["strides"]),
            "offset": self.number_of(columns.get("offset", "0")),
            "sized": str(columns.get("sized", False)).lower(),
            "undo": self.optional(columns.get("undo")),
            "merged": self.optional(columns.get("merged")),
            "scatter": f"Some(Op::{camel})" if scatter else "None",
        }
        written = ", ".join(f"{name}: {text}" for name, text in fields.items())
        return f"Some(Strided {{ {written} }})"

    def error(self, condition: str, text: str) -> str:
        numbers = ", ".join(self.number_of(hole) for hole in HOLE.findall(text))
        template = HOLE.sub("{}", text)
        tested = self.number_of(condition)
        return f'ViewError {{ condition: {tested}, text: "{template}", numbers: &[{numbers}] }}'

    def optional(self, text: str | None) -> str:
        return "None" if text is None else f"Some({self.list_of(text)})"

    def list_of(self, text: str) -> str:
        return self.sequence(self.parsed(text))

    def number_of(self, text: str) -> str:
        return self.number(self.parsed(text))

    def parsed(self, text: str) -> ast.expr:
        try:
            return ast.parse(f"({text})", mode="eval").body
        except SyntaxError as error:
            raise self.wrong(f"{text!r}: {error.msg}") from error

    def sequence(self, tree: ast.expr) -> str:
        match tree:
            case ast.Name(id=name) if name in self.lists:
                return f"List::Attr({self.attrs.index(name)})"
            case ast.Name(id=name) if name in LISTS:
                return f"List::{LISTS[name]}"
            case ast.List(elts=items):
                return self.listed(items)
            case ast.Subscript(value=of, slice=places) if self.is_list(places):
                return f"List::Pick(&{self.sequence(of)}, &{self.sequence(places)})"
            case ast.Call(func=ast.Name(id="set"), args=[of, place, value]):
                return (
                    f"List::Set(&{self.sequence(of)}, &{self.number(place)}, &{self.number(value)})"
                )
            case ast.Call(func=ast.Name(id="without"), args=[of, places]):
                return f"List::Without(&{self.sequence(of)}, &{self.sequence(places)})"
            case ast.Call(func=ast.Name(id="inverse"), args=[order]):
                return f"List::Inverse(&{self.sequence(order)})"
            case ast.Call(func=ast.Name(id=name), args=[_, _, _]) if name in OF_ALL:
                if ast.unparse(tree) != f"{name}(sizes, strides, result)":
                    raise self.wrong(f"{name} takes sizes, strides, result")
                return f"List::{name.capitalize()}"
        raise self.wrong(f"no list: {ast.unparse(tree)!r}")

    def listed(self, items: list[ast.expr]) -> str:
        """A list of numbers and of starred lists."""
        parts: list[str] = []
        numbers: list[str] = []
        for item in [*items, None]:
            if item is not None and not isinstance(item, ast.Starred):
                numbers.append(self.number(item))
                continue
            if numbers:
                parts.append(f"List::Of(&[{', '.join(numbers)}])")
                numbers = []
            if item is not None:
                parts.append(self.sequence(item.value))
        joined = parts.pop() if parts else "List::Of(&[])"
        for part in reversed(parts):
            joined = f"List::Join(&{part}, &{joined})"
        return joined

    def is_list(self, tree: ast.expr) -> bool:
        if isinstance(tree, ast.Name):
            return tree.id in self.lists or tree.id in LISTS
        return isinstance(tree, ast.List)

    def number(self, tree: ast.expr) -> str:
        match tree:
            case ast.Constant(value=int(value)):
                return f"Number::Literal({value})"
            case ast.Name(id=name) if name in self.attrs and name not in self.lists:
                return f"Number::Attr({self.attrs.index(name)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"Number::Subtract(&Number::Literal(0), &{self.number(operand)})"
            case ast.BinOp(left=left, op=symbol, right=right) if type(symbol) in ARITHMETIC:
                return self.both(ARITHMETIC[type(symbol)], left, right)
            case ast.Compare(left=left, ops=[symbol], comparators=[right]):
                return self.compared(symbol, left, right)
            case ast.IfExp(test=test, body=yes, orelse=no):
                parts = ", ".join(f"&{self.number(part)}" for part in (test, yes, no))
                return f"Number::If({parts})"
            case ast.Subscript(value=of, slice=place):
                return f"Number::At(&{self.sequence(of)}, &{self.number(place)})"
            case ast.Call(func=ast.Name(id="len"), args=[of]):
                return f"Number::Length(&{self.sequence(of)})"
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[left, right]):
                return self.both(name.capitalize(), left, right)
        raise self.wrong(f"no number: {ast.unparse(tree)!r}")

    def both(self, variant: str, left: ast.expr, right: ast.expr) -> str:
        return f"Number::{variant}(&{self.number(left)}, &{self.number(right)})"

    def compared(self, symbol: ast.cmpop, left: ast.expr, right: ast.expr) -> str:
        match symbol:
            case ast.Lt():
                return self.both("Less", left, right)
            case ast.Gt():
                return self.both("Less", right, left)
            case ast.Eq():
                return self.both("Equal", left, right)
            case ast.LtE():
                return self.negated(self.both("Less", right, left))
            case ast.GtE():
                return self.negated(self.both("Less", left, right))
            case ast.NotEq():
                return self.negated(self.both("Equal", left, right))
        raise self.wrong(f"no comparison: {ast.unparse(symbol)}")

    @staticmethod
    def negated(test: str) -> str:
        return f"Number::Equal(&{test}, &Number::Literal(0))"
