//! The default dtype of floats, `gt.set_default_dtype`, and its effect on operators.
//!
//! **Architecture invariant:** the rules and the wire know float32 only. Where another default
//! would matter, the integer operands are cast here, at the user's line, so that an instruction
//! means the same to every reader.

use crate::client::gil_cell::GilCell;
use crate::client::session::errors;
use crate::client::value::dtype::{self, PyDtype};
use gt_protocol::rules::{self, ErrorClass, floats_by_default};
use gt_protocol::{Attr, Dims, Dtype, Meta, Op};
use pyo3::prelude::*;
use smallvec::SmallVec;

static DEFAULT: GilCell<Dtype> = GilCell::new(Dtype::DEFAULT);

pub(crate) fn default_float(py: Python<'_>) -> Dtype {
    *DEFAULT.get(py)
}

/// Returns true if the default dtype is not the one that the rules assume.
pub(crate) fn is_other(py: Python<'_>) -> bool {
    default_float(py) != Dtype::DEFAULT
}

/// Sets the dtype that Python floats and creation functions get from here on.
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
    operands: &[rules::RuleArg<'_>],
    attrs: &[Attr],
) -> Option<Result<rules::Outputs, rules::RuleError>> {
    let default = default_float(py);
    let floats = floats(py, op, operands)?;
    let metas: SmallVec<[Option<Meta>; 4]> = operands
        .iter()
        .enumerate()
        .map(|(place, operand)| match operand {
            rules::RuleArg::Value(meta) if is_set(floats, place) => {
                Some(Meta::new(default, meta.dims))
            }
            rules::RuleArg::Scalar(_) if is_set(floats, place) => {
                Some(Meta::new(default, Dims::EMPTY))
            }
            rules::RuleArg::Absent | rules::RuleArg::Value(_) | rules::RuleArg::Scalar(_) => None,
        })
        .collect();
    let cast: SmallVec<[rules::RuleArg<'_>; 4]> = operands
        .iter()
        .zip(&metas)
        .map(|(operand, meta)| meta.as_ref().map_or(*operand, rules::RuleArg::Value))
        .collect();
    Some(rules::infer(op, &cast, attrs))
}

/// Bit mask of the operands that are cast to a default float dtype other than float32; `None` where
/// none is.
pub(crate) fn floats(py: Python<'_>, op: Op, operands: &[rules::RuleArg<'_>]) -> Option<u16> {
    let default = default_float(py);
    if default == Dtype::DEFAULT {
        return None;
    }
    Some(floats_by_default(op, operands)).filter(|floats| *floats != 0)
}

fn is_set(bits: u16, place: usize) -> bool {
    place < 16 && bits & (1 << place) != 0
}
