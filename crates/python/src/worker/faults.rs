//! Conversion of kernels' exceptions to faults.

use gt_protocol::message::FailureClass;
use gt_worker::Fault;
use pyo3::exceptions::{
    PyConnectionError, PyIndexError, PyMemoryError, PyNotImplementedError, PyTypeError,
    PyValueError,
};
use pyo3::prelude::*;

/// Texts by which torch's host allocator reports a lack of memory: its exception class is a general
/// one.
const ALLOCATOR_TEXTS: [&str; 2] =
    ["DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory"];

/// The fault of an exception, without the traceback in the worker. `out_of_memory` is true if its
/// class is the backend's for a lack of memory.
pub(super) fn of(py: Python<'_>, error: &PyErr, out_of_memory: bool) -> Fault {
    let text = error.value(py).to_string();
    let refused = ALLOCATOR_TEXTS.iter().any(|words| text.contains(words));
    let class = if out_of_memory || refused || error.is_instance_of::<PyMemoryError>(py) {
        FailureClass::OutOfMemory
    } else if is_linear_algebra(py, error) {
        FailureClass::LinearAlgebra
    } else if error.is_instance_of::<PyConnectionError>(py) {
        FailureClass::WorkerLost
    } else if error.is_instance_of::<PyIndexError>(py) {
        FailureClass::Index
    } else if error.is_instance_of::<PyTypeError>(py) {
        FailureClass::Type
    } else if error.is_instance_of::<PyValueError>(py) {
        FailureClass::Value
    } else if error.is_instance_of::<PyNotImplementedError>(py) {
        FailureClass::NotImplemented
    } else {
        FailureClass::Runtime
    };
    // The rest of the text is torch's C++ stack.
    let end = text.find("\nException raised from").unwrap_or(text.len());
    Fault::new(class, text.get(..end).unwrap_or_default())
}

/// Returns true for torch's class or numpy's, compared by name: neither module is imported for
/// this.
fn is_linear_algebra(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).name().is_ok_and(|name| name.to_string().ends_with("LinAlgError"))
}
