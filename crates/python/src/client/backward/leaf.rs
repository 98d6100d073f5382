//! The end of a pass: gradients that arrive at leaves.

use super::view_gradients::{plus, plus_consuming};
use crate::client::session::errors;
use crate::client::tape::{self, Edge};
use crate::client::value::Tensor;
use crate::client::value::variable::Var;
use gt_protocol::rules::ErrorClass;
use pyo3::prelude::*;

/// Refuses a leaf that no longer is one: a view without history whose base was written with one
/// since.
pub(super) fn check_still_leaf(py: Python<'_>, leaf: &Var) -> PyResult<()> {
    if matches!(leaf.edge(py)?, Some(Edge::Node(..))) {
        return Err(errors::mistake(
            py,
            ErrorClass::Runtime,
            "leaf variable has been moved into the graph interior",
        ));
    }
    Ok(())
}

/// Adds to a variable's `.grad`; `.grad` stays the same object.
pub(super) fn accumulate(py: Python<'_>, leaf: &Var, grad: &Var) -> PyResult<()> {
    let old = leaf
        .look(py)
        .cold()
        .and_then(|cold| cold.grad.as_ref())
        .map(|grad| grad.bind(py).get().var.clone());
    let Some(old) = old else {
        // A new variable: the same gradient may arrive at several leaves.
        let resolved = grad.resolve(py)?;
        let edge = if tape::grad_enabled() { resolved.edge } else { None };
        let tensor = Tensor::wrap(py, Var::new(py, resolved.value, edge))?.unbind();
        leaf.state(py).cold_mut().grad = Some(tensor);
        return Ok(());
    };
    if tape::grad_enabled() {
        let tensor = Tensor::wrap(py, plus(py, &old, grad)?)?.unbind();
        let previous = leaf.state(py).cold_mut().grad.replace(tensor);
        drop(previous);
        return Ok(());
    }
    let consumes = u16::from(!old.is(grad) && old.sole_owner(py));
    let sum = plus_consuming(py, &old, grad, consumes)?.resolve(py)?.value;
    old.overwrite(py, sum)
}
