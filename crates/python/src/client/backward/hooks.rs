//! The user's hooks that are called in a pass: with the gradient of a tensor, with those of a
//! node, with a leaf whose gradient has accumulated. Python dictionaries hold them, by the handles
//! that remove them; `gt.autograd.hooks` calls them.

use super::grad_fn::GradFn;
use super::gradient_sum::Gradients;
use crate::client::session::{errors, site};
use crate::client::tape::{Edge, SharedNode};
use crate::client::value::Tensor;
use crate::client::value::variable::{ColdNode, Var};
use gt_protocol::rules::ErrorClass;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::atomic::{AtomicBool, Ordering};

/// True once any leaf has had hooks: before that, a pass does not look for them.
static OF_LEAVES: AtomicBool = AtomicBool::new(false);

pub(super) fn any_of_leaves() -> bool {
    OF_LEAVES.load(Ordering::Relaxed)
}

pub(super) fn has_leaf_hooks(py: Python<'_>, leaf: &Var) -> bool {
    let state = leaf.look(py);
    state.cold().is_some_and(|cold| cold.hooks.is_some() || cold.accumulate_hooks.is_some())
}

/// The functions that are called with the gradient of this tensor.
#[pyfunction]
pub(crate) fn tensor_hooks<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, Tensor>,
) -> PyResult<Bound<'py, PyDict>> {
    let var: &Var = &tensor.get().var;
    let fresh = PyDict::new(py);
    match var.edge(py)? {
        Some(Edge::Node(node, output)) => {
            let mut cold = node.cold.get_mut(py);
            let hooks = &mut cold.get_or_insert_default().hooks;
            if let Some((_, known)) = hooks.iter().find(|(place, _)| *place == output) {
                return Ok(known.bind(py).clone());
            }
            hooks.push((output, fresh.clone().unbind()));
            Ok(fresh)
        }
        Some(Edge::Leaf(_) | Edge::Nowhere) => {
            OF_LEAVES.store(true, Ordering::Relaxed);
            let mut state = var.state(py);
            let hooks = state.cold_mut().hooks.get_or_insert_with(|| fresh.unbind());
            Ok(hooks.bind(py).clone())
        }
        None => Err(errors::mistake(
            py,
            ErrorClass::Runtime,
            "cannot register a hook on a tensor that doesn't require gradient",
        )),
    }
}

/// The functions that are called with this leaf once its gradient has accumulated.
#[pyfunction]
pub(crate) fn accumulate_hooks<'py>(
    py: Python<'py>,
    leaf: &Bound<'py, Tensor>,
) -> PyResult<Bound<'py, PyDict>> {
    let var: &Var = &leaf.get().var;
    let refusal = if !var.requires_grad(py) {
        "cannot register a hook on a tensor that doesn't require gradient"
    } else if !var.is_leaf(py)? {
        "post accumulate grad hooks cannot be registered on non-leaf tensors"
    } else {
        OF_LEAVES.store(true, Ordering::Relaxed);
        let fresh = PyDict::new(py);
        let mut state = var.state(py);
        let hooks = state.cold_mut().accumulate_hooks.get_or_insert_with(|| fresh.unbind());
        return Ok(hooks.bind(py).clone());
    };
    Err(errors::mistake(py, ErrorClass::Runtime, refusal))
}

/// Calls a function of `gt.autograd.hooks`. Its operators carry the call sites of the lines that
/// call them.
fn call<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let function = py.import("gt.autograd.hooks")?.getattr(name)?;
    let outer = site::set_override(None);
    let result = function.call1(arguments);
    site::set_override(outer);
    result
}

fn optional(py: Python<'_>, grad: Option<&Var>) -> PyResult<Option<Py<Tensor>>> {
    grad.map(|grad| Tensor::wrap(py, grad.clone()).map(Bound::unbind)).transpose()
}

fn var_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Var>> {
    let tensor: Option<Bound<'_, Tensor>> = object.extract()?;
    Ok(tensor.map(|tensor| tensor.get().var.clone()))
}

