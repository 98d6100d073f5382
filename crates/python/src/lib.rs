//! The Python module `gt._core`: the client (tensors, tape, emitter) and the worker's engine.
//!
//! **Architecture invariant:** with `transport` the only Rust with `unsafe`, and the only one that knows Python.

mod client;
mod worker;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    client::register(module)?;
    worker::register(module)
}
