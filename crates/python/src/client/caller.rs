//! Who makes an instruction: the user's call site and the signal around it.

use super::{signal, site};
use pyo3::Python;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub site: u32,
    pub signal: u16,
}

impl Caller {
    /// Of the instruction that is being made. Calls into Python, where a collection may run destructors that emit: before
    /// anything is borrowed, and before operands are looked at.
    #[inline]
    pub(crate) fn current(py: Python<'_>) -> Self {
        Self { site: site::current(py), signal: signal::current(py) }
    }
}
