//! The Python module `gt._core`: the client (tensors, tape, emitter) and the worker's engine.
//!
//! **Architecture invariant:** besides `transport` this is the only Rust crate with `unsafe`, and
//! the only one that knows Python.

mod client;
mod worker;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_free_threading(module.py())?;
    client::surface::register(module)?;
    worker::register(module)
}

/// Refuses free-threaded builds of Python: the GIL is the client's lock.
fn refuse_free_threading(py: Python<'_>) -> PyResult<()> {
    let flags: String = py.import("sys")?.getattr("abiflags")?.extract()?;
    if !flags.contains('t') {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "gt needs Python's global interpreter lock; this is a free-threaded build (sys.abiflags has a 't'). Run the \
         program with a standard build of Python",
    ))
}
