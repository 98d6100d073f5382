"""The type stub of `gt`: every name that `import gt` defines, and its origin."""

import ast
import itertools
import re
import sys
from collections.abc import Iterator

import schema_types
from python_source import ROOT, Row, Source, name_by_file
from stubs import COMPOSITE, HEADER

MODULES = (
    "creation", "random", "session", "serialization", "dtypes", "interop", "settings",
    "tensor_types", "amp.autocast_state",
)  # fmt: skip
FUNCTION_FAMILIES_NOT = ("control", "collective")


def package_stub(rows: list[Row], core: str) -> str:
    """Text of gt/__init__.pyi: every name that `import gt` defines; the first line for a name
    counts.

    Args:
        core: the text of gt/_core.pyi, whose methods are functions here.
    """
    lines: dict[str, str] = {}
    methods = Methods(core)
    found = itertools.chain(
        _imported(), _lazy(), _listed(), function_lines(rows, methods), _of_schemas()
    )
    for name, line in found:
        if not name.startswith("__"):
            lines.setdefault(name, line)
    lines["newaxis"] = "newaxis: None"
    return "\n".join([f"# {HEADER}", *methods.imports(lines), *lines.values()]) + "\n"


class Methods:
    """The methods of the tensor class, as functions whose first argument is called `input`."""

    def __init__(self, core: str) -> None:
        tree = ast.parse(core)
        self.origin: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    shown = alias.asname or alias.name
                    renamed = f" as {shown}" if alias.asname else ""
                    self.origin[shown] = f"from {node.module} import {alias.name}{renamed}"
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.origin[node.target.id] = f"from gt._core import {node.target.id}"
        self.found: dict[str, list[ast.FunctionDef]] = {}
        (tensor,) = (x for x in tree.body if isinstance(x, ast.ClassDef) and x.name == "Tensor")
        for node in tensor.body:
            if isinstance(node, ast.FunctionDef):
                self.found.setdefault(node.name, []).append(node)
        self.numbers_first = {name for name, _ in _numbers_first()}

    def function(self, name: str, method: str) -> str:
        """The stub's lines for the function `name`, which is this method."""
        out = []
        for node in self.found[method]:
            arguments = ast.unparse(node.args)
            kind = "Tensor | _Number" if name in self.numbers_first else "Tensor"
            first = node.args.args[0].arg if node.args.args else "self"
            shown = "input" if first == "self" else first
            arguments = re.sub(r"^\w+(, /)?", f"{shown}: {kind}", arguments)
            arguments = re.sub(r"\bcomplex\b", "builtins.complex", arguments)  # `gt` has a function
            result = ast.unparse(node.returns) if node.returns else "None"
            result = "Tensor" if result == "Self" else result
            out += schema_types.lines(name, [f"({arguments}) -> {result}"])
        marked = len(out) > 1
        return "\n".join(
            part for line in out for part in (["@overload", line] if marked else [line])
        )

    def tell(self, name: str, source: Source, function: str) -> bool:
        """True where the method's signature is more detailed than that of the function's source."""
        if name not in self.found:
            return False
        arguments = source.function(function)[1].args.args
        of_self = bool(arguments) and arguments[0].arg == "self"
        return of_self or len(self.found[name]) > 1

    def imports(self, lines: dict[str, str]) -> list[str]:
        """Imports of the types that these lines use and do not define."""
        names = {
            node.id
            for line in lines.values()
            if "def " in line
            for node in ast.walk(ast.parse(line))
            if isinstance(node, ast.Name)
        }
        known = {self.origin[name] for name in names if name in self.origin and name not in lines}
        return ["import builtins", *sorted(known)]


def _numbers_first() -> list[tuple[str, ast.expr]]:
    return Source("gt.composite.numbers_first").table("NUMBERS_FIRST")


def _of_schemas() -> Iterator[tuple[str, str]]:
    """Functions that exist only by PyTorch's schemas."""
    for name in schema_types.names("t"):
        texts = schema_types.signatures(name, "input")
        yield name, "\n".join(schema_types.lines(name, texts))


