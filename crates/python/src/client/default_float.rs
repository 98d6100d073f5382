//! The dtype of floats that have none, `gt.set_default_dtype`, and what follows for operators.
//!
//! **Architecture invariant:** the rules and the wire know float32 only. Where another default would show, the integers
//! are cast here, at the user's line, so that an instruction means the same to everybody who reads it.

use super::alias::Var;
use super::dtype::{self, PyDtype};
use super::emit::{self, Arg};
use super::errors;
use super::gil_cell::GilCell;
use gt_protocol::rules::{self, ErrorClass, floats_by_default};
use gt_protocol::{Attr, Dims, Dtype, Meta, Op, Scalar};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

static DEFAULT: GilCell<Dtype> = GilCell::new(Dtype::DEFAULT);

pub(crate) fn default_float(py: Python<'_>) -> Dtype {
    *DEFAULT.get(py)
}

/// Whether the default is another one than the rules know.
pub(crate) fn is_other(py: Python<'_>) -> bool {
    default_float(py) != Dtype::DEFAULT
}

/// The dtype that Python floats and creation functions get from here on.
#[pyfunction]
pub(crate) fn set_default_dtype(py: Python<'_>, d: &Bound<'_, PyAny>) -> PyResult<()> {
    let Ok(dtype) = d.cast::<PyDtype>() else {
        let text =
            "invalid dtype object: only floating-point types are supported as the default type";
        return Err(errors::mistake(py, ErrorClass::Type, text));
    };
    let dtype = dtype.get().0;
    if !dtype.is_float() {
        let text = "only floating-point types are supported as the default type";
        return Err(errors::mistake(py, ErrorClass::Type, text));
    }
    *DEFAULT.get_mut(py) = dtype;
    Ok(())
}

/// The dtype that Python floats get.
#[pyfunction]
pub(crate) fn get_default_dtype(py: Python<'_>) -> PyResult<Py<PyDtype>> {
    dtype::object(py, default_float(py))
}

/// The metadata of results that depend on another default than float32; `None` where they do not.
pub(crate) fn results_of(
    py: Python<'_>,
    op: Op,
    operands: &[rules::Arg<'_>],
    attrs: &[Attr],
) -> Option<Result<rules::Outputs, rules::RuleError>> {
    let default = default_float(py);
    let floats = changed(default, op, operands)?;
    let metas: SmallVec<[Option<Meta>; 4]> = operands
        .iter()
        .enumerate()
        .map(|(place, operand)| match operand {
            rules::Arg::Value(meta) if is_set(floats, place) => Some(Meta::new(default, meta.dims)),
            rules::Arg::Scalar(_) if is_set(floats, place) => Some(Meta::new(default, Dims::EMPTY)),
            rules::Arg::Absent | rules::Arg::Value(_) | rules::Arg::Scalar(_) => None,
        })
        .collect();
    let cast: SmallVec<[rules::Arg<'_>; 4]> = operands
        .iter()
        .zip(&metas)
        .map(|(operand, meta)| meta.as_ref().map_or(*operand, rules::Arg::Value))
        .collect();
    Some(rules::infer(op, &cast, attrs))
}

/// The operands with those cast that become floats of another default than float32; `None` where none does.
pub(crate) fn cast(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    operands: &[rules::Arg<'_>],
) -> PyResult<Option<SmallVec<[Made; 4]>>> {
    let default = default_float(py);
    let Some(floats) = changed(default, op, operands) else { return Ok(None) };
    let mut made = SmallVec::new();
    for (place, arg) in args.iter().enumerate() {
        made.push(match arg {
            Arg::Absent => Made::Absent,
            Arg::Scalar(scalar) if is_set(floats, place) => {
                let attrs =
                    smallvec![Attr::Ints(Dims::EMPTY), Attr::Scalar(*scalar), Attr::Dtype(default)];
                Made::Var(emit::only(emit::emit(py, Op::Full, &[], attrs)?)?)
            }
            Arg::Scalar(scalar) => Made::Scalar(*scalar),
            Arg::Var(var) if is_set(floats, place) => {
                Made::Var(super::in_place::cast(py, var, default)?)
            }
            Arg::Var(var) => Made::Var(Arc::clone(var)),
        });
    }
    Ok(Some(made))
}

/// An operand that lives on its own.
pub(crate) enum Made {
    Absent,
    Scalar(Scalar),
    Var(Arc<Var>),
}

impl Made {
    pub(crate) fn as_arg(&self) -> Arg<'_> {
        match self {
            Self::Absent => Arg::Absent,
            Self::Scalar(scalar) => Arg::Scalar(*scalar),
            Self::Var(var) => Arg::Var(var),
        }
    }
}

fn changed(default: Dtype, op: Op, operands: &[rules::Arg<'_>]) -> Option<u16> {
    if default == Dtype::DEFAULT {
        return None;
    }
    Some(floats_by_default(op, operands)).filter(|floats| *floats != 0)
}

fn is_set(bits: u16, place: usize) -> bool {
    place < 16 && bits & (1 << place) != 0
}
