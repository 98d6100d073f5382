//! Grad mode and gradients.

use super::tensor::Tensor;
use crate::client::value::variable::Var;
use crate::client::{backward, tape};
use pyo3::prelude::*;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(is_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(set_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(grad, module)?)?;
    Ok(())
}

#[pyfunction]
fn is_grad_enabled() -> bool {
    tape::grad_enabled()
}

/// Sets this thread's grad mode; returns the one before.
#[pyfunction]
fn set_grad_enabled(enabled: bool) -> bool {
    tape::set_grad_enabled(enabled)
}

/// Gradients of `outputs` for `inputs`, None where they do not depend on one.
#[pyfunction]
fn grad<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, Tensor>>,
    grad_outputs: Vec<Option<Bound<'py, Tensor>>>,
    inputs: Vec<Bound<'py, Tensor>>,
    retain_graph: bool,
    create_graph: bool,
) -> PyResult<Vec<Option<Bound<'py, Tensor>>>> {
    let roots: Vec<(Var, Option<Var>)> = outputs
        .iter()
        .enumerate()
        .map(|(place, output)| {
            let seed = grad_outputs.get(place).and_then(Option::as_ref);
            (output.get().var.clone(), seed.map(|seed| seed.get().var.clone()))
        })
        .collect();
    let targets: Vec<Var> = inputs.iter().map(|input| input.get().var.clone()).collect();
    backward::pass(py, &roots, &targets, retain_graph, create_graph)?
        .into_iter()
        .map(|found| found.map(|var| Tensor::wrap(py, var)).transpose())
        .collect()
}
