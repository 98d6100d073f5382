//! The session: its beginning and end, and information about it.

use super::published;
use crate::client::connection::dial::dial;
use crate::client::connection::greeting::Credentials;
use crate::client::emission::read;
use crate::client::session::{errors, runtime, spawn};
use gt_protocol::handshake::NamedSession;
use gt_protocol::message::Stats;
use gt_protocol::rules::ErrorClass;
use gt_transport::Authority;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(init, module)?)?;
    module.add_function(wrap_pyfunction!(connect, module)?)?;
    module.add_function(wrap_pyfunction!(serve, module)?)?;
    module.add_function(wrap_pyfunction!(disconnect, module)?)?;
    module.add_function(wrap_pyfunction!(cancel, module)?)?;
    module.add_function(wrap_pyfunction!(end_with_program, module)?)?;
    module.add_function(wrap_pyfunction!(leave_parent, module)?)?;
    module.add_function(wrap_pyfunction!(synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(is_connected, module)?)?;
    module.add_function(wrap_pyfunction!(describe, module)?)?;
    module.add_function(wrap_pyfunction!(gpu_workers, module)?)?;
    module.add_function(wrap_pyfunction!(has_begun, module)?)?;
    module.add_function(wrap_pyfunction!(stats, module)?)?;
    module.add_function(wrap_pyfunction!(worker_stats, module)?)?;
    module.add_function(wrap_pyfunction!(unread_failures, module)?)?;
    Ok(())
}

/// Starts the workers now instead of at the first operation; returns at once.
#[pyfunction]
fn init(py: Python<'_>) -> PyResult<()> {
    runtime::prepare(py)
}

/// Connects to a dispatcher process; tensors of an earlier session become void.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they are keyword arguments of Python")]
#[pyo3(signature = (address, token=None, verbose=false, ring=true, worker_seconds=None, session=None, lease_s=None, tls_ca=None))]
fn connect(
    py: Python<'_>,
    address: String,
    token: Option<String>,
    verbose: bool,
    ring: bool,
    worker_seconds: Option<f64>,
    session: Option<String>,
    lease_s: Option<u32>,
    tls_ca: Option<std::path::PathBuf>,
) -> PyResult<()> {
    let hope = match worker_seconds.map(Duration::try_from_secs_f64) {
        None => runtime::WORKER_WAIT,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => {
            let text = "connect: worker_seconds must be a number of seconds from 0 on";
            return Err(errors::mistake(py, ErrorClass::Value, text));
        }
    };
    let session = session.map(|name| NamedSession { name, lease_s });
    let is_named = session.is_some();
    let unreachable = |py, text: &str| Err(errors::unreachable(py, text));
    let authority = match tls_ca.as_deref().map(Authority::read).transpose() {
        Ok(authority) => authority,
        Err(error) => return unreachable(py, &error.to_string()),
    };
    let credentials = Credentials { token, authority };
    let connection = match py.detach(|| dial(&address, &credentials, ring, session)) {
        Ok(connection) => connection,
        Err(error) => return unreachable(py, &error.to_string()),
    };
    if verbose {
        errors::announce_progress(py, &connection.describe())?;
    }
    runtime::install(py, connection, true, Some(hope));
    if is_named { published::continue_session(py) } else { Ok(()) }
}

/// Runs the dispatcher program until SIGINT or SIGTERM; returns the exit code.
#[pyfunction]
fn serve(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| gt_server::main(arguments))
}

#[pyfunction]
fn disconnect(py: Python<'_>) {
    runtime::disconnect(py);
}

/// Cancels what the session queued and what has not begun.
#[pyfunction]
fn cancel(py: Python<'_>) {
    runtime::cancel(py);
}

/// Ends the session with the program: other threads that use it block instead of raising an error.
#[pyfunction]
fn end_with_program(py: Python<'_>) {
    runtime::end_with_program(py);
}

/// Makes a forked child an independent program: its first operation opens a session, and its
/// parent's tensors are void.
#[pyfunction]
fn leave_parent(py: Python<'_>) {
    runtime::leave_parent(py);
}

