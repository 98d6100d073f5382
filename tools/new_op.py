"""Scaffold an operator of the families elementwise, reduce or view: row, kernel, reference, sample.

    python tools/new_op.py logaddexp2 self other --dtype float \
        --gradient self='g * 2 ** (self - out)' --gradient other='g * 2 ** (other - out)' \
        --doc 'log2(2**self + 2**other), without overflow.'

docs/adding_an_op.md explains what each line is, and has an example of each family. `--dry-run`
prints the lines and changes nothing. Standard library only.
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
SAMPLES = "tests/operators/samples.py"
SECTION = re.compile(r"^# ---- (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Family:
    """Places of a family's codes, kernels, references and samples."""

    page: int  # the high byte of its codes
    files: str  # pytorch/….py and reference/….py of gt/worker
    samples: str  # the function of tests/operators/samples.py


FAMILIES = {
    "elementwise": Family(0x0300, "elementwise", "_elementwise"),
    "reduce": Family(0x0500, "reductions", "_reductions"),
    "view": Family(0x0700, "indexing", "_views"),
}


@dataclass(frozen=True)
class Operator:
    """The new operator, as given on the command line."""

    name: str
    family: str
    operands: tuple[str, ...]
    attrs: tuple[str, ...]
    aten: str
    torch: str
    numpy: str
    dtype: str
    columns: tuple[str, ...]
    python: str
    samples: tuple[str, ...]
    gradients: dict[str, str]
    doc: str


def main(arguments: list[str] | None = None) -> int:
    """Parse, generate the lines, and append them unless --dry-run."""
    options = parser().parse_args(arguments)
    operator = parsed(options)
    rows = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))["op"]
    if any(row["name"] == operator.name for row in rows):
        print(f"{TABLE} has a row {operator.name!r} already", file=sys.stderr)
        return 1
    page = FAMILIES[operator.family].page
    code = 1 + max(row["code"] for row in rows if row["code"] & 0xFF00 == page)
    if code & 0xFF00 != page:
        print(f"the page of the family {operator.family} is full", file=sys.stderr)
        return 1
    for path, lines in edits(operator, code).items():
        print(f"---- {path}\n{lines}", end="")
        if not options.dry_run:
            write(ROOT / path, lines, FAMILIES[operator.family])
    print("Next: just gen, then build and test: docs/adding_an_op.md")
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("name", help="PyTorch's name of the operator")
    result.add_argument("operands", nargs="+", help="their names in PyTorch's order")
    result.add_argument("--family", choices=list(FAMILIES), default="elementwise")
    result.add_argument("--aten", help="the ATen overload; default: the name")
    result.add_argument("--torch", help="the kernel's expression; default: torch.NAME")
    result.add_argument("--numpy", help="the reference's; default: np.NAME, of an elementwise one")
    result.add_argument("--dtype", default="promote", help="of the result, see ops.toml")
    _several(result, "--attr", "NAME:KIND", "an attribute")
    _several(result, "--column", "NAME=TOML", "a further column")
    _several(result, "--sample", "ATTRS", "its attributes, a tuple")
    _several(result, "--gradient", "OPERAND=FORMULA", "once an operand")
    result.add_argument("--python", help="the method's signature; default: operands and attributes")
    result.add_argument("--doc", required=True, help="one sentence with a full stop")
    result.add_argument("--dry-run", action="store_true", help="print only")
    return result


def _several(made: argparse.ArgumentParser, flag: str, metavar: str, text: str) -> None:
    """Add an option that may be repeated."""
    made.add_argument(flag, metavar=metavar, help=text, action="append", default=[])


def parsed(options: argparse.Namespace) -> Operator:
    """The operator, or an error of the command line."""
    gradients = dict(entry.split("=", 1) for entry in options.gradient if "=" in entry)
    for word in [options.name, *options.operands]:
        if not word.isidentifier():
            sys.exit(f"not a name: {word!r}")
    if len(gradients) != len(options.gradient) or not set(gradients) <= set(options.operands):
        sys.exit(f"--gradient takes OPERAND=FORMULA, once an operand; got {options.gradient}")
    if options.family != "elementwise" and not (options.numpy and options.sample):
        sys.exit(f"the family {options.family} needs --numpy and --sample")
    words = [*options.operands[1:], *(attr.split(":")[0] for attr in options.attr)]
    return Operator(
        name=options.name,
        family=options.family,
        operands=tuple(options.operands),
        attrs=tuple(options.attr),
        aten=options.aten or options.name,
        torch=options.torch or f"torch.{options.name}",
        numpy=options.numpy or f"np.{options.name}",
        dtype=options.dtype,
        columns=tuple(options.column),
        python=", ".join(words) if options.python is None else options.python,
        samples=tuple(options.sample),
        gradients=gradients,
        doc=options.doc,
    )


