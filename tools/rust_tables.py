"""The functions that rows of ops.toml name, as tables in the order of the operators."""

from columns import Row

# What stands in place of a family's own: its rule, and the file of its rules and of its strategies.
RULES = {"elementwise": "plain", "reduce": "infer", "update": "infer"}
RULE_FILES = {"collective": "control"}
STRATEGY_FILES = {"update": "elementwise"}
# Families whose values have no operand that is cut.
WITHOUT_STRATEGY = ("create", "control", "collective")


def rules(header: str, rows: list[Row]) -> str:
    """The rule of each operator."""
    named = [_path(row, _rule(row), RULE_FILES) for row in rows]
    return _table(header, "The rule of each operator.", "super::Rule", named)


def strategies(header: str, rows: list[Row]) -> str:
    """How each operator follows a cut operand."""
    named = [
        "super::gathered"
        if row["family"] in WITHOUT_STRATEGY
        else _path(row, row.get("strategy", "follow"), STRATEGY_FILES)
        for row in rows
    ]
    return _table(header, "How each operator follows a cut operand.", "super::Follow", named)


def _rule(row: Row) -> str:
    name: str = row.get("rule") or RULES.get(row["family"]) or row["name"]
    return name


def _path(row: Row, name: str, files: dict[str, str]) -> str:
    file = files.get(row["family"], row["family"])
    return f"super::{name}" if "::" in name else f"super::{file}::{name}"


def _table(header: str, doc: str, kind: str, named: list[str]) -> str:
    entries = "".join(f"    {path},\n" for path in named)
    return f"//! {header}\n\n/// {doc}\npub(super) static TABLE: &[{kind}] = &[\n{entries}];\n"
