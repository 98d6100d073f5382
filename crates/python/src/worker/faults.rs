//! Exceptions of kernels as faults.

use gt_protocol::message::FailureClass;
use gt_worker::Fault;
use pyo3::exceptions::{
    PyConnectionError, PyIndexError, PyMemoryError, PyNotImplementedError, PyTypeError,
    PyValueError,
};
use pyo3::prelude::*;

/// How torch's allocator for the host's memory says that there is none: by its words, for the class is the same as any other's.
const ALLOCATOR_TEXTS: [&str; 2] =
    ["DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory"];

/// What an exception says, without where in the worker it was raised. `out_of_memory`: its class is the backend's for that.
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
    // What follows is torch's C++ stack.
    let end = text.find("\nException raised from").unwrap_or(text.len());
    Fault::new(class, text.get(..end).unwrap_or_default())
}

/// torch's class or numpy's, by its name: neither is loaded for this.
fn is_linear_algebra(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).name().is_ok_and(|name| name.to_string().ends_with("LinAlgError"))
}
