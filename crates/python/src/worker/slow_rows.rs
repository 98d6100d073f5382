//! Rows whose fast path raised an exception: they run in Python, one by one, and the worker's log
//! says so.

use gt_protocol::Op;
use pyo3::prelude::*;
use std::collections::BTreeSet;

/// Codes of the rows that the log names; each is named once, so at most one line an operator.
#[derive(Debug, Default)]
pub struct SlowRows(BTreeSet<u16>);

impl SlowRows {
    /// Writes a line to the worker's log (standard error) at the first exception of a row.
    #[cold]
    pub fn tell(&mut self, op: Op, error: &PyErr) {
        let info = op.info();
        if self.0.insert(info.code) {
            let error = error.to_string().replace(['\n', '\r'], " ");
            eprintln!(
                "gt.worker: a fast path of `{}` failed, and its Python kernel runs in place: {error}",
                info.name
            );
        }
    }
}
