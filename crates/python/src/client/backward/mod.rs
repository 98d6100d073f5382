//! The backward pass: nodes in the reverse order of recording, the gradients of their operands, sums in between.

pub(crate) mod anomaly;
pub(crate) mod deferral;
pub(crate) mod evaluate;
pub(crate) mod function;
pub(crate) mod grad_fn;
mod gradient_sum;
pub(crate) mod hooks;
mod leaf;
mod pass;
pub(crate) mod seeds;
mod split;
mod survey;
pub(crate) mod term;
mod through;
mod view_gradients;
mod vjp;
mod windows;

use crate::client::session::{errors, signal, site};
use crate::client::tape::{self, Edge, SharedNode};
use crate::client::value::Tensor;
use crate::client::value::variable::Var;
use deferral::Deferrals;
use gt_protocol::rules::ErrorClass;
use leaf::accumulate;
use pass::Pass;
use pyo3::prelude::*;
use seeds::{checked_seed, ones_like};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::BTreeMap;

/// `backward(...)` of roots, each with the gradient that arrives there: accumulates into `.grad` of
/// the given inputs, or of all leaves.
pub(crate) fn run(
    py: Python<'_>,
    roots: &[(Var, Option<Var>)],
    inputs: &[Bound<'_, Tensor>],
    keep: bool,
    create: bool,
) -> PyResult<()> {
    let mut targets: Vec<Var> = Vec::new();
    for input in inputs {
        let var: &Var = &input.get().var;
        if !targets.iter().any(|target| target.is(var)) {
            targets.push(var.clone());
        }
        if !var.is_leaf(py)? || !var.requires_grad(py) {
            var.retain_grad(py)?; // the pass fills `.grad`; raises PyTorch's error if no gradient is required
        }
    }
    let gradients = pass(py, roots, &targets, keep, create)?;
    let before = tape::set_grad_enabled(create);
    let accumulated =
        targets.iter().zip(&gradients).try_for_each(|(target, gradient)| match gradient {
            Some(gradient) if target.is_leaf(py)? => {
                accumulate(py, target, gradient)?;
                hooks::accumulated(py, target)
            }
            Some(_) | None => Ok(()),
        });
    tape::set_grad_enabled(before);
    accumulated
}

thread_local! {
    /// True while this thread's innermost pass is for chosen inputs: no leaf accumulates.
    static FOR_INPUTS: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the pass running on this thread is for chosen inputs.
#[pyfunction]
pub(crate) fn is_pass_for_inputs() -> bool {
    FOR_INPUTS.get()
}

/// Gradients of `roots` for `targets`; without targets the leaves' `.grad` accumulate.
pub(crate) fn pass(
    py: Python<'_>,
    roots: &[(Var, Option<Var>)],
    targets: &[Var],
    keep: bool,
    create: bool,
) -> PyResult<Vec<Option<Var>>> {
    let edges = seeded(py, roots)?;
    let mut work = Pass::new(py, targets, keep)?;
    work.survey(py, edges.iter().map(|(edge, _)| edge));
    go(py, &mut work, edges, create)?;
    Ok(work.captured)
}

/// Gradients of `roots` for leaves, and the deferred work for all other leaves.
pub(crate) fn split(
    py: Python<'_>,
    roots: &[(Var, Option<Var>)],
    inputs: &[Var],
) -> PyResult<(Vec<Option<Var>>, Deferrals)> {
    for input in inputs {
        if !input.is_leaf(py)? {
            let text = "the inputs of a split backward are leaves: detach() them";
            return Err(errors::mistake(py, ErrorClass::Runtime, text));
        }
    }
    let edges = seeded(py, roots)?;
    let mut work = Pass::new(py, inputs, false)?;
    work.deferrals = Some(Deferrals::default());
    work.survey(py, edges.iter().map(|(edge, _)| edge));
    go(py, &mut work, edges, false)?;
    Ok((work.captured, work.deferrals.unwrap_or_default()))
}

/// Runs the work that a split pass has deferred.
pub(crate) fn resume(py: Python<'_>, deferrals: Deferrals) -> PyResult<()> {
    let Deferrals { seeds, nodes } = deferrals;
    let mut work = Pass::of_deferrals(py, &seeds, nodes)?;
    go(py, &mut work, seeds, false)
}

/// Edges at which the gradients of the roots start, each with its first gradient.
fn seeded(py: Python<'_>, roots: &[(Var, Option<Var>)]) -> PyResult<SmallVec<[(Edge, Var); 1]>> {
    let mut edges: SmallVec<[(Edge, Var); 1]> = SmallVec::new();
    for (position, (root, seed)) in roots.iter().enumerate() {
        let Some(edge) = root.edge(py)?.filter(|edge| !matches!(edge, Edge::Nowhere)) else {
            return Err(errors::not_differentiable(
                py,
                format!(
                    "element {position} of tensors does not require grad and does not have a grad_fn"
                ),
            ));
        };
        let seed = match seed {
            Some(seed) => checked_seed(py, position, root, seed)?,
            None => ones_like(py, root)?,
        };
        edges.push((edge, seed));
    }
    Ok(edges)
}

/// Runs a pass and restores the thread's modes and scopes afterwards.
fn go(
    py: Python<'_>,
    work: &mut Pass,
    edges: SmallVec<[(Edge, Var); 1]>,
    create: bool,
) -> PyResult<()> {
    let before = tape::set_grad_enabled(create);
    let outer = site::set_override(None);
    let outer_signal = signal::set_override(None);
    let outer_inputs = FOR_INPUTS.replace(work.is_for_inputs());
    let done = work.run(py, edges, create);
    FOR_INPUTS.set(outer_inputs);
    site::set_override(outer);
    signal::set_override(outer_signal);
    tape::set_grad_enabled(before);
    done
}

/// Steps of the tape that lead to `last`, oldest first, for `gt.debug.print_tape`.
pub(crate) fn tape_of(last: Option<SharedNode>) -> Vec<SharedNode> {
    let mut found: BTreeMap<u64, SharedNode> = BTreeMap::new();
    let mut queue: Vec<SharedNode> = last.into_iter().collect();
    while let Some(node) = queue.pop() {
        if found.insert(node.sequence, node.clone()).is_some() {
            continue;
        }
        queue.extend(node.inputs.iter().filter_map(|input| match &input.edge {
            Some(Edge::Node(from, _)) => Some(from.clone()),
            Some(Edge::Leaf(_) | Edge::Nowhere) | None => None,
        }));
    }
    found.into_values().collect()
}
