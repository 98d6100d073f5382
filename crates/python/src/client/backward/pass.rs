//! The state of a backward pass: gradients that have arrived at outputs, at views and at leaves,
//! and those that were asked for.

use super::deferral::{Deferral, Deferrals};
use super::gradient_sum::{Sum, ViewKey};
use super::leaf::{accumulate, check_still_leaf};
use super::survey::{Survey, Target, Targets};
use super::view_gradients::plus;
use super::{anomaly, hooks};
use crate::client::session::{errors, signal, site};
use crate::client::tape::{Edge, SharedNode};
use crate::client::value::variable::Var;
use gt_protocol::integer::to_usize;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Gradients that have arrived at a node's outputs.
struct Pending {
    node: SharedNode,
    grads: SmallVec<[Sum; 2]>,
}

/// Gradients of views of a leaf, added to it together when the pass ends.
struct LeafViews {
    leaf: Var,
    sum: Sum,
    /// Call site of the last view.
    site: u32,
    signal: u16,
}

/// A running backward pass: the gradients that have arrived, and the places that were asked for.
pub(super) struct Pass {
    /// Nodes by their order of recording: the last one is next.
    pending: BTreeMap<u64, Pending>,
    /// Indices of the captured gradients that each place fills; empty when leaves accumulate.
    pub(super) targets: Targets,
    pub(super) captured: Vec<Option<Var>>,
    /// Leaves in the order in which their gradients came, and the index of each leaf in it.
    leaf_views: Vec<LeafViews>,
    leaf_places: BTreeMap<usize, usize>,
    pub(super) survey: Survey,
    /// Work that this pass defers, if it may.
    pub(super) deferrals: Option<Deferrals>,
    /// Work that another pass has deferred and this one does.
    pub(super) resumed: BTreeMap<u64, Deferral>,
    keep: bool,
}

impl Pass {
    pub(super) fn new(py: Python<'_>, targets: &[Var], keep: bool) -> PyResult<Self> {
        let mut wanted = Targets::new();
        for (position, target) in targets.iter().enumerate() {
            let key = match target.edge(py)? {
                Some(Edge::Node(node, output)) => Target::Node(node.sequence, output),
                Some(Edge::Leaf(leaf)) => Target::Leaf(leaf.address()),
                // A root whose gradient goes nowhere: nothing to do.
                Some(Edge::Nowhere) => continue,
                None => {
                    return Err(errors::not_differentiable(
                        py,
                        "One of the differentiated Tensors does not require grad",
                    ));
                }
            };
            wanted.entry(key).or_default().push(position);
        }
        Ok(Self {
            pending: BTreeMap::new(),
            targets: wanted,
            captured: targets.iter().map(|_| None).collect(),
            leaf_views: Vec::new(),
            leaf_places: BTreeMap::new(),
            survey: Survey::default(),
            deferrals: None,
            resumed: BTreeMap::new(),
            keep,
        })
    }

