"""Compiles the gradient formulas of a row to nodes, and checks names and kinds against the table.

Equal expressions of a row are one node, which is evaluated once. Standard library only.
"""

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import columns
from formula_language import ACCEPTED, ATTRIBUTES, DTYPES, INFIX, SHAPES, constant, parse

Row = dict[str, Any]
Scope = dict[str, int] | None

# Bits for results whose number a row leaves open; results beyond the last bit share it.
OUTPUT_BITS = 0xFFFF
# Families whose operators end a graph; all others must state their gradients.
WITHOUT_GRADIENT = ("update", "control", "collective")


@dataclass(frozen=True)
class Node:
    """Rust text with a `{}` for each child, the children's indices, and the kind of value."""

    text: str
    children: tuple[int, ...] = ()
    kind: str = field(default="value", compare=False)
    # True where only the shape or dtype of the first child is read.
    of_metadata: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Formula:
    """The gradient of one operand: its node, and bit masks of its inputs."""

    root: int
    operands: int
    outputs: int
    grads: int
    # Bit masks of the operands and the outputs that PyTorch keeps.
    keeps: tuple[int, int]


@dataclass(frozen=True)
class Table:
    """Names that calls may refer to."""

    rows: dict[str, Row]
    definitions: dict[str, tuple[list[str], ast.expr]]
    # Functions of gt/tensors/gradients.py, with their number of arguments.
    functions: dict[str, int]


def variant(row: Row) -> str:
    """Name of the operator's variant in Rust's enum."""
    return "".join(part.capitalize() for part in row["name"].split("_"))


def holes(places: Sequence[int]) -> str:
    return ", ".join("{}" for _ in places)


def attributes(row: Row) -> dict[str, tuple[str, bool]]:
    """Name -> kind, and whether the attribute is optional."""
    split = [text.removesuffix("+").split(":") for text in row.get("attrs", [])]
    return {name: (kind.rstrip("?"), kind.endswith("?")) for name, kind in split}


