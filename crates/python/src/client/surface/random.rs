//! The state of the default generator.

use crate::client::session::generator::Generator;
use crate::client::session::runtime;
use pyo3::prelude::*;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(next_draw, module)?)?;
    module.add_function(wrap_pyfunction!(manual_seed, module)?)?;
    module.add_function(wrap_pyfunction!(rng_state, module)?)?;
    module.add_function(wrap_pyfunction!(set_rng_state, module)?)?;
    Ok(())
}

/// Reserves `n` draws of the default generator; returns the seed and the first draw.
#[pyfunction]
#[pyo3(signature = (n=1))]
fn next_draw(py: Python<'_>, n: i64) -> (i64, i64) {
    runtime::with(py, |runtime| {
        let generator = runtime.generator();
        (generator.seed, generator.advance(n))
    })
}

#[pyfunction]
fn manual_seed(py: Python<'_>, seed: i64) {
    set_rng_state(py, seed, 0);
}

/// The seed and the next draw.
#[pyfunction]
fn rng_state(py: Python<'_>) -> (i64, i64) {
    runtime::with(py, |runtime| {
        let generator = runtime.generator();
        (generator.seed, generator.draw)
    })
}

#[pyfunction]
fn set_rng_state(py: Python<'_>, seed: i64, draw: i64) {
    runtime::with(py, |runtime| *runtime.generator() = Generator { seed, draw });
}
