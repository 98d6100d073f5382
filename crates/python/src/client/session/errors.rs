//! Python exceptions: the classes of gt/errors.py, chosen by the kind of error.

use super::site;
use crate::client::connection::answers::Failed;
use gt_protocol::message::FailureClass;
use gt_protocol::rules::{ErrorClass, RuleError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::ffi::CString;

/// The class `name` of gt.errors.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("gt.errors").map(Bound::unbind))?;
    Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?)
}

fn raise(py: Python<'_>, name: &str, text: String) -> PyErr {
    match class(py, name) {
        Ok(class) => PyErr::from_type(class, text),
        Err(error) => error,
    }
}

/// A mistake found at the user's line.
pub(crate) fn of_rule(py: Python<'_>, error: &RuleError) -> PyErr {
    let name = match error.class {
        ErrorClass::Runtime => "InvalidUse",
        ErrorClass::Shape => "ShapeError",
        ErrorClass::Dtype => "DtypeError",
        ErrorClass::Index => "IndexOutOfRange",
        ErrorClass::Value => "InvalidValue",
        ErrorClass::Type => "InvalidType",
        ErrorClass::UnsupportedDtype => "UnsupportedDtype",
    };
    raise(py, name, error.text.clone())
}

/// A gradient that does not exist.
pub(crate) fn not_differentiable(py: Python<'_>, text: impl Into<String>) -> PyErr {
    raise(py, "NotDifferentiable", text.into())
}

/// The error for an operator for which `PyTorch` raises `NotImplementedError` with this name.
pub(crate) fn derivative_not_implemented(py: Python<'_>, name: &str) -> PyErr {
    let text = format!("the derivative for '{name}' is not implemented.");
    raise(py, "DerivativeNotImplemented", text)
}

/// The exception for a failure on a worker, raised at the first read: it names the line of the
/// original operation and the advice.
pub(crate) fn of_failure(py: Python<'_>, failed: &Failed, advice: Option<&str>) -> PyErr {
    let name = match failed.class {
        FailureClass::Shape => "ShapeError",
        FailureClass::Dtype => "DtypeError",
        FailureClass::Index => "IndexOutOfRange",
        FailureClass::Value => "InvalidValue",
        FailureClass::Type => "InvalidType",
        FailureClass::NotImplemented => "NotSupported",
        FailureClass::OutOfMemory => "OutOfMemoryError",
        FailureClass::Protocol => "ConnectionLost",
        FailureClass::LinearAlgebra => "LinAlgError",
        FailureClass::Cancelled => "CancelledError",
        FailureClass::Runtime
        | FailureClass::WorkerLost
        | FailureClass::Quota
        | FailureClass::Internal => "WorkerError",
    };
    let advice = advice.map(|advice| format!("\n  {advice}")).unwrap_or_default();
    raise(py, name, describe(py, failed) + &advice)
}

/// `index out of range; gather, from train.py:42`.
pub(crate) fn describe(py: Python<'_>, failed: &Failed) -> String {
    let place = site::name(py, failed.site);
    let op = failed.op.map(|op| op.info().name);
    match (op, place) {
        (Some(op), Some(place)) => format!("{}\n  in `{op}`, called at {place}", failed.text),
        (Some(op), None) => format!("{}\n  in `{op}`", failed.text),
        // The operator of an old instruction is not kept, its line is.
        (None, Some(place)) => format!("{}\n  made at {place}", failed.text),
        (None, None) => failed.text.clone(),
    }
}

pub(crate) fn connection_lost(py: Python<'_>, reason: &str) -> PyErr {
    raise(py, "ConnectionLost", format!("the connection to the dispatcher is gone: {reason}"))
}

/// The error where the dispatcher has no worker to execute instructions.
pub(crate) fn no_worker(py: Python<'_>, text: String) -> PyErr {
    raise(py, "NoWorker", text)
}

/// The error where no connection could be made.
pub(crate) fn unreachable(py: Python<'_>, reason: &str) -> PyErr {
    raise(py, "ConnectionLost", format!("gt.connect: {reason}"))
}

pub(crate) fn after_fork() -> PyErr {
    PyRuntimeError::new_err(
        "gt was used before this process was forked; its connection belongs to the parent. \
         Use the 'spawn' start method, or touch gt only in the parent",
    )
}

/// Logs a warning to the logger `gt`, for the user.
pub(crate) fn announce(py: Python<'_>, text: &str) -> PyResult<()> {
    py.import("gt.notices")?.call_method1("say", (text,))?;
    Ok(())
}

/// Logs progress to the logger `gt`, for the user.
pub(crate) fn announce_progress(py: Python<'_>, text: &str) -> PyResult<()> {
    let notices = py.import("gt.notices")?;
    notices.call_method1("say", (text, notices.getattr("INFO")?))?;
    Ok(())
}

/// A warning at the line of the instruction that failed.
pub(crate) fn warn(py: Python<'_>, site: u32, text: &str) -> PyResult<()> {
    let category = class(py, "UnreadFailureWarning")?.into_any();
    let text = CString::new(text.replace('\0', " "))?;
    let place = site::place(py, site);
    let Some((file, line)) = place else { return PyErr::warn(py, &category, &text, 1) };
    let file = CString::new(file)?;
    // Called without a registry, which would suppress the second failure of a line; each failure is
    // reported only once anyway.
    PyErr::warn_explicit(py, &category, &text, &file, line, None, None)
}

/// The exception for a user's mistake that no rule covers, with `PyTorch`'s class and text.
pub(crate) fn mistake(py: Python<'_>, class: ErrorClass, text: impl Into<String>) -> PyErr {
    of_rule(py, &RuleError { class, text: text.into() })
}
