//! Cancelling the session's queue, by `gt.cancel()` or by an interrupt of a thread that waits.

use super::fork::forked;
use super::state::{Runtime, with};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// Cancels what the session queued and what has not begun; without effect where there is no
/// session.
pub(crate) fn cancel(py: Python<'_>) {
    with(py, |runtime| {
        let Runtime { connection, answers, .. } = runtime;
        if let Some(connection) = connection.as_mut().filter(|_| !forked())
            && answers.closed.is_none()
        {
            connection.cancel(answers);
        }
    });
}

/// Returns true for the exception of Ctrl-C. Exceptions of a program's other signal handlers end a
/// wait, but leave the queue.
pub(super) fn is_ctrl_c(py: Python<'_>, interrupt: &PyErr) -> bool {
    interrupt.is_instance_of::<PyKeyboardInterrupt>(py)
}

/// Looks for signals in a wait for room; cancels the queue at Ctrl-C.
pub(super) fn check_signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals().inspect_err(|interrupt| {
        if is_ctrl_c(py, interrupt) {
            cancel(py);
        }
    })
}
