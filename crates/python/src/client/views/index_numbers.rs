//! Numbers in an index that are neither all integers of 64 bits nor all bools: `PyTorch` makes
//! integers of them.

use crate::client::emission::convert::integer;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat};

/// An array of int64 with the numbers of `index`, an array or nested lists. Floats lose their
/// fraction.
///
/// # Errors
/// A `ValueError` for an integer past 64 bits, a `RuntimeError` for a float past them, for NaN and
/// for an object that is no number, a `TypeError` for a complex number.
pub(super) fn of<'py>(index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let numpy = index.py().import("numpy")?;
    if index.is_instance(&numpy.getattr("ndarray")?)? {
        return numpy.getattr("real")?.call1((index,))?.call_method1("astype", ("int64",));
    }
    let objects = numpy.call_method1("array", (index, "object"))?;
    let numbers = objects
        .call_method0("ravel")?
        .call_method0("tolist")?
        .try_iter()?
        .map(|number| whole(&number?))
        .collect::<PyResult<Vec<i64>>>()?;
    let array = numpy.call_method1("array", (numbers, "int64"))?;
    array.call_method1("reshape", (objects.getattr("shape")?,))
}

/// The integer that `PyTorch` stores for one number of a list.
fn whole(number: &Bound<'_, PyAny>) -> PyResult<i64> {
    if number.is_instance_of::<PyBool>() {
        return Ok(number.is_truthy()?.into());
    }
    if number.is_instance_of::<PyFloat>() {
        let whole = number.call_method0("__trunc__").and_then(|whole| whole.extract());
        return whole.map_err(|_| {
            PyRuntimeError::new_err("value cannot be converted to type int64 without overflow")
        });
    }
    let generic = number.py().import("numpy")?.getattr("generic")?;
    if number.hasattr("__index__")?
        || number.hasattr("__complex__")?
        || number.is_instance(&generic)?
    {
        return integer(number);
    }
    let class = number.get_type().name()?.to_string();
    Err(PyRuntimeError::new_err(format!("Could not infer dtype of {class}")))
}
