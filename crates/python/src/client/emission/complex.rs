//! Operators of complex numbers. A row whose column `complex` is set takes them as it takes real
//! ones; for all others the generic row is used, with which a worker runs PyTorch's own operator:
//! values, dtypes, errors and gradients are PyTorch's.
//!
//! Real numbers pay nothing for this: instructions in the inference cache need no check, and the
//! cache never holds an instruction with complex operands that its row refuses.

use super::Arg;
use super::convert::scalar_object;
use super::operands::of_operands;
use super::upload;
use crate::client::session::errors;
use crate::client::value::Tensor;
use crate::client::value::dtype;
use crate::client::value::variable::Vars;
use gt_protocol::rules::{self, ErrorClass};
use gt_protocol::{Attr, AttrKind, Dims, Dtype, Op, OperandKind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyComplex, PyDict, PyList, PyTuple};

/// Returns true if an instruction must be emitted as the generic row.
pub(crate) fn is_generic(py: Python<'_>, op: Op, args: &[Arg<'_>], attrs: &[Attr]) -> bool {
    args.iter().any(|arg| matches!(arg, Arg::Complex(_) | Arg::Large(_)))
        || of_operands(py, args, |operands| rules::is_real_only(op, operands, attrs))
}

/// Emits PyTorch's operator in place of the row `op`: operands and attributes are passed by their
/// names.
#[cold]
pub(crate) fn emit(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
    vars: &mut Vars,
) -> PyResult<()> {
    static CALL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let call = CALL.get_or_try_init(py, || {
        py.import("gt.aten.rows")?.getattr("call_row").map(Bound::unbind)
    })?;
    let named = named(py, op, args, attrs)?;
    let results = call.bind(py).call1((op.info().name, op.info().aten, named))?;
    if let Ok(tensor) = results.cast::<Tensor>() {
        vars.push(tensor.get().var.clone());
        return Ok(());
    }
    for result in results.cast::<PyTuple>()?.iter() {
        vars.push(result.cast::<Tensor>()?.get().var.clone());
    }
    Ok(())
}

fn named<'py>(
    py: Python<'py>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
) -> PyResult<Bound<'py, PyDict>> {
    let info = op.info();
    let named = PyDict::new(py);
    for (place, operand) in info.operands.iter().enumerate() {
        if operand.kind == OperandKind::List {
            let rest = args.get(place..).unwrap_or_default();
            let values =
                rest.iter().map(|arg| operand_object(py, arg)).collect::<PyResult<Vec<_>>>()?;
            named.set_item(operand.name, PyList::new(py, values)?)?;
        } else if let Some(arg) = args.get(place) {
            named.set_item(operand.name, operand_object(py, arg)?)?;
        }
    }
    for (row, attr) in info.attrs.iter().zip(attrs) {
        named.set_item(row.name, attr_object(py, row.kind, attr)?)?;
    }
    Ok(named)
}

fn operand_object<'py>(py: Python<'py>, arg: &Arg<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match arg {
        Arg::Absent => py.None().into_bound(py),
        Arg::Scalar(scalar) => scalar_object(py, *scalar)?,
        Arg::Complex([real, imag]) => PyComplex::from_doubles(py, *real, *imag).into_any(),
        Arg::Large(number) => number.into_pyobject(py)?.into_any(),
        Arg::Var(var) => Tensor::wrap(py, (*var).clone())?.into_any(),
    })
}

fn attr_object<'py>(py: Python<'py>, kind: AttrKind, attr: &Attr) -> PyResult<Bound<'py, PyAny>> {
    Ok(match attr {
        Attr::Absent => py.None().into_bound(py),
        Attr::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Attr::Int(value) => value.into_pyobject(py)?.into_any(),
        Attr::Float(value) => value.into_pyobject(py)?.into_any(),
        Attr::Scalar(value) => scalar_object(py, *value)?,
        Attr::Dtype(named) => dtype::object(py, *named)?.into_bound(py).into_any(),
        Attr::Ints(dims) => PyList::new(py, dims.as_slice())?.into_any(),
        Attr::List(values) => PyList::new(py, values.iter())?.into_any(),
        Attr::Text(text) => text.into_pyobject(py)?.into_any(),
        Attr::Choice(place) => {
            let AttrKind::Choice(words) = kind else {
                return Err(PyTypeError::new_err("a choice of no list of words"));
            };
            words.get(usize::from(*place)).into_pyobject(py)?.into_any()
        }
    })
}

/// A complex number as a tensor without dimensions, of a complex dtype.
pub(crate) fn number(
    py: Python<'_>,
    [real, imag]: [f64; 2],
    dtype: Dtype,
) -> PyResult<Bound<'_, Tensor>> {
    #[allow(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        reason = "rounding is intended"
    )]
    let bytes: Vec<u8> = match dtype {
        Dtype::C128 => [real, imag].into_iter().flat_map(f64::to_le_bytes).collect(),
        Dtype::C64 => {
            [real, imag].into_iter().flat_map(|part| (part as f32).to_le_bytes()).collect()
        }
        real => {
            let text = format!(
                "value cannot be converted to type {} without overflow",
                rules::stored_name(real)
            );
            return Err(errors::mistake(py, ErrorClass::Runtime, text));
        }
    };
    upload::from_bytes(py, &bytes, Dims::EMPTY, dtype)
}
