//! Grad mode and gradients.

use super::tensor::Tensor;
use crate::client::backward as passes;
use crate::client::backward::deferral::Deferrals;
use crate::client::backward::{anomaly, hooks};
use crate::client::gil_cell::GilCell;
use crate::client::session::errors;
use crate::client::tape;
use crate::client::value::variable::Var;
use gt_protocol::rules::ErrorClass;
use pyo3::prelude::*;

/// Adds this file's functions.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(is_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(set_grad_enabled, module)?)?;
    module.add_function(wrap_pyfunction!(grad, module)?)?;
    module.add_function(wrap_pyfunction!(backward, module)?)?;
    module.add_function(wrap_pyfunction!(split_backward, module)?)?;
    module.add_class::<WeightGradients>()?;
    module.add_function(wrap_pyfunction!(passes::is_pass_for_inputs, module)?)?;
    module.add_function(wrap_pyfunction!(anomaly::set_anomaly_mode, module)?)?;
    module.add_function(wrap_pyfunction!(anomaly::anomaly_mode, module)?)?;
    module.add_function(wrap_pyfunction!(hooks::tensor_hooks, module)?)?;
    module.add_function(wrap_pyfunction!(hooks::accumulate_hooks, module)?)?;
    module.add_function(wrap_pyfunction!(push_saved_tensors_hooks, module)?)?;
    module.add_function(wrap_pyfunction!(pop_saved_tensors_hooks, module)?)?;
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

/// Passes values that this thread saves for backward to `pack` from here on, and takes them back
/// through `unpack`.
#[pyfunction]
fn push_saved_tensors_hooks(pack: Py<PyAny>, unpack: Py<PyAny>) {
    tape::saved::push_packing(pack, unpack);
}

/// Removes the innermost pair of pack and unpack.
#[pyfunction]
fn pop_saved_tensors_hooks() {
    tape::saved::pop_packing();
}

/// Gradients of `outputs` for `inputs`; None where the outputs do not depend on one.
#[pyfunction]
fn grad<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, Tensor>>,
    grad_outputs: Vec<Option<Bound<'py, Tensor>>>,
    inputs: Vec<Bound<'py, Tensor>>,
    retain_graph: bool,
    create_graph: bool,
) -> PyResult<Vec<Option<Bound<'py, Tensor>>>> {
    let roots = roots(&outputs, &grad_outputs);
    let targets: Vec<Var> = inputs.iter().map(|input| input.get().var.clone()).collect();
    passes::pass(py, &roots, &targets, retain_graph, create_graph)?
        .into_iter()
        .map(|found| found.map(|var| Tensor::wrap(py, var)).transpose())
        .collect()
}

/// Adds the gradients of `outputs` to `.grad` of `inputs`, or of all leaves.
#[pyfunction]
fn backward<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, Tensor>>,
    grad_outputs: Vec<Option<Bound<'py, Tensor>>>,
    inputs: Vec<Bound<'py, Tensor>>,
    retain_graph: bool,
    create_graph: bool,
) -> PyResult<()> {
    passes::run(py, &roots(&outputs, &grad_outputs), &inputs, retain_graph, create_graph)
}

/// Work that a backward pass to a few leaves has deferred: the gradients of all other leaves.
#[pyclass(frozen, module = "gt._core")]
struct WeightGradients {
    deferrals: GilCell<Option<Deferrals>>,
}

#[pymethods]
impl WeightGradients {
    /// Adds the deferred gradients to `.grad`; may be called once.
    fn accumulate(&self, py: Python<'_>) -> PyResult<()> {
        let Some(deferrals) = self.deferrals.get_mut(py).take() else {
            let text = "the weights' gradients of this backward pass have been added already";
            return Err(errors::mistake(py, ErrorClass::Runtime, text));
        };
        passes::resume(py, deferrals)
    }
}

/// Gradients of `outputs` for the leaves `inputs` (None where the outputs do not depend on one),
/// and the deferred work for all other leaves.
#[pyfunction]
fn split_backward<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, Tensor>>,
    grad_outputs: Vec<Option<Bound<'py, Tensor>>>,
    inputs: Vec<Bound<'py, Tensor>>,
) -> PyResult<(Vec<Option<Bound<'py, Tensor>>>, WeightGradients)> {
    let roots = roots(&outputs, &grad_outputs);
    let targets: Vec<Var> = inputs.iter().map(|input| input.get().var.clone()).collect();
    let (gradients, deferrals) = passes::split(py, &roots, &targets)?;
    let wrapped =
        gradients.into_iter().map(|found| found.map(|var| Tensor::wrap(py, var)).transpose());
    let left = WeightGradients { deferrals: GilCell::new(Some(deferrals)) };
    Ok((wrapped.collect::<PyResult<_>>()?, left))
}

/// Each output with the gradient that arrives there.
fn roots(
    outputs: &[Bound<'_, Tensor>],
    seeds: &[Option<Bound<'_, Tensor>>],
) -> Vec<(Var, Option<Var>)> {
    let pairs = outputs.iter().zip(seeds);
    let root = |(output, seed): (&Bound<'_, Tensor>, &Option<Bound<'_, Tensor>>)| {
        (output.get().var.clone(), seed.as_ref().map(|seed| seed.get().var.clone()))
    };
    pairs.map(root).collect()
}
