"""Gradient formulas: compiles their text in ops.toml to Rust's table and to the values to be saved.

The language is described in formula_language.py. Standard library only.
"""

import ast
import functools
import operator
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from formula_compiler import Compiler, Formula, Row, Table, variant
from formula_language import INFIX, SHAPES, parse

FUNCTIONS = Path(__file__).resolve().parent.parent / "gt/tensors/gradients.py"
NODES_MAX = 256  # indices are u8


def compile_rows(rows: Sequence[Row], definitions: dict[str, str]) -> None:
    """Sets the compiled `formulas` of each row, and `saves` from the names in them."""
    names = {row["name"]: row for row in rows}
    table = Table(names, _parsed(definitions), _functions())
    if taken := set(table.definitions) & {*names, *SHAPES}:
        sys.exit(f"ops.toml: definitions of what there is already: {', '.join(sorted(taken))}")
    for row in rows:
        row["formulas"] = Compiler(row, table)
        row["saves"] = _saves(row["formulas"])


def _parsed(definitions: dict[str, str]) -> dict[str, tuple[list[str], ast.expr]]:
    """Definitions by name: parameters and body."""
    parsed = {}
    for head, body in definitions.items():
        call = parse(head, head)
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            sys.exit(f"ops.toml: definition {head!r} is not of the form name(parameter, …)")
        parsed[call.func.id] = ([ast.unparse(name) for name in call.args], parse(head, body))
    return parsed


def _functions() -> dict[str, int]:
    """Functions of gt/tensors/gradients.py -> their number of arguments."""
    module = ast.parse(FUNCTIONS.read_text(encoding="utf-8"))
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    return {function.name: len(function.args.args) for function in functions}


def _saves(compiled: Compiler) -> list[str]:
    """Names of the values that the backward pass reads again."""
    differentiable = compiled.differentiable
    counted = compiled.row.get("outputs", 1)
    outputs = [f"out{place or ''}" for place in range(16 if counted == "*" else counted)]
    operand_bits = _union(formula.operands for formula in differentiable)
    output_bits = _union(formula.outputs for formula in differentiable)
    named = [(compiled.names, operand_bits), (outputs, output_bits)]
    return [name for names, bits in named for k, name in enumerate(names) if bits >> k & 1]


def _union(bits: Iterable[int]) -> int:
    return functools.reduce(operator.or_, bits, 0)


def rust_file(header: str, rows: Sequence[Row]) -> str:
    """The table of all formulas, with one line for each row."""
    arms, plain = [], []
    for row in rows:
        if row["formulas"].differentiable:
            arms.append(f"        Op::{variant(row)} => &{_rust(row['formulas'])},\n")
        else:
            plain.append(f"Op::{variant(row)}")
    names = sorted(INFIX.values())
    infix = "".join(f"            Self::{name} => Op::{name},\n" for name in names)
    return f"""//! {header}
#![allow(clippy::all, clippy::pedantic, reason = "generated")]

use super::formula::{{Expr, Formula, Formulas, Function, Infix, Saves}};
use gt_protocol::{{Dtype, Op}};

impl Infix {{
    /// The operator of the table.
    pub(crate) fn op(self) -> Op {{
        match self {{
{infix}        }}
    }}
}}

/// The gradient formulas of an operator.
pub(crate) fn of(op: Op) -> &'static Formulas {{
    match op {{
{"".join(arms)}        {" | ".join(plain)} => &Formulas {{ nodes: &[], operands: &[] }},
    }}
}}
"""


def _rust(compiled: Compiler) -> str:
    """The row's constant. Expressions that are used several times are evaluated once and kept."""
    uses = [0] * len(compiled.nodes)
    roots = [formula.root for formula in compiled.differentiable]
    for place in [*roots, *(child for node in compiled.nodes for child in node.children)]:
        uses[place] += 1
    written: list[str] = []
    place_of: list[int] = []
    for node, count in zip(compiled.nodes, uses, strict=True):
        written.append(node.text.format(*(place_of[child] for child in node.children)))
        if count > 1 and node.children:
            written.append(f"Expr::Shared({len(written) - 1})")
        place_of.append(len(written) - 1)
    if len(written) > NODES_MAX:
        sys.exit(f"ops.toml: {compiled.row['name']}: formulas of more than {NODES_MAX} nodes")

    def operand(formula: Formula | None) -> str:
        if formula is None:
            return "None"
        keeps = f"Saves {{ operands: {formula.keeps[0]}, outputs: {formula.keeps[1]} }}"
        read = f"operands: {formula.operands}, outputs: {formula.outputs}"
        bits = f"{read}, grads: {formula.grads}, keeps: {keeps}"
        return f"Some(Formula {{ root: {place_of[formula.root]}, {bits} }})"

    operands = ", ".join(operand(formula) for formula in compiled.formulas)
    return f"Formulas {{ nodes: &[{', '.join(written)}], operands: &[{operands}] }}"