class Compiler:
    """The nodes of one row's formulas."""

    def __init__(self, row: Row, table: Table) -> None:
        self.row, self.table = row, table
        self.names = columns.operand_names(row)
        self.attrs = attributes(row)
        self.nodes: list[Node] = []
        self.places: dict[Node, int] = {}
        self.operand = ""
        self.formulas: list[Formula | None] = []
        self._check_names()
        for name in self.names:
            text = row.get("gradient", {}).get(name)
            self.formulas.append(None if text is None else self._formula(name, text))

    @property
    def differentiable(self) -> list[Formula]:
        return [formula for formula in self.formulas if formula is not None]

    @property
    def text_only(self) -> list[Formula]:
        """Formulas that call no function of gt/tensors/gradients.py."""
        return [
            formula
            for formula in self.differentiable
            if not any("Expr::Python" in self.nodes[k].text for k in self._read_by(formula.root))
        ]

    def _check_names(self) -> None:
        formulas = self.row.get("gradient")
        if formulas is None and self.row["inputs"] and self.row["family"] not in WITHOUT_GRADIENT:
            self._fail("no gradient: a formula an operand, or `gradient = {}`")
        if unknown := set(formulas or {}) - set(self.names):
            self._fail(f"a gradient for {', '.join(sorted(unknown))}, which is no operand")
        if unknown := set(self.row.get("keeps", {})) - set(formulas or {}):
            self._fail(f"keeps something for {', '.join(sorted(unknown))}, which has no gradient")

    def _fail(self, text: str) -> NoReturn:
        where = f"{self.row['name']}: {self.operand}" if self.operand else self.row["name"]
        sys.exit(f"ops.toml: {where}: {text}")

    def _formula(self, operand: str, text: str) -> Formula:
        self.operand = operand
        root = self._compile(parse(f"{self.row['name']}: {operand}", text), None)
        if self._kind(root) not in {"tensor", "value"}:
            self._fail(f"the gradient is {self._kind(root)}, not a tensor")
        bits = {"Operand": 0, "Rest": 0, "Output": 0, "Grad": 0}
        for place in self._read_by(root):
            name, _, number = (
                self.nodes[place].text.removeprefix("Expr::").rstrip(")").partition("(")
            )
            if name in bits:
                bits[name] |= 1 << int(number)
            if name == "NotImplemented":  # an error, whatever gradients arrived
                bits["Grad"] = self._all_outputs()
            if name == "Vjp":
                bits["Rest"], bits["Grad"] = (1 << len(self.names)) - 1, self._all_outputs()
        read = (bits["Operand"] | bits["Rest"], bits["Output"])
        return Formula(root, *read, bits["Grad"], self._keeps(operand) or read)

    def _keeps(self, operand: str) -> tuple[int, int] | None:
        """Values that PyTorch keeps for the gradient of an operand, where the row states them."""
        text = self.row.get("keeps", {}).get(operand)
        if text is None:
            return None
        outputs = {f"out{place or ''}": place for place in range(self.row.get("outputs", 1))}
        bits = [0, 0]
        for word in text.split():
            if word not in self.names and word not in outputs:
                self._fail(f"keeps {word}, which is neither operand nor result")
            is_output = word not in self.names
            bits[is_output] |= 1 << (outputs[word] if is_output else self.names.index(word))
        return bits[0], bits[1]

    def _all_outputs(self) -> int:
        count = self.row.get("outputs", 1)
        return OUTPUT_BITS if count == "*" else (1 << count) - 1

    def _read_by(self, place: int) -> set[int]:
        """Indices of the nodes whose values node `place` needs."""
        node, places = self.nodes[place], {place}
        for position, child in enumerate(node.children):
            leaf = not self.nodes[child].children
            if not (node.of_metadata and position == 0 and leaf):
                places |= self._read_by(child)
        return places

    def _add(
        self, text: str, *children: int, kind: str = "value", of_metadata: bool = False
    ) -> int:
        node = Node(text, children, kind, of_metadata)
        if node not in self.places:
            self.places[node] = len(self.nodes)
            self.nodes.append(node)
        return self.places[node]

    def _kind(self, place: int) -> str:
        return self.nodes[place].kind

    # ---- expressions: a method for each class of Python's syntax tree ----------------------------

    def _compile(self, tree: ast.expr, scope: Scope) -> int:
        """Index of an expression's node; `scope`: parameters of the enclosing definition."""
        number = constant(tree)
        if number is not None:
            return self._number(number)
        write = getattr(self, f"_{type(tree).__name__.lower()}", None)
        if write is None:
            self._fail(f"{ast.unparse(tree)!r} is nothing that a formula may have")
        place: int = write(tree, scope)
        return place

    def _number(self, value: float) -> int:
        if isinstance(value, int):
            return self._add(f"Expr::Int({value})", kind="number")
        text = {"inf": "f64::INFINITY", "-inf": "f64::NEG_INFINITY", "nan": "f64::NAN"}
        return self._add(f"Expr::Float({text.get(str(value), repr(value))})", kind="number")

    def _truth(self, value: object) -> int:
        return self._add(f"Expr::Bool({str(value).lower()})", kind="bool")

    def _constant(self, tree: ast.Constant, _: Scope) -> int:
        if tree.value is None:
            return self._add("Expr::Absent", kind="none")
        if isinstance(tree.value, bool):
            return self._truth(tree.value)
        return self._add(f'Expr::Word("{tree.value!s}")', kind="word")

    def _name(self, tree: ast.Name, scope: Scope) -> int:
        name = tree.id
        if scope is not None and name in scope:
            return scope[name]
        if name in DTYPES:
            return self._add(f"Expr::Dtype(Dtype::{DTYPES[name]})", kind="dtype")
        if scope is not None and name not in {"g", "create_graph"}:
            self._fail(f"{name!r} is no parameter of the definition that it stands in")
        if name in self.names:
            return self._operand(name)
        if name in self.attrs:
            kind = self.attrs[name][0].partition("(")[0]
            if kind not in ATTRIBUTES:
                self._fail(f"the attribute {name!r} is {kind}: not for formulas")
            return self._add(f"Expr::Attr({list(self.attrs).index(name)})", kind=ATTRIBUTES[kind])
        return self._result(name)

    def _operand(self, name: str) -> int:
        place = self.names.index(name)
        if self.row["inputs"][place].endswith("*"):
            if name == self.operand:
                return self._add("Expr::Item", kind="tensor")
            return self._add(f"Expr::Rest({place})", kind="list")
        number_may = self.row["family"] == "elementwise" and name != self.operand
        return self._add(f"Expr::Operand({place})", kind="value" if number_may else "tensor")

    def _result(self, name: str) -> int:
        words = {
            "create_graph": ("Expr::CreateGraph", "bool"),
            "position": ("Expr::Position", "number"),
            "not_implemented": ("Expr::NotImplemented", "tensor"),
        }
        if name in words:
            text, kind = words[name]
            return self._add(text, kind=kind)
        word = name.rstrip("0123456789")
        place = int(name.removeprefix(word) or 0)
        if word not in {"g", "out"} or not self._all_outputs() >> place & 1:
            self._fail(f"{name!r} is no operand, attribute or result")
        return self._add(f"Expr::{'Grad' if word == 'g' else 'Output'}({place})", kind="tensor")

    def _binop(self, tree: ast.BinOp, scope: Scope) -> int:
        return self._infix(tree.op, tree.left, tree.right, scope)

    def _compare(self, tree: ast.Compare, scope: Scope) -> int:
        if len(tree.ops) != 1:
            self._fail(f"{ast.unparse(tree)!r} compares more than two")
        test, right = tree.ops[0], tree.comparators[0]
        if isinstance(test, ast.Is | ast.IsNot):
            absent = self._add("Expr::IsAbsent({})", self._compile(tree.left, scope), kind="bool")
            return absent if isinstance(test, ast.Is) else self._negated(absent)
        return self._infix(test, tree.left, right, scope)

    def _infix(self, symbol: ast.AST, left: ast.expr, right: ast.expr, scope: Scope) -> int:
        if type(symbol) not in INFIX:
            self._fail(f"{type(symbol).__name__} is no operator of formulas")
        places = (self._compile(left, scope), self._compile(right, scope))
        kinds = {self._kind(place) for place in places}
        if kinds & {"tensor", "value"}:
            fits = kinds <= {"tensor", "value", "number"}
            kind = "tensor" if "tensor" in kinds else "value"
        else:
            fits = len(kinds) == 1
            kind = "bool" if isinstance(symbol, ast.cmpop) else "number"
        if not fits:
            self._fail(f"{ast.unparse(left)} and {ast.unparse(right)} are of different kinds")
        text = f"Expr::Infix(Infix::{INFIX[type(symbol)]}, {{}}, {{}})"
        return self._add(text, *places, kind=kind)

    def _unaryop(self, tree: ast.UnaryOp, scope: Scope) -> int:
        inner = self._compile(tree.operand, scope)
        if isinstance(tree.op, ast.Not):
            return self._negated(inner)
        if not isinstance(tree.op, ast.USub):
            self._fail(f"{ast.unparse(tree)!r}: only - and not stand before a term")
        return self._add("Expr::Negative({})", inner, kind=self._kind(inner))

    def _negated(self, test: int) -> int:
        return self._choice(test, self._truth(False), self._truth(True))

    def _boolop(self, tree: ast.BoolOp, scope: Scope) -> int:
        *tests, result = [self._compile(value, scope) for value in tree.values]
        for test in reversed(tests):
            if isinstance(tree.op, ast.And):
                result = self._choice(test, result, self._truth(False))
            else:
                result = self._choice(test, self._truth(True), result)
        return result

    def _ifexp(self, tree: ast.IfExp, scope: Scope) -> int:
        test, yes, no = (self._compile(part, scope) for part in (tree.test, tree.body, tree.orelse))
        return self._choice(test, yes, no)

    def _choice(self, test: int, yes: int, no: int) -> int:
        if self._kind(test) not in {"bool", "value"}:
            self._fail("a condition is of numbers, shapes and attributes: no tensor is read")
        kinds = {self._kind(yes), self._kind(no)} - {"none"}
        if len(kinds) > 1 and not kinds <= {"tensor", "value", "number"}:
            self._fail(f"a condition chooses between {' and '.join(sorted(kinds))}")
        kind = kinds.pop() if len(kinds) == 1 else "value"
        return self._add("Expr::If({}, {}, {})", test, yes, no, kind=kind)

    def _list(self, tree: ast.List, scope: Scope) -> int:
        places = []
        for item in tree.elts:
            starred = isinstance(item, ast.Starred)
            places.append(
                self._compile(item.value if isinstance(item, ast.Starred) else item, scope)
            )
            if self._kind(places[-1]) != ("ints" if starred else "number"):
                self._fail(f"{ast.unparse(item)} does not stand in a list of integers")
        return self._add(f"Expr::List(&[{holes(places)}])", *places, kind="ints")

    def _subscript(self, tree: ast.Subscript, scope: Scope) -> int:
        inner = self._compile(tree.value, scope)
        if isinstance(tree.slice, ast.Slice):
            bounds = [constant(x) if x else None for x in (tree.slice.lower, tree.slice.upper)]
            texts = ["None" if bound is None else f"Some({bound})" for bound in bounds]
            return self._add(f"Expr::Range({{}}, {texts[0]}, {texts[1]})", inner, kind="ints")
        index = constant(tree.slice)
        if self._kind(inner) != "several" or index is None:
            self._fail(f"{ast.unparse(tree)}: an index picks one of several results")
        return self._add(f"Expr::Result({{}}, {index})", inner, kind="tensor")

    # ---- calls -----------------------------------------------------------------------------------

    def _call(self, tree: ast.Call, scope: Scope) -> int:
        name, table = ast.unparse(tree.func), self.table
        if name == "vjp":
            return self._vjp(tree)
        args = [arg.value if isinstance(arg, ast.Starred) else arg for arg in tree.args]
        compiled = [self._compile(arg, scope) for arg in args]
        named = {str(word.arg): self._compile(word.value, scope) for word in tree.keywords}
        if name in table.rows:
            return self._operator(table.rows[name], compiled, named)
        if name in SHAPES:
            return self._function(name, compiled, named)
        if name in table.definitions:
            parameters, body = table.definitions[name]
            self._check_count(name, len(parameters), compiled, named)
            return self._compile(body, dict(zip(parameters, compiled, strict=True)))
        if name not in table.functions:
            self._fail(f"{name} is no operator, definition or function of gt/tensors/gradients.py")
        self._check_count(name, table.functions[name], compiled, named)
        return self._add(f'Expr::Python("{name}", &[{holes(compiled)}])', *compiled, kind="tensor")

    def _vjp(self, tree: ast.Call) -> int:
        """All gradients by one instruction of an operator with this operator's signature."""
        operator = self.table.rows.get(ast.unparse(tree.args[0])) if len(tree.args) == 1 else None
        if operator is None or (operator["inputs"], operator["attrs"]) != (
            self.row["inputs"],
            self.row["attrs"],
        ):
            self._fail("vjp(operator) is of one with the same operands and attributes")
        return self._add(f"Expr::Vjp(Op::{variant(operator)})", kind="tensor")

    def _check_count(
        self, name: str, count: int, args: Sequence[int], named: dict[str, int]
    ) -> None:
        if len(args) != count or named:
            self._fail(f"{name} takes {count} arguments, by position")

    def _function(self, name: str, args: list[int], named: dict[str, int]) -> int:
        letters, kind, function = SHAPES[name]
        self._check_count(name, len(letters), args, named)
        for letter, place in zip(letters, args, strict=True):
            if self._kind(place) not in ACCEPTED[letter]:
                self._fail(f"{name} does not take {self._kind(place)}")
        text = f"Expr::Apply(Function::{function}, &[{holes(args)}])"
        return self._add(text, *args, kind=kind, of_metadata=letters.startswith("m"))

    def _operator(self, row: Row, args: list[int], named: dict[str, int]) -> int:
        """Compiles a call of an operator of the table: its operands, then all of its attributes."""
        attrs = attributes(row)
        listed = any(text.endswith("*") for text in row["inputs"])
        count = len(args) if listed else len(row["inputs"])
        operands, rest = args[:count], args[count:]
        if len(operands) < len(row["inputs"]) or len(rest) > len(attrs) or set(named) - set(attrs):
            self._fail(f"{row['name']} has operands {row['inputs']} and attributes {list(attrs)}")
        for text, place in zip(row["inputs"], operands, strict=False):
            absent = text.endswith("?") and self._kind(place) == "none"
            if self._kind(place) not in {"tensor", "value", "number", "list"} and not absent:
                self._fail(f"{row['name']}: the operand {text} is {self._kind(place)}")
        values = dict(zip(attrs, rest, strict=False)) | named
        places = [self._attribute(row["name"], name, attrs[name], values) for name in attrs]
        text = f"Expr::Call(Op::{variant(row)}, &[{holes(operands)}], &[{holes(places)}])"
        kind = "tensor" if row.get("outputs", 1) == 1 else "several"
        return self._add(text, *operands, *places, kind=kind)

    def _attribute(self, op: str, name: str, kind: tuple[str, bool], values: dict[str, int]) -> int:
        expected, optional = kind
        if name not in values:
            if not optional:
                self._fail(f"{op} needs the attribute {name}")
            return self._add("Expr::Absent", kind="none")
        accepted = {ATTRIBUTES.get(expected.partition("(")[0])}
        accepted |= ({"number"} if expected == "ints" else set()) | (
            {"none"} if optional else set()
        )
        if self._kind(values[name]) not in accepted:
            self._fail(f"{op}: the attribute {name} is {expected}, not {self._kind(values[name])}")
        return values[name]
