//! `gt.autograd.detect_anomaly`: a backward that fails, or gives NaN, names the line of its forward.

use crate::client::session::{errors, site};
use crate::client::tape::{SharedNode, set_grad_enabled};
use crate::client::value::Tensor;
use crate::client::value::variable::Var;
use gt_protocol::rules::ErrorClass;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use std::ffi::CString;
use std::sync::atomic::{AtomicU8, Ordering};

const OFF: u8 = 0;
const ON: u8 = 1;
/// On, and every gradient is read to find NaNs.
const ON_WITH_NAN: u8 = 2;

static MODE: AtomicU8 = AtomicU8::new(OFF);

/// Turns anomaly detection on or off, for all threads.
#[pyfunction]
pub(crate) fn set_anomaly_mode(enabled: bool, check_nan: bool) {
    let mode = match (enabled, check_nan) {
        (false, _) => OFF,
        (true, false) => ON,
        (true, true) => ON_WITH_NAN,
    };
    MODE.store(mode, Ordering::Relaxed);
}

/// Returns two flags: anomaly detection is on, and every gradient is read.
#[pyfunction]
pub(crate) fn anomaly_mode() -> (bool, bool) {
    let mode = MODE.load(Ordering::Relaxed);
    (mode != OFF, mode == ON_WITH_NAN)
}

pub(super) fn is_on() -> bool {
    MODE.load(Ordering::Relaxed) != OFF
}

/// Reads a gradient and raises where it has a NaN.
pub(super) fn check(
    py: Python<'_>,
    node: &SharedNode,
    position: usize,
    grad: &Var,
) -> PyResult<()> {
    if MODE.load(Ordering::Relaxed) != ON_WITH_NAN {
        return Ok(());
    }
    let recorded = set_grad_enabled(false);
    let has_nan = || -> PyResult<bool> {
        let value = Var::new(py, grad.value(py)?, None);
        Tensor::wrap(py, value)?.call_method0("isnan")?.call_method0("any")?.is_truthy()
    };
    let has_nan = has_nan();
    set_grad_enabled(recorded);
    if !has_nan? {
        return Ok(());
    }
    let text =
        format!("Function '{}' returned nan values in its {position}th output.", node.name());
    Err(errors::mistake(py, ErrorClass::Runtime, text))
}

/// Warns with the call site of the forward of a node whose backward failed, and returns the error
/// unchanged.
pub(super) fn explain(py: Python<'_>, node: &SharedNode, error: PyErr) -> PyErr {
    if !is_on() {
        return error;
    }
    let place = site::name(py, node.site);
    let place = place.map_or("an unknown line".to_owned(), |place| format!("line {place}"));
    let text = format!(
        "Error detected in {}. The forward call that caused the error: {place}",
        node.name()
    );
    let Ok(text) = CString::new(text.replace('\0', " ")) else { return error };
    match PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1) {
        Ok(()) => error,
        Err(warning) => warning,
    }
}