/// Waits until everything emitted has run; raises the first unread failure.
#[pyfunction]
fn synchronize(py: Python<'_>) -> PyResult<()> {
    read::synchronize(py)
}

#[pyfunction]
fn is_connected(py: Python<'_>) -> bool {
    runtime::with(py, |runtime| runtime.connection.is_some())
}

/// Destination of this client's instructions, described for the user.
#[pyfunction]
fn describe(py: Python<'_>) -> Option<String> {
    runtime::with(py, |runtime| runtime.connection.as_ref().map(|connection| connection.describe()))
}

/// Sets the number of workers that the embedded dispatcher starts; before the first operation only.
#[pyfunction]
fn gpu_workers(py: Python<'_>, count: u32) -> PyResult<()> {
    spawn::choose_workers(py, count)
}

/// Counters of the session, and those of the dispatcher where it is part of this program.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counters = runtime::with(py, |runtime| {
        runtime.receive_ready();
        runtime.flush(py);
        let own = runtime.own_counters(py);
        let told = runtime.connection.as_ref().map(|connection| connection.counters());
        told.map(|told| own.into_iter().chain(told).collect::<Vec<_>>()).unwrap_or_default()
    });
    let dict = PyDict::new(py);
    for (name, value) in counters {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// Counters of each worker, after everything emitted so far has run: waits for `seconds` at most,
/// or until a worker is known not to answer. The row of a worker that has not answered has
/// `is_silent`.
#[pyfunction]
#[pyo3(signature = (seconds=None))]
fn worker_stats(py: Python<'_>, seconds: Option<f64>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let limit = seconds.map(Duration::try_from_secs_f64).transpose();
    let limit = limit.map_err(|error| errors::mistake(py, ErrorClass::Value, error.to_string()))?;
    let mut rows = Vec::new();
    for (worker, stats) in read::worker_stats(py, limit)? {
        let Some(stats) = stats else {
            let dict = PyDict::new(py);
            dict.set_item("worker", worker)?;
            dict.set_item("is_silent", true)?;
            rows.push(dict);
            continue;
        };
        let Stats { values, bytes, bytes_peak, executed, aten, python, own, joined, .. } = stats;
        let Stats { plain_bytes, packed_bytes, rounded, error_ppb, error_ppb_max, .. } = stats;
        let dict = PyDict::new(py);
        dict.set_item("worker", worker)?;
        dict.set_item("values", values)?;
        dict.set_item("bytes", bytes)?;
        dict.set_item("bytes_peak", bytes_peak)?;
        dict.set_item("executed", executed)?;
        dict.set_item("aten_calls", aten)?;
        dict.set_item("own_calls", own)?;
        dict.set_item("python_calls", python)?;
        dict.set_item("joined", joined)?;
        dict.set_item("plain_bytes", plain_bytes)?;
        dict.set_item("packed_bytes", packed_bytes)?;
        dict.set_item("rounded_sums", rounded)?;
        for (name, ppb) in [("rounding_error", error_ppb), ("rounding_error_max", error_ppb_max)] {
            dict.set_item(name, f64::from(u32::try_from(ppb).unwrap_or(u32::MAX)) / 1e9)?;
        }
        rows.push(dict);
    }
    Ok(rows)
}

/// Returns true if the session's first operation has been made.
#[pyfunction]
fn has_begun(py: Python<'_>) -> bool {
    runtime::has_begun(py)
}

/// Texts of unread failures.
#[pyfunction]
fn unread_failures(py: Python<'_>) -> Vec<String> {
    if runtime::with(py, |runtime| runtime.connection.is_none()) {
        return Vec::new();
    }
    let (failures, more) = runtime::unread(py);
    let mut texts: Vec<String> =
        failures.iter().map(|failed| errors::describe(py, failed)).collect();
    if more > 0 {
        texts.insert(0, format!("{more} earlier ones, whose texts were not kept"));
    }
    texts
}