def edits(operator: Operator, code: int) -> dict[str, str]:
    """Paths -> lines to add there."""
    kernel, reference, files = operator.torch, operator.numpy, FAMILIES[operator.family].files
    if operator.family == "elementwise":
        if len(operator.operands) == 2:
            kernel = f"_of_tensors({kernel})"  # numbers too
        reference = f'_kernel({reference}, "{operator.dtype}", {len(operator.operands)})'
    return {
        TABLE: row(operator, code),
        f"gt/worker/pytorch/{files}.py": f'"{operator.name}": {kernel},\n',
        f"gt/worker/reference/{files}.py": f'"{operator.name}": {reference},\n',
        SAMPLES: f'"{operator.name}": [{samples(operator)}],\n',
    }


def samples(operator: Operator) -> str:
    """Sample operands, in each dtype or with each of the attributes."""
    seeds = range(len(operator.operands))
    if operator.samples:
        operands = "".join(f"given(2, 3, 4, seed={seed}), " for seed in seeds)
        listed = "".join(f"{sample}, " for sample in operator.samples)
        return f"Sample(({operands.strip()}), attrs) for attrs in ({listed.strip()})"
    operands = "".join(f"given(3, 4, dtype=d, seed={seed}), " for seed in seeds)
    return f"Sample(({operands.strip()})) for d in FLOATS"


def row(operator: Operator, code: int) -> str:
    """The operator's row of the table."""
    lines = [
        "[[op]]",
        f'name = "{operator.name}"',
        f"code = {code:#06x}",
        f'aten = "{operator.aten}"',
        f'family = "{operator.family}"',
        f"inputs = {listed(operator.operands)}",
    ]
    if operator.attrs:
        lines.append(f"attrs = {listed(operator.attrs)}")
    if operator.family != "view":
        lines.append(f'dtype = "{operator.dtype}"')
    for column in operator.columns:
        name, _, value = column.partition("=")
        lines.append(f"{name.strip()} = {value.strip()}")
    lines.append(f'python = "{operator.python}"')
    for operand in operator.operands:  # without a formula the gradient is PyTorch's error
        formula = operator.gradients.get(operand, "not_implemented")
        lines.append(f'gradient.{operand} = "{formula}"')
    return "\n".join([*lines, f'doc = "{operator.doc}"', ""])


def listed(names: tuple[str, ...]) -> str:
    """A TOML list."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def write(path: Path, lines: str, family: Family) -> None:
    """Insert the lines into the matching section or dictionary of a file."""
    text = path.read_text(encoding="utf-8")
    if path.name == TABLE:
        names = {entry: name for name, entry in FAMILIES.items()}
        place = end_of_section(text, names[family])
        before, after = text[:place].rstrip("\n"), text[place:]
        text = f"{before}\n\n{lines}\n\n{after}"
    else:
        function = family.samples if path.name == Path(SAMPLES).name else "kernels"
        text = with_entry(path, text, lines, function)
    path.write_text(text, encoding="utf-8")


def with_entry(path: Path, text: str, entry: str, function: str) -> str:
    """The module with one more entry in the last dictionary of a function."""
    tables = [
        node
        for statement in ast.parse(text).body
        if isinstance(statement, ast.FunctionDef) and statement.name == function
        for node in ast.walk(statement)
        if isinstance(node, ast.Dict) and node.values
    ]
    if not tables:
        sys.exit(f"{path}: no function `{function}` with a dictionary in it")
    last = max(tables, key=lambda node: node.lineno)
    lines = text.splitlines(keepends=True)
    beside = lines[last.values[-1].lineno - 1]
    indent = beside[: len(beside) - len(beside.lstrip())]
    lines.insert((last.end_lineno or 0) - 1, indent + entry)
    return "".join(lines)


def end_of_section(text: str, family: str) -> int:
    """Position after the section of `family`, where the next one begins."""
    heads = list(SECTION.finditer(text))
    for head, after in itertools.pairwise(heads):
        if head[1] == family:
            return after.start()
    sys.exit(f"{TABLE} has no section {family!r} with another one after it")


if __name__ == "__main__":
    sys.exit(main())
