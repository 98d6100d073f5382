"""Python's operators of the tensor class, from the column `operator` of ops.toml."""

from columns import Row

UNARY = ("__neg__", "__abs__", "__invert__")
COMPARISONS = ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__")
# PyTorch has no `@=`.
WITHOUT_IN_PLACE = ("__matmul__",)


def methods(header: str, rows: list[Row]) -> str:
    """The text of the Rust file."""
    named = [(name, row) for row in rows for name in row["operator"]]
    compared = "".join(
        f"CompareOp::{name.strip('_').capitalize()} => Op::{_camel(row)},\n"
        for name, row in named
        if name in COMPARISONS
    )
    others = "".join(_method(name, row) for name, row in named if name not in COMPARISONS)
    return f"""//! {header}
#![allow(clippy::all, clippy::pedantic, reason = "generated")]

use crate::client::emission::emit::{{self, Arg}};
use super::tensor::{{Tensor, binary, in_place}};
use gt_protocol::Op;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use smallvec::SmallVec;

#[pymethods]
impl Tensor {{
{others}
    fn __richcmp__(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, PyAny>,
        compare: CompareOp,
    ) -> PyResult<Py<PyAny>> {{
        let op = match compare {{
            {compared}
        }};
        binary(slf, other, op, false)
    }}
}}
"""


def _camel(row: Row) -> str:
    return "".join(part.capitalize() for part in row["name"].split("_"))


def _method(name: str, row: Row) -> str:
    op = f"Op::{_camel(row)}"
    if name in UNARY:
        return f"""
    fn {name}<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {{{_check(row)}
        emit::tensor(slf.py(), {op}, &[Arg::Var(&slf.get().var)], SmallVec::new())
    }}
"""
    modulo = "_modulo: &Bound<'_, PyAny>" if name.endswith("pow__") else ""
    head = f"slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>, {modulo}"
    reflected = name == reflection(row["operator"][0])
    exchanged = str(reflected and not row.get("commutes", False)).lower()
    text = f"""
    fn {name}({head}) -> PyResult<Py<PyAny>> {{
        binary(slf, other, {op}, {exchanged})
    }}
"""
    if reflected or name in WITHOUT_IN_PLACE:
        return text
    return f"""{text}
    fn __i{name[2:]}({head}) -> PyResult<()> {{
        in_place(slf, other, {op})
    }}
"""


def _check(row: Row) -> str:
    """The check that the column `integral` requires before the instruction."""
    if "integral" not in row:
        return ""
    return f"""
        if slf.get().var.meta(slf.py()).dtype.is_differentiable() {{
            return Err(pyo3::exceptions::PyTypeError::new_err("{row["integral"]}"));
        }}"""


def reflection(name: str) -> str:
    """Name of the method that Python calls on the right operand: __radd__ for __add__."""
    return f"__r{name[2:]}"
