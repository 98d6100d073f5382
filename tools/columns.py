"""What an operator means, from its row of ops.toml to typed fields of Rust's `OpInfo`.
Facts are checked here, against the rest of the row. Standard library only.
"""

import sys
from typing import Any

Row = dict[str, Any]

# What a row may say -> the variant of Rust's enum.
VIEWS = {"always": "Always", "overlapping": "Overlapping", "possible": "Possible"}


def fields(row: Row) -> dict[str, str]:
    """Field of `OpInfo` -> its Rust expression, for the columns that the row has."""
    written = {"view": _view, "weight": _weight}
    return {name: write(row) for name, write in written.items() if name in row}


def operand_names(row: Row) -> list[str]:
    """The names of its operands, in order."""
    return [text.rstrip("?*") for text in row["inputs"]]


def _wrong(row: Row, text: str) -> str:
    sys.exit(f"ops.toml: {row['name']}: {text}")


def _word(row: Row, column: str, words: dict[str, str]) -> str:
    word = row[column]
    return words[word] if word in words else _wrong(row, f"{column} is one of {', '.join(words)}")


def _view(row: Row) -> str:
    return f"Some(View::{_word(row, 'view', VIEWS)})"


def _weight(row: Row) -> str:
    """Which dimension of the weight is summed over and which one stays, by the index equation."""
    terms, _, result = row.get("index", "").partition("->")
    names = operand_names(row)
    if row["weight"] not in names:
        _wrong(row, f"weight names one of {', '.join(names)}")
    operand = names.index(row["weight"])
    letters = terms.split(",")[operand].lstrip(".") if terms else ""
    stays = [letter in result for letter in letters]
    if sorted(stays) != [False, True]:
        _wrong(row, "a weight has one dimension that its index equation sums over, and another")
    summed, kept = stays.index(False), stays.index(True)
    return f"Some(WeightInfo {{ operand: {operand}, in_dim: {summed}, out_dim: {kept} }})"
