"""Scaffold an elementwise operator: its row with the gradients, its kernel and reference.

    python tools/new_op.py hypot self other --dtype float \
        --gradient self='g * self / out' --gradient other='g * other / out' \
        --doc 'The square root of the sum of the squares.'

docs/adding_an_op.md explains what each line is. `--dry-run` prints the lines and changes nothing.
Only the elementwise family: other families need thought, not a template. Standard library only.
"""

import argparse
import ast
import itertools
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = "ops.toml"
KERNELS = "gt/worker/torch_elementwise.py"
REFERENCE = "gt/worker/reference_elementwise.py"
SECTION = re.compile(r"^# ---- (\w+)", re.MULTILINE)
PAGE = 0x0300  # codes of the elementwise family: the high byte


@dataclass(frozen=True)
class Operator:
    """What the command line says about the new operator."""

    name: str
    operands: tuple[str, ...]
    aten: str
    torch: str
    numpy: str
    dtype: str
    gradients: dict[str, str]
    doc: str


def main(arguments: list[str] | None = None) -> int:
    """Parse, make the lines, and append them unless --dry-run."""
    options = parser().parse_args(arguments)
    operator = parsed(options)
    rows = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))["op"]
    if any(row["name"] == operator.name for row in rows):
        print(f"{TABLE} has a row {operator.name!r} already", file=sys.stderr)
        return 1
    code = 1 + max(row["code"] for row in rows if row["code"] & 0xFF00 == PAGE)
    if code & 0xFF00 != PAGE:
        print("the page of the elementwise family is full: give it a second one", file=sys.stderr)
        return 1
    for path, lines in edits(operator, code).items():
        print(f"---- {path}\n{lines}", end="")
        if not options.dry_run:
            write(ROOT / path, lines)
    print("Next: just gen, then just test")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("name", help="PyTorch's name of the operator")
    made.add_argument("operands", nargs="+", help="their names in PyTorch's order")
    made.add_argument("--aten", help="the ATen overload; default: the name")
    made.add_argument("--torch", help="the kernel; default: torch.NAME")
    made.add_argument("--numpy", help="the reference; default: np.NAME")
    made.add_argument("--dtype", choices=["promote", "float", "bool", "first"], default="promote")
    made.add_argument(
        "--gradient", action="append", default=[], metavar="OPERAND=FORMULA", help="once an operand"
    )
    made.add_argument("--doc", required=True, help="one sentence with a full stop")
    made.add_argument("--dry-run", action="store_true", help="print only")
    return made


def parsed(options: argparse.Namespace) -> Operator:
    """The operator, or an error of the command line."""
    gradients = dict(entry.split("=", 1) for entry in options.gradient if "=" in entry)
    for word in [options.name, *options.operands]:
        if not word.isidentifier():
            sys.exit(f"not a name: {word!r}")
    if len(gradients) != len(options.gradient) or not set(gradients) <= set(options.operands):
        sys.exit(f"--gradient takes OPERAND=FORMULA, once an operand; got {options.gradient}")
    return Operator(
        name=options.name,
        operands=tuple(options.operands),
        aten=options.aten or options.name,
        torch=options.torch or f"torch.{options.name}",
        numpy=options.numpy or f"np.{options.name}",
        dtype=options.dtype,
        gradients=gradients,
        doc=options.doc,
    )


def edits(operator: Operator, code: int) -> dict[str, str]:
    """Path -> lines to add there."""
    binary = len(operator.operands) == 2
    kernel = f"_of_tensors({operator.torch})" if binary else operator.torch  # numbers too
    reference = f'{operator.numpy}, "{operator.dtype}", {len(operator.operands)}'
    return {
        TABLE: row(operator, code),
        KERNELS: f'"{operator.name}": {kernel},\n',
        REFERENCE: f'"{operator.name}": _kernel({reference}),\n',
    }


def row(operator: Operator, code: int) -> str:
    """The row of the table."""
    lines = [
        "[[op]]",
        f'name = "{operator.name}"',
        f"code = {code:#06x}",
        f'aten = "{operator.aten}"',
        'family = "elementwise"',
        f"inputs = {listed(operator.operands)}",
        f'dtype = "{operator.dtype}"',
    ]
    for operand in operator.operands:  # without a formula PyTorch's error
        formula = operator.gradients.get(operand, "not_implemented")
        lines.append(f'gradient.{operand} = "{formula}"')
    return "\n".join([*lines, f'doc = "{operator.doc}"', ""])


def listed(names: tuple[str, ...]) -> str:
    """A TOML list."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def write(path: Path, lines: str) -> None:
    """Put the lines where the file has its like: section, dictionary or end."""
    text = path.read_text(encoding="utf-8")
    if path.name == TABLE:
        place = end_of_section(text, "elementwise")
        before, after = text[:place].rstrip("\n"), text[place:]
        text = f"{before}\n\n{lines}\n\n{after}"
    else:
        text = with_entry(path, text, lines)
    path.write_text(text, encoding="utf-8")


def with_entry(path: Path, text: str, entry: str) -> str:
    """The module with one more entry in the dictionary that its function `kernels` returns."""
    tables = [
        node
        for function in ast.parse(text).body
        if isinstance(function, ast.FunctionDef) and function.name == "kernels"
        for node in ast.walk(function)
        if isinstance(node, ast.Dict) and node.values
    ]
    if not tables:
        sys.exit(f"{path}: no function `kernels` with a dictionary in it")
    last = max(tables, key=lambda node: node.lineno)
    lines = text.splitlines(keepends=True)
    beside = lines[last.values[-1].lineno - 1]
    indent = beside[: len(beside) - len(beside.lstrip())]
    lines.insert((last.end_lineno or 0) - 1, indent + entry)
    return "".join(lines)


def end_of_section(text: str, family: str) -> int:
    """Where the section after the one of `family` begins."""
    heads = list(SECTION.finditer(text))
    for head, after in itertools.pairwise(heads):
        if head[1] == family:
            return after.start()
    sys.exit(f"{TABLE} has no section {family!r} with another one after it")


if __name__ == "__main__":
    sys.exit(main())
