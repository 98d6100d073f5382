//! Files by which a cluster knows its members: `gt cert` and `gt token`.

use gt_server::certificates::write_certificates as write;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(write_certificates, module)?)?;
    module.add_function(wrap_pyfunction!(new_token, module)?)?;
    Ok(())
}

/// Writes a certificate for a dispatcher on these hosts and its key into a folder, signed by the
/// authority there, which is made if there is none; returns true if it was.
#[pyfunction]
fn write_certificates(
    py: Python<'_>,
    folder: PathBuf,
    hosts: Vec<String>,
    days: u32,
) -> PyResult<bool> {
    let written = py.detach(|| write(&folder, &hosts, days));
    written.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Returns a new token of a user, and its line for the token file, which holds its hash.
#[pyfunction]
fn new_token(py: Python<'_>, name: &str) -> PyResult<(String, String)> {
    let made = py.detach(|| gt_server::new_token(name));
    made.map_err(|error| PyValueError::new_err(error.to_string()))
}