    /// Surveys the graph behind the roots, where the pass needs to know something of it.
    pub(super) fn survey<'a>(&mut self, py: Python<'_>, roots: impl Iterator<Item = &'a Edge>) {
        let targets = self.is_for_inputs().then_some(&self.targets);
        self.survey.look(py, roots, targets);
    }

    /// Returns true if gradients go only to the places that were asked for, and not to all leaves.
    pub(super) fn is_for_inputs(&self) -> bool {
        !self.captured.is_empty() || self.deferrals.is_some()
    }

    /// Runs the pass, from the roots to the leaves.
    pub(super) fn run(
        &mut self,
        py: Python<'_>,
        seeds: SmallVec<[(Edge, Var); 1]>,
        create: bool,
    ) -> PyResult<()> {
        for (edge, seed) in seeds {
            if self.puts_off(&edge) {
                self.put_off_seed(edge, seed);
            } else {
                self.add(py, &edge, seed)?;
            }
        }
        self.leaves_after(py, None)?;
        self.drain(py, create)
    }

    /// A gradient arrives at an edge.
    pub(super) fn add(&mut self, py: Python<'_>, edge: &Edge, grad: Var) -> PyResult<()> {
        match edge {
            Edge::Node(node, output) => match self.arriving(node, *output) {
                Some(sum) => sum.add(py, grad),
                None => Ok(()),
            },
            Edge::Leaf(leaf) => match self.survey.hooked(leaf) {
                None => self.add_to_leaf(py, leaf, grad),
                Some(sum) => {
                    *sum = Some(match sum.take() {
                        None => grad,
                        Some(sum) => plus(py, &sum, &grad)?,
                    });
                    Ok(())
                }
            },
            Edge::Nowhere => Ok(()),
        }
    }

    /// The sum of the gradients that have arrived at an output so far.
    fn arriving(&mut self, node: &SharedNode, output: u32) -> Option<&mut Sum> {
        if !self.survey.is_reached(node) {
            return None;
        }
        let pending = self.pending.entry(node.sequence).or_insert_with(|| Pending {
            node: node.clone(),
            grads: node.outputs.iter().map(|_| Sum::default()).collect(),
        });
        pending.grads.get_mut(to_usize(output))
    }

    /// Passes the gradients that arrived at a view on to the value that it is a view of.
    pub(super) fn add_view(
        &mut self,
        py: Python<'_>,
        view: &SharedNode,
        key: ViewKey,
        sum: Sum,
    ) -> PyResult<()> {
        match view.inputs.first().and_then(|input| input.edge.as_ref()) {
            Some(Edge::Node(node, output)) => match self.arriving(node, *output) {
                Some(whole) => whole.add_view(py, view, key, sum),
                None => Ok(()),
            },
            Some(Edge::Leaf(leaf)) => {
                let place = *self.leaf_places.entry(leaf.address()).or_insert_with(|| {
                    let (leaf, sum) = (leaf.clone(), Sum::default());
                    self.leaf_views.push(LeafViews { leaf, sum, site: 0, signal: 0 });
                    self.leaf_views.len() - 1
                });
                let Some(views) = self.leaf_views.get_mut(place) else { return Ok(()) };
                (views.site, views.signal) = (view.site, view.signal);
                views.sum.add_view(py, view, key, sum)
            }
            Some(Edge::Nowhere) | None => Ok(()),
        }
    }

    fn add_to_leaf(&mut self, py: Python<'_>, leaf: &Var, grad: Var) -> PyResult<()> {
        if self.captured.is_empty() {
            // A leaf that required a gradient when it was used may not require one any more.
            if !leaf.requires_grad(py) {
                return Ok(());
            }
            check_still_leaf(py, leaf)?;
            accumulate(py, leaf, &grad)?;
            return hooks::accumulated(py, leaf);
        }
        if let Some(positions) = self.targets.get(&Target::Leaf(leaf.address())) {
            for position in positions.clone() {
                self.capture(py, position, &grad)?;
            }
        }
        Ok(())
    }

    pub(super) fn capture(&mut self, py: Python<'_>, position: usize, grad: &Var) -> PyResult<()> {
        let Some(place) = self.captured.get_mut(position) else { return Ok(()) };
        *place = Some(match place.take() {
            None => grad.clone(),
            Some(sum) => plus(py, &sum, grad)?,
        });
        Ok(())
    }

    fn drain(&mut self, py: Python<'_>, create: bool) -> PyResult<()> {
        while let Some(sequence) = self.latest() {
            let (node, done) = if let Some(deferral) = self.resumed.remove(&sequence) {
                let node = deferral.node.clone_ref(py);
                enter(py, &node);
                (node, self.resume(py, deferral))
            } else {
                let Some((_, Pending { node, grads })) = self.pending.pop_last() else { break };
                enter(py, &node);
                let done = self.go_through(py, &node, grads);
                (node, done)
            };
            done.map_err(|error| anomaly::explain(py, &node, error))?;
            if !self.keep && !create && !self.is_put_off(sequence) {
                let freed = node.free_saved(py);
                drop(freed);
            }
            self.leaves_after(py, Some(sequence))?;
        }
        for LeafViews { leaf, sum, site, signal } in std::mem::take(&mut self.leaf_views) {
            site::set_override(Some(site));
            signal::set_override(Some(signal::backward_of(py, signal)));
            if let Some(grad) = sum.total(py)? {
                self.add_to_leaf(py, &leaf, grad)?;
            }
        }
        Ok(())
    }

    /// The node that was recorded last, of those that are left.
    fn latest(&self) -> Option<u64> {
        let pending = self.pending.last_key_value().map(|(sequence, _)| *sequence);
        let resumed = self.resumed.last_key_value().map(|(sequence, _)| *sequence);
        pending.max(resumed)
    }

    /// Adds to the leaves whose hooks waited for all gradients, once no node recorded before
    /// `sequence` leads there.
    fn leaves_after(&mut self, py: Python<'_>, sequence: Option<u64>) -> PyResult<()> {
        while let Some((leaf, sum)) = self.survey.complete(sequence) {
            let Some(sum) = sum else { continue };
            let grad = hooks::leaf(py, &leaf, sum)?;
            self.add_to_leaf(py, &leaf, grad)?;
        }
        Ok(())
    }
}

/// Instructions emitted from here on carry this node's call site and scope.
fn enter(py: Python<'_>, node: &SharedNode) {
    site::set_override(Some(node.site));
    signal::set_override(Some(signal::backward_of(py, node.signal)));
}
