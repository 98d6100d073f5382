//! The current caller, for whom the connection is made ready; and scopes that ended without an
//! instruction.

use super::runtime::{self, Caller};
use super::{signal, site};
use pyo3::prelude::*;

/// The caller of the instruction that is being made. This calls into Python, where a garbage
/// collection may run destructors that emit: call it before anything is borrowed, and before
/// operands are examined.
#[inline]
pub(crate) fn current(py: Python<'_>) -> Caller {
    Caller { site: site::current(py), signal: signal::current(py) }
}

/// The current caller, who may send one instruction without waiting; the dispatcher has the name of
/// its call site.
pub(crate) fn ready(py: Python<'_>) -> PyResult<Caller> {
    let caller = current(py);
    runtime::prepare_for(py, caller)?;
    Ok(caller)
}

/// Leaves a scope that was entered after `entered` instructions. If none has been made since, the
/// scope is a boundary, and the dispatcher is told: its name goes to the next transfer.
#[pyfunction]
pub(crate) fn signal_left(py: Python<'_>, signal: u16, entered: u64) -> PyResult<()> {
    if signal::signal_entered() != entered || !runtime::has_begun(py) {
        return Ok(());
    }
    let caller = Caller { signal, ..ready(py)? };
    runtime::with(py, |runtime| runtime.pass(py, caller));
    Ok(())
}
