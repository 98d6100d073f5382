"""The text of docs/ops.md, from ops.toml and the harness's results.json. Standard library.

Its sections on placements and on the native backend come from placements_page.py and
native_page.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]  # TOML's and JSON's values, of any type

VALUE_KINDS = (
    "float32", "float64", "int64", "bool", "bfloat16", "float16", "complex64", "complex128",
    "in place",
)  # fmt: skip
# Column titles of the page -> keys of results.json that tell whether a row has such a kernel.
KERNELS = {"torch": "kernel", "numpy": "reference", "native": "native"}
UNCOMPUTED = ("generic", "control", "collective")
HEAD = """# Operators

<!-- {header} -->

Every row of `ops.toml`, and how it fares against PyTorch {torch}. GT has **{had} of the {entries}
entries** of PyTorch's `op_db` by name, and **{running} run** ([Coverage](coverage.md); of
the other {idle} each sample is refused, or PyTorch has none in GT's dtypes);
[the {lacked} that it lacks](#entries-of-op_db-that-gt-lacks) stand at the end.
`tests/operators/test_op_db.py` drives each entry that GT has, in float32, float64 (in views),
int64, bool, bfloat16 and float16, in place, for gradients and for error inputs. **None is wrong**;
of the float32 samples of the entries that are a row of the table {ran} of {total} run, the others
are [listed with the reason](#samples-that-are-refused). Entries that have no row run by PyTorch's
schema, whole, on workers with torch ([how](decisions/generic.md)); the float samples of the others
run on the numpy backend too.

*Signature*: PyTorch's method where there is one, else the row's operands and attributes, as
`gt._core.call` takes them. *Dtype*: `promote` PyTorch's lattice, `float` integers become float32,
`bool`, `first` the first operand's; or a product's index equation. *Saves*: what the backward pass
reads again. *Gradient*: for which operands. *Kernels*: torch, the numpy reference, and `native`
where a worker without PyTorch has a quicker one [for most operands](#the-native-backend).
*Samples*: values, and gradients, that ran of those that PyTorch has; `own` counts the project's
samples, on which the kernels must agree.
"""
REFUSED = """
## Samples that are refused

GT raises an error that says so; `argument:` means that the harness has no counterpart in GT for
what the sample passes.

"""
MISSING = """
## Entries of op_db that GT lacks

{lacked} of {entries}:

| entry | why |
| --- | --- |
{reasons}"""
TAIL = """
## Where GT differs on purpose

- Random numbers are GT's own (Philox): of those only dtypes and shapes are compared.
- `out=` is not taken: results are values, and `x.copy_(y)` writes one into a tensor.
- Results are contiguous and memory formats mean nothing, so `view` can succeed where PyTorch wants
  `reshape`.
- `multinomial` does not read its probabilities in order to refuse some.
- `as_strided` gives a copy, of tensors that are no views; `empty_strided` and `empty_permuted` are
  contiguous; views of a tensor keep what they were when `resize_` gives it a new shape.
- What PyTorch reads in order to refuse it is not read: negative variances of `gaussian_nll_loss`
  count as `eps`.
- `as_strided_scatter`'s gradient by its first operand is that of the elements that stay.
- The index that `kthvalue` and `median` give among equal values is the first one; PyTorch's is
  unspecified.
"""


def page(header: str, rows: Sequence[Row], results: Row, sections: Sequence[str]) -> str:
    """The whole page, including the sections on the native backend and on placements."""
    by_row: dict[str, list[Row]] = defaultdict(list)
    for title, entry in results["entries"].items():
        by_row[entry["row"]].append({"title": title, **entry})
    ran, total = counts((e for name, es in by_row.items() if name for e in es), ["float32"])
    had, lacked = len(results["entries"]), len(results["missing"])
    idle = sum(not counts([entry], VALUE_KINDS)[0] for entry in results["entries"].values())
    counted = {"had": had, "lacked": lacked, "entries": had + lacked, "ran": ran, "total": total}
    counted |= {"idle": idle, "running": had - idle}
    parts = [HEAD.format(header=header, torch=results["torch"], **counted)]
    for family in dict.fromkeys(row["family"] for row in rows):
        members = [row for row in rows if row["family"] == family]
        parts.append(family_table(family, members, results["rows"], by_row))
    by_name = composed(by_row[None])  # type: ignore[index]
    reasons = "".join(f"| `{name}` | {why} |\n" for name, why in results["missing"].items())
    lacking = MISSING.format(**counted, reasons=reasons)
    parts += [*sections, by_name, refusals(results["entries"]), lacking, TAIL]
    return "".join(parts)


def counts(entries: Iterable[Row], kinds: Sequence[str]) -> tuple[int, int]:
    """Number of samples that ran, and of all samples."""
    pairs = [e["samples"][kind] for e in entries for kind in kinds if kind in e["samples"]]
    return sum(ran for ran, _ in pairs), sum(total for _, total in pairs)


def share(entries: Sequence[Row], kinds: Sequence[str]) -> str:
    """Text such as `11/12`, or a dash where there are no samples."""
    ran, total = counts(entries, kinds)
    return f"{ran}/{total}" if total else "-"


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    cells = [heads, ["---"] * len(heads), *lines]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in cells
    )


def family_table(
    family: str, members: Sequence[Row], facts: Row, by_row: Mapping[str, Sequence[Row]]
) -> str:
    if family in UNCOMPUTED:
        lines = [
            [f"`{row['name']}`", f"{row['code']:#06x}", code(signature(row)), row["doc"]]
            for row in members
        ]
        return f"\n## {family}\n\n" + table(
            ["operator", "code", "signature", "what it does"], lines
        )
    heads = [
        "operator",
        "code",
        "signature",
        "dtype",
        "saves",
        "gradient",
        "kernels",
        "samples",
        "what it does",
    ]
    lines = [line(row, facts.get(row["name"], {}), by_row.get(row["name"], [])) for row in members]
    return f"\n## {family}\n\n" + table(heads, lines)


def line(row: Row, fact: Row, entries: Sequence[Row]) -> list[str]:
    operands = [text.rstrip("?*") for text in row["inputs"]]
    rules = fact.get("gradients", [])
    smooth = [name for name, rule in zip(operands, rules, strict=False) if rule]
    values, gradients = share(entries, VALUE_KINDS), share(entries, ["gradients"])
    kernels = [word for word, key in KERNELS.items() if fact.get(key)]
    return [
        f"`{row['name']}`",
        f"{row['code']:#06x}",
        code(signature(row)),
        code(row.get("index") or row.get("dtype", "")),
        ", ".join(row["saves"]) or "-",
        ", ".join(smooth) or "none",
        ", ".join(kernels) or "-",
        f"{values}, {gradients}; own {fact.get('samples', 0)}",
        row["doc"],
    ]


def code(text: str) -> str:
    return f"`{text}`" if text else "-"


def signature(row: Row) -> str:
    if "python" in row:
        return f"x.{row['name']}({row['python']})"
    names = [*row["inputs"], *(text.split(":")[0] for text in row["attrs"])]
    return f"{row['name']}({', '.join(names)})"


def composed(entries: Sequence[Row]) -> str:
    lines = [
        [
            f"`{entry['title']}`",
            share([entry], VALUE_KINDS),
            share([entry], ["gradients"]),
            share([entry], ["errors"]),
        ]
        for entry in sorted(entries, key=lambda entry: str(entry["title"]))
    ]
    intro = "\n## Functions composed of these rows\n\nBy the names of op_db's entries.\n\n"
    return intro + table(["function", "values", "gradients", "errors"], lines)


def refusals(entries: Mapping[str, Row]) -> str:
    groups: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for title, entry in entries.items():
        for kind, reasons in entry.get("refused", {}).items():
            for reason, count in reasons.items():
                groups[title, reason].append((kind, count))
    lines = [
        [f"`{title}`", ", ".join(f"{count} {kind}" for kind, count in kinds), reason]
        for (title, reason), kinds in sorted(groups.items())
    ]
    return REFUSED + table(["entry", "samples", "reason"], lines)
