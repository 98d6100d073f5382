"""Outcomes as plain data, for results.json and the tests that hold it fresh; runs nothing."""

import json
from pathlib import Path
from typing import Any

import torch
from samples import SAMPLES
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from gt.worker.native import kernels as native_backend
from gt.worker.pytorch import kernels
from gt.worker.reference import kernels as reference
from harness.entries import ROWS, entries, row_of, title, why_not
from harness.outcome import Outcome

TORCH = torch.__version__.split("+")[0]  # without the build's name
RESULTS = Path(__file__).with_name("results.json")


def record(op: OpInfo, found: dict[str, Outcome]) -> dict[str, object]:
    """One entry: its row, [ran, total] and the refusals' reasons by kind, errors that rise late."""
    entry: dict[str, object] = {"row": row_of(op)}
    entry["samples"] = {kind: [outcome.ran, outcome.total] for kind, outcome in found.items()}
    refused = {kind: dict(outcome.refused) for kind, outcome in found.items() if outcome.refused}
    late = sum(outcome.late for outcome in found.values())
    return entry | ({"refused": refused} if refused else {}) | ({"late": late} if late else {})


def facts(name: str) -> dict[str, object]:
    """Facts on a row of the table: kernels, samples, a gradient for each operand."""
    native = [part for part, rows in native_backend.PARTS.items() if name in rows]
    return {
        "kernel": name in kernels.TORCH,
        "reference": name in reference.NUMPY,
        "native": native[0] if native else None,
        "samples": len(SAMPLES.get(name, [])),
        "gradients": _gradients(ROWS[name]),
    }


def _gradients(row: dict[str, Any]) -> list[bool]:
    """For each operand, whether it has a formula; empty for rows that end a graph."""
    names = [text.rstrip("?*") for text in row["inputs"]] if "gradient" in row else []
    return [name in row["gradient"] for name in names]


def missing() -> dict[str, str | None]:
    """Entries of op_db that GT has no counterpart of, and why, in op_db's order."""
    had = {title(op) for op in entries()}
    return {title(op): why_not(op) for op in op_db if title(op) not in had}


def write(found: dict[str, dict[str, object]]) -> None:
    """results.json: one line an entry and a row, so that a change shows which."""
    parts = [f'"torch": "{TORCH}"', f'"missing": {json.dumps(missing())}']
    for heading, table in (("rows", {name: facts(name) for name in ROWS}), ("entries", found)):
        lines = ",\n".join(f'"{name}": {json.dumps(row)}' for name, row in table.items())
        parts.append(f'"{heading}": {{\n{lines}\n}}')
    RESULTS.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
