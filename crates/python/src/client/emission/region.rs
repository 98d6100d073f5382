//! Regions of the program that may be compiled, as emission sees them.

use crate::client::session::region::{HeldRegion, ProgramTable};
use crate::client::session::runtime::{self, Runtime, prepare};
use crate::client::value::variable::Var;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// True while a region is open: the only thing that an instruction outside of regions looks at.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Maximum number of times that sending goes on after an error.
const TRIES_MAX: usize = 16;

/// Notes the metadata of an instruction's operands, where it may have been held back.
#[inline]
pub(crate) fn note_operands(py: Python<'_>, operands: &[&Var]) {
    if IS_OPEN.load(Ordering::Relaxed) {
        note(py, operands);
    }
}

#[cold]
fn note(py: Python<'_>, operands: &[&Var]) {
    for operand in operands {
        let Some(slot) = operand.with_value(py, |value| value.slot) else { continue };
        let meta = operand.meta(py);
        runtime::with(py, |runtime| {
            if let Some(region) = &mut runtime.region {
                region.operand(slot, &meta);
            }
        });
    }
}

/// Opens a region with the programs of its function; gives them back where none can be opened.
pub(crate) fn open(py: Python<'_>, table: ProgramTable) -> Result<(), ProgramTable> {
    let mut table = Some(table);
    let is_open = runtime::with(py, |runtime| {
        runtime.open_region(|| HeldRegion::new(table.take().expect("asked for once")))
    });
    match table {
        None if is_open => {
            IS_OPEN.store(true, Ordering::Relaxed);
            Ok(())
        }
        table => Err(table.unwrap_or_default()),
    }
}

/// Closes the open region: everything that it held back is sent.
pub(crate) fn close(py: Python<'_>) -> (Option<HeldRegion>, PyResult<()>) {
    let is_held = runtime::with(py, |runtime| {
        runtime.region.as_ref().is_some_and(|region| !region.is_empty())
    });
    let mut sent = Ok(());
    if is_held {
        sent = prepare(py);
        // An interrupt comes while there is no room. Values that the program holds must be sent all
        // the same, or later instructions would name what nobody knows.
        for _ in 0..TRIES_MAX {
            if sent.is_ok() || prepare(py).is_ok() {
                break;
            }
        }
    }
    IS_OPEN.store(false, Ordering::Relaxed);
    (runtime::with(py, Runtime::close_region), sent)
}
