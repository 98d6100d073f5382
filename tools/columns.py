"""Compiles the semantic columns of an operator's row of ops.toml to typed fields of Rust's
`OpInfo`. Facts are checked here, against the rest of the row. Standard library only.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import view_language

Row = dict[str, Any]

# Words of a row -> variants of Rust's enum.
DTYPES = {
    word: word.capitalize()
    for word in (
        "promote",
        "float",
        "bool",
        "first",
        "sum",
        "mean",
        "truth",
        "index",
    )
}
VIEWS = {"always": "Always", "overlapping": "Overlapping", "possible": "Possible"}
REDUCTIONS = {"sum": "Sum", "prod": "Prod", "max": "Max", "min": "Min"}
CATEGORIES = {"bool": "Bool", "int": "Integer", "float": "Float"}
# Example: minus self + other, if negative_slope >= 0.
TERM = re.compile(r"(?P<falls>-?)(?P<operands>\w+( \+ \w+)*)( if (?P<condition>.+))?")
CONDITION = re.compile(r"(?P<negated>not(?= ))? ?(?P<attr>\w+) ?(?P<test>>= 0|== 0)?")
TESTS = {"": "True", "not": "False", ">= 0": "NotNegative", "== 0": "Zero"}


def fields(row: Row) -> dict[str, str]:
    """Fields of `OpInfo` -> their Rust expressions, for the columns that the row has."""
    full = with_defaults(row)
    return {name: write(full, name) for name, write in WRITERS.items() if name in full}


def with_defaults(row: Row) -> Row:
    """The row with the defaults of its family for the columns that it omits."""
    names = operand_names(row)
    if row["family"] == "contract":
        return {"linear": names[:2], **row}
    if row["family"] == "reduce" and "reduce" in row:
        return {"combines": row["reduce"], **row}
    if "view" in row and "strided" not in row:
        _wrong(row, "a view says what its strides are: strided.strides")
    if row["family"] == "view":
        return {"selects": [" + ".join(names)], **row}
    return row


def operand_names(row: Row) -> list[str]:
    """Names of the row's operands, in order."""
    return [text.rstrip("?*") for text in row["inputs"]]


def attr_names(row: Row) -> list[str]:
    """Names of the row's attributes, in order."""
    return [text.split(":")[0] for text in row["attrs"]]


def _wrong(row: Row, text: str) -> NoReturn:
    sys.exit(f"ops.toml: {row['name']}: {text}")


def _place(row: Row, column: str, name: str, names: list[str]) -> int:
    if name not in names:
        _wrong(row, f"{column} names one of {', '.join(names)}, not {name!r}")
    return names.index(name)


def _variant(enum: str, words: dict[str, str]) -> Callable[[Row, str], str]:
    def written(row: Row, column: str) -> str:
        if row[column] not in words:
            _wrong(row, f"{column} is one of {', '.join(words)}")
        return f"{enum}::{words[row[column]]}"

    return written


def _optional(write: Callable[[Row, str], str]) -> Callable[[Row, str], str]:
    return lambda row, column: f"Some({write(row, column)})"


def _bool(row: Row, column: str) -> str:
    return str(row[column]).lower()


def _weight(row: Row, column: str) -> str:
    """The dims of the weight that are summed over and kept, from the index equation."""
    terms, _, result = row.get("index", "").partition("->")
    operand = _place(row, column, row[column], operand_names(row))
    letters = terms.split(",")[operand].lstrip(".") if terms else ""
    stays = [letter in result for letter in letters]
    if sorted(stays) != [False, True]:
        _wrong(row, "a weight has one dimension that its index equation sums over, and another")
    summed, stays_place = stays.index(False), stays.index(True)
    return f"Some(WeightInfo {{ operand: {operand}, in_dim: {summed}, out_dim: {stays_place} }})"


def _refuses(row: Row, column: str) -> str:
    wrong = set(row[column]["dtypes"]) - set(CATEGORIES)
    if wrong:
        _wrong(row, f"{column}: dtypes are among {', '.join(CATEGORIES)}")
    listed = ", ".join(f"Category::{CATEGORIES[kind]}" for kind in row[column]["dtypes"])
    return f'Some(UnsupportedDtypes {{ dtypes: &[{listed}], text: "{row[column]["text"]}" }})'


def _like(row: Row, column: str) -> str:
    if row[column] in attr_names(row):
        return f"Some(Like::Named({attr_names(row).index(row[column])}))"
    camel = "".join(part.capitalize() for part in row[column].split("_"))
    return f"Some(Like::Always(Op::{camel}))"


def _strided(row: Row, column: str) -> str:
    if "view" not in row:
        _wrong(row, "strided is for views")
    return view_language.strided(row, column)


def _terms(row: Row, column: str) -> str:
    return f"&[{', '.join(_term(row, column, text) for text in row[column])}]"


def _term(row: Row, column: str, text: str) -> str:
    term = TERM.fullmatch(text)
    if not term:
        _wrong(row, f"{column}: no term: {text!r}")
    names = operand_names(row)
    places = [_place(row, column, name, names) for name in term["operands"].split(" + ")]
    mask = sum(1 << place for place in places)
    condition = "None"
    if term["condition"]:
        tested = CONDITION.fullmatch(term["condition"])
        if not tested or (tested["negated"] and tested["test"]):
            _wrong(row, f"{column}: no condition: {term['condition']!r}")
        attr = _place(row, column, tested["attr"], attr_names(row))
        test = TESTS[tested["negated"] or tested["test"] or ""]
        condition = f"Some(Condition {{ attr: {attr}, test: AttrTest::{test} }})"
    falls = str(bool(term["falls"])).lower()
    return f"OperandGroup {{ operands: {mask:#b}, falls: {falls}, condition: {condition} }}"


def _fills(row: Row, column: str) -> str:
    if row[column] == "0":
        return "Fill::Zero"
    return f"Fill::Attr({_place(row, column, row[column], attr_names(row))})"


WRITERS: dict[str, Callable[[Row, str], str]] = {
    "dtype": _variant("DtypeRule", DTYPES),
    "refuses": _refuses,
    "function": lambda row, column: json.dumps(row[column]),
    "complex": _bool,
    "nonempty": _bool,
    "running": _bool,
    "grouped": _bool,
    "chains": _bool,
    "strided": _strided,
    "view": _optional(_variant("ViewKind", VIEWS)),
    "weight": _weight,
    "commutes": _bool,
    "payload": _bool,
    "like": _like,
    "linear": _terms,
    "monotone": _terms,
    "selects": _terms,
    "fills": _fills,
    "reduce": _optional(_variant("ReduceOp", REDUCTIONS)),
    "combines": _optional(_variant("ReduceOp", REDUCTIONS)),
}
