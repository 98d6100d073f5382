"""The functions that rows of ops.toml name, as tables in the order of the operators."""

from typing import NamedTuple

from columns import Row


class Family(NamedTuple):
    """Files of a family's functions, and the defaults where a row names none."""

    rules: str  # the file in rules/
    rule: str | None  # else the operator's name
    strategies: str | None  # the file in rules/spread/; none where no operand is cut
    strategy: str = "follow"


FAMILIES = {
    "create": Family("create", None, None),
    "random": Family("random", None, "random"),
    "elementwise": Family("elementwise", "plain", "elementwise"),
    "contract": Family("contract", None, "contract"),
    "reduce": Family("reduce", "infer", "reduce"),
    "normalize": Family("normalize", None, "normalize"),
    "view": Family("view", None, "view"),
    "index": Family("index", None, "index"),
    "loss": Family("loss", None, "loss"),
    "update": Family("update", "infer", "elementwise"),
    "generic": Family("generic", None, "generic"),
    "control": Family("control", None, None),
    "collective": Family("control", None, None),
}


def rules(header: str, rows: list[Row]) -> str:
    """The table of each operator's shape rule."""
    named = []
    for row in rows:
        family = FAMILIES[row["family"]]
        strided = "strided" if "sizes" in row.get("strided", {}) else None
        name = row.get("rule") or strided or family.rule or row["name"]
        named.append(_path(family.rules, name))
    return _table(header, "The rule of each operator.", "super::call::Rule", named)


def strategies(header: str, rows: list[Row]) -> str:
    """The table of each operator's sharding strategy for a sharded operand."""
    named = []
    for row in rows:
        family = FAMILIES[row["family"]]
        name = row.get("strategy", family.strategy)
        named.append(
            _path(family.strategies, name) if family.strategies else "super::spec::gathered"
        )
    return _table(
        header,
        "Function of each operator that keeps the sharding of an operand.",
        "super::spec::Follow",
        named,
    )


def _path(file: str, name: str) -> str:
    return f"super::{name}" if "::" in name else f"super::{file}::{name}"


def _table(header: str, doc: str, kind: str, named: list[str]) -> str:
    entries = "".join(f"    {path},\n" for path in named)
    return f"//! {header}\n\n/// {doc}\npub(super) static TABLE: &[{kind}] = &[\n{entries}];\n"
