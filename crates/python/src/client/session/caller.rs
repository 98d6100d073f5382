//! The current caller, for whom the connection is made ready; and scopes that are left without an instruction.

use super::runtime::{self, Caller};
use super::{signal, site};
use pyo3::prelude::*;

/// The caller of the instruction that is being made. Calls into Python, where a collection may run destructors that emit:
/// before anything is borrowed, and before operands are looked at.
#[inline]
pub(crate) fn current(py: Python<'_>) -> Caller {
    Caller { site: site::current(py), signal: signal::current(py) }
}

/// The current caller, of whom one instruction may be sent without waiting; the dispatcher has the name of his call site.
pub(crate) fn ready(py: Python<'_>) -> PyResult<Caller> {
    let caller = current(py);
    runtime::prepare_for(py, caller)?;
    Ok(caller)
}

/// A scope is left that was entered after so many instructions. Where none has been made since, it is a boundary, and
/// the dispatcher hears of it: what moves next bears its name.
#[pyfunction]
pub(crate) fn signal_left(py: Python<'_>, signal: u16, entered: u64) -> PyResult<()> {
    if signal::signal_entered() != entered || !runtime::has_begun(py) {
        return Ok(());
    }
    let caller = Caller { signal, ..ready(py)? };
    runtime::with(py, |runtime| runtime.pass(py, caller));
    Ok(())
}
