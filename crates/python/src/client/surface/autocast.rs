//! The Python interface of autocast. `gt.amp` sets each operator's policy.

use crate::client::emission::autocast::{self, DEVICES, Policy, Region};
use crate::client::emission::emit;
use crate::client::surface::tensor::Tensor;
use crate::client::value::dtype::{self, PyDtype};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::HashMap;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(set_autocast_policies, module)?)?;
    module.add_function(wrap_pyfunction!(autocast_region, module)?)?;
    module.add_function(wrap_pyfunction!(set_autocast_region, module)?)?;
    module.add_function(wrap_pyfunction!(autocast_to, module)?)?;
    module.add_function(wrap_pyfunction!(forget_autocasts, module)?)?;
    Ok(())
}

/// A region as Python sees it: the index of the device's list, the lower dtype, and whether casts
/// of parameters are kept.
type PyRegion = (usize, Py<PyDtype>, bool);

/// Sets, for each operator of `PyTorch`, the policy of its operands on each type of device: lower,
/// float32, promote, or any other word for nothing.
#[pyfunction]
fn set_autocast_policies(py: Python<'_>, words: HashMap<String, [String; DEVICES]>) {
    let policy = |word: &String| match word.as_str() {
        "lower" => Policy::Lower,
        "float32" => Policy::Float32,
        "promote" => Policy::Promote,
        _ => Policy::Nothing,
    };
    autocast::set_policies(py, |op| {
        let schema = op.info().aten.split('.').next().unwrap_or_default();
        let found = words.get(schema).or_else(|| words.get(op.info().name));
        found.map_or([Policy::Nothing; DEVICES], |words| words.each_ref().map(policy))
    });
}

/// Region that this thread runs in; None outside of any autocast.
#[pyfunction]
fn autocast_region(py: Python<'_>) -> PyResult<Option<PyRegion>> {
    let region = autocast::region();
    region.map(|region| shown(py, region)).transpose()
}

fn shown(py: Python<'_>, region: Region) -> PyResult<PyRegion> {
    Ok((region.device, dtype::object(py, region.lower)?, region.keeps))
}

/// Sets the region that this thread runs in; returns the one before.
#[pyfunction]
#[pyo3(signature = (region))]
fn set_autocast_region(py: Python<'_>, region: Option<PyRegion>) -> PyResult<Option<PyRegion>> {
    let region =
        region.map(|(device, lower, keeps)| Region { device, lower: lower.get().0, keeps });
    if region.is_some_and(|region| region.device >= DEVICES) {
        return Err(PyValueError::new_err("no list of that number"));
    }
    autocast::set_region(region).map(|before| shown(py, before)).transpose()
}

/// `tensor` in `dtype`; a parameter is cast once in the outermost region. float64 and dtypes that
/// are not floats stay.
#[pyfunction]
fn autocast_to<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, Tensor>,
    dtype: &Bound<'py, PyDtype>,
) -> PyResult<Bound<'py, Tensor>> {
    let (var, dtype) = (&tensor.get().var, dtype.get().0);
    if autocast::changes(var.meta(py).dtype, dtype) {
        return Tensor::wrap(py, emit::autocast_to(py, var, dtype)?);
    }
    Ok(tensor.clone())
}

/// Drops the casts of parameters that are kept.
#[pyfunction]
fn forget_autocasts(py: Python<'_>) {
    autocast::forget(py);
}