/// A tuple of gradients, `None` where none has arrived.
fn tuple<'py>(py: Python<'py>, grads: &[Option<Var>]) -> PyResult<Bound<'py, PyTuple>> {
    let objects: Vec<Option<Py<Tensor>>> =
        grads.iter().map(|grad| optional(py, grad.as_ref())).collect::<PyResult<_>>()?;
    PyTuple::new(py, objects)
}

/// Calls the hooks of a leaf with the sum of the gradients that arrived there; returns the sum that
/// they give in its place.
pub(super) fn leaf(py: Python<'_>, leaf: &Var, sum: Var) -> PyResult<Var> {
    let hooks = {
        let state = leaf.look(py);
        state.cold().and_then(|cold| cold.hooks.as_ref().map(|hooks| hooks.clone_ref(py)))
    };
    match hooks {
        None => Ok(sum),
        Some(hooks) => tensor(py, &hooks, sum),
    }
}

fn tensor(py: Python<'_>, hooks: &Py<PyDict>, grad: Var) -> PyResult<Var> {
    let result = call(py, "of_tensor", (hooks, Tensor::wrap(py, grad)?))?;
    Ok(result.cast_into::<Tensor>()?.get().var.clone())
}

/// Calls the functions that wait for this leaf's accumulated gradient.
pub(super) fn accumulated(py: Python<'_>, leaf: &Var) -> PyResult<()> {
    if !any_of_leaves() {
        return Ok(());
    }
    let hooks = {
        let state = leaf.look(py);
        state
            .cold()
            .and_then(|cold| cold.accumulate_hooks.as_ref().map(|hooks| hooks.clone_ref(py)))
    };
    if let Some(hooks) = hooks {
        call(py, "of_leaf", (hooks, Tensor::of_leaf(py, leaf)?))?;
    }
    Ok(())
}

/// Calls the hooks of a node's outputs and puts their results in place of the gradients that
/// arrived there.
pub(super) fn outputs(
    py: Python<'_>,
    node: &SharedNode,
    grads: &mut [Option<Var>],
) -> PyResult<()> {
    for (output, place) in (0..).zip(grads) {
        let hooks = of(py, node, |cold| {
            let found = cold.hooks.iter().find(|(known, _)| *known == output);
            found.map(|(_, hooks)| hooks)
        });
        let Some(hooks) = hooks else { continue };
        if let Some(grad) = place.take() {
            *place = Some(tensor(py, &hooks, grad)?);
        }
    }
    Ok(())
}

fn of(
    py: Python<'_>,
    node: &SharedNode,
    find: impl FnOnce(&ColdNode) -> Option<&Py<PyDict>>,
) -> Option<Py<PyDict>> {
    node.cold.get(py).as_deref().and_then(find).map(|hooks| hooks.clone_ref(py))
}

/// Calls the hooks before a node and puts their results in place of the gradients of its outputs.
pub(super) fn before(py: Python<'_>, node: &SharedNode, grads: &mut [Option<Var>]) -> PyResult<()> {
    let Some(hooks) = of(py, node, |cold| cold.before.as_ref()) else { return Ok(()) };
    let result = call(py, "before_node", (hooks, tuple(py, grads)?))?;
    for (place, object) in grads.iter_mut().zip(result.try_iter()?) {
        *place = var_of(&object?)?;
    }
    Ok(())
}

/// Calls the hooks after a node; returns the gradients of its operands as the hooks left them.
pub(super) fn after(
    py: Python<'_>,
    node: &SharedNode,
    grads: &[Option<Var>],
    given: Gradients,
) -> PyResult<Gradients> {
    let Some(hooks) = of(py, node, |cold| cold.after.as_ref()) else { return Ok(given) };
    let places: Vec<usize> = GradFn::operands(node).map(|(place, _)| place).collect();
    let mut inputs: Vec<Option<Var>> = vec![None; places.len()];
    for (position, grad) in given {
        if let Some(place) = places.iter().position(|place| *place == position) {
            inputs[place] = Some(grad);
        }
    }
    let result = call(py, "after_node", (hooks, tuple(py, &inputs)?, tuple(py, grads)?))?;
    let mut changed = Gradients::new();
    for (position, object) in places.into_iter().zip(result.try_iter()?) {
        if let Some(grad) = var_of(&object?)? {
            changed.push((position, grad));
        }
    }
    Ok(changed)
}
