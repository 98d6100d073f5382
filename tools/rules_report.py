"""Ask the planner how each placement of each operand of each row propagates; write it as data.

    CUDA_VISIBLE_DEVICES= python tools/rules_report.py && python tools/gen.py

tests/operators/harness/rules.json holds all rules that apply to the samples, unruled.json the
placements that would be correct without moving data but have no rule; docs/ops.md is generated from
both. Needs no GPU and takes about half a minute.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/operators"), str(ROOT)]


def main() -> int:
    from harness import rules, validity

    with rules.session():
        table, unruled = rules.table(), validity.table()
    by_row = (f'"{row}": {{\n{_lines(lines)}\n}}' for row, lines in table.items())
    _write("rules.json", ",\n".join(by_row))
    _write("unruled.json", _lines(unruled))
    samples, open_ = sum(map(len, table.values())), sum(map(len, unruled.values()))
    print(f"{samples} samples of {len(table)} rows; {open_} placements are right without a rule")
    return 0


def _lines(entries: "dict[str, object]") -> str:
    """One line for each entry, so that a diff shows which one changed."""
    return ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())


def _write(name: str, text: str) -> None:
    path = ROOT / "tests/operators/harness" / name
    path.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