def _imported() -> Iterator[tuple[str, str]]:
    """Names that gt/__init__.py imports from gt, and its second names of dtypes."""
    for node in ast.parse((ROOT / "gt/__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("gt", "math"):
            for alias in node.names:
                shown = alias.asname or alias.name
                yield shown, f"from {node.module} import {alias.name} as {shown}"
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            for names in zip(node.targets[0].elts, ast.iter_child_nodes(node.value), strict=False):
                shown, name = (ast.unparse(part) for part in names)
                yield shown, f"{shown} = {name}"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            name, module = node.value.attr, ast.unparse(node.value.value)
            if ast.unparse(node.targets[0]) == name:
                yield name, f"from {name_by_file(f'gt.{module}')} import {name} as {name}"


def _lazy() -> Iterator[tuple[str, str]]:
    """Subpackages that load at their first use, where they exist."""
    for name in ("_kernels", *sorted(ast.literal_eval(Source("gt").values["_LAZY"]))):
        path = name_by_file(f"gt.{name}").replace(".", "/")
        if any((ROOT / f"{path}{end}").exists() for end in (".py", ".pyi", "/__init__.py")):
            home = path.rpartition("/")[0].replace("/", ".")
            yield name, f"from {home} import {name} as {name}"
    for name, module in ast.literal_eval(Source("gt").values["_LAZY_NAMES"]).items():
        yield name, f"from {name_by_file(f'gt.{module}')} import {name} as {name}"


def _listed() -> Iterator[tuple[str, str]]:
    """Names in the `__all__` of the modules of functions."""
    for module in MODULES:
        source = Source(f"gt.{module}")
        for name in source.words("__all__") if "__all__" in source.values else []:
            yield name, f"from {source.module} import {name} as {name}"


def _functions_of_composite(composite: Source) -> Iterator[tuple[Source, str, ast.expr]]:
    """The entries of gt.composite's FUNCTIONS, including those of its files' tables."""
    table = composite.values["FUNCTIONS"]
    assert isinstance(table, ast.Dict)
    for key, value in zip(table.keys, table.values, strict=True):
        if key is not None:
            yield composite, str(ast.literal_eval(key)), value
            continue
        assert isinstance(value, ast.Attribute), ast.dump(value)
        assert isinstance(value.value, ast.Name), ast.dump(value)
        source = Source(f"gt.composite.{value.value.id}")
        for name, entry in source.table(value.attr):
            yield source, name, entry


def _exported(module: str, name: str, shown: str) -> str:
    """An import of a name of `module`, written so that type checkers take it as an export."""
    if name == shown:
        return f"from {module} import {name} as {shown}"
    return f"from {module} import {name} as _{name}\n{shown} = _{name}"


def function_lines(rows: list[Row], methods: Methods) -> list[tuple[str, str]]:
    """Functions of `gt` that are also methods, and those of gt.composite that are not."""
    composite = Source("gt.composite")
    joining = Source("gt.composite.joining").words("__all__")
    lines = {name: f"from gt.composite.joining import {name} as {name}" for name in joining}
    for source, name, value in _functions_of_composite(composite):
        if isinstance(value, ast.Attribute) and ast.unparse(value.value) == "Tensor":
            lines[name] = methods.function(name, value.attr)
            continue
        if isinstance(value, ast.Attribute):
            owner, function = Source(f"gt.composite.{ast.unparse(value.value)}"), value.attr
        else:
            assert isinstance(value, ast.Name), ast.dump(value)
            owner, function = source, value.id
        if methods.tell(name, owner, function):
            lines[name] = methods.function(name, name)
        else:
            lines[name] = _exported(owner.origin.get(function, owner.module), function, name)
    lines |= {name: methods.function(name, name) for name in composite.words("IN_PLACE")}
    methods_only = set(composite.words("METHODS_ONLY"))
    for file in COMPOSITE:
        for name, _ in Source(f"gt.composite.{file}").table("METHODS"):
            if name not in methods_only:
                lines.setdefault(name, methods.function(name, name))
    for row in rows:
        if "python" in row and row["family"] not in FUNCTION_FAMILIES_NOT:
            lines.setdefault(row["name"], methods.function(row["name"], row["name"]))
    return sorted(lines.items())


if __name__ == "__main__":
    sys.exit("a part of tools/gen.py, which runs it")
