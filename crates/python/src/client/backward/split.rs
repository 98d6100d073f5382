//! A backward pass in two parts: first the gradients of a few leaves (the inputs of a pipeline's
//! stage), later those of all other leaves. The graph decides which formulas are deferred: those of
//! operands that lead to none of the inputs. Nothing is computed twice: a deferred node keeps its
//! arrived gradients and the terms that its formulas share.

use super::deferral::Deferral;
use super::hooks;
use super::pass::Pass;
use crate::client::tape::Edge;
use crate::client::value::variable::Var;
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::collections::BTreeMap;

impl Pass {
    /// Resumes the work that another pass has deferred; leaves accumulate.
    pub(super) fn of_deferrals(
        py: Python<'_>,
        seeds: &[(Edge, Var)],
        nodes: BTreeMap<u64, Deferral>,
    ) -> PyResult<Self> {
        let mut pass = Self::new(py, &[], false)?;
        if hooks::any_of_leaves() {
            let of_nodes = nodes.values().map(|one| Edge::Node(one.node.clone_ref(py), 0));
            let edges: Vec<Edge> =
                seeds.iter().map(|(edge, _)| edge.clone_ref(py)).chain(of_nodes).collect();
            pass.survey(py, edges.iter());
        }
        pass.resumed = nodes;
        Ok(pass)
    }

    /// Returns true if the gradient at this edge is deferred: it leads to a leaf, and to none of
    /// the inputs.
    pub(super) fn puts_off(&self, edge: &Edge) -> bool {
        self.deferrals.is_some() && !matches!(edge, Edge::Nowhere) && !self.survey.is_wanted(edge)
    }

    /// Keeps a node for the gradients of its remaining operands.
    pub(super) fn put_off(&mut self, deferral: Deferral) {
        if let Some(deferrals) = &mut self.deferrals {
            deferrals.nodes.insert(deferral.node.sequence, deferral);
        }
    }

    /// Keeps the gradient of a root.
    pub(super) fn put_off_seed(&mut self, edge: Edge, seed: Var) {
        if let Some(deferrals) = &mut self.deferrals {
            deferrals.seeds.push((edge, seed));
        }
    }

    /// Returns true if part of a node's work is deferred; the node then keeps its saved values.
    pub(super) fn is_put_off(&self, sequence: u64) -> bool {
        self.deferrals.as_ref().is_some_and(|deferrals| deferrals.nodes.contains_key(&sequence))
    }

    /// Computes the deferred gradients of a node.
    pub(super) fn resume(&mut self, py: Python<'_>, deferral: Deferral) -> PyResult<()> {
        let Deferral { node, grads, shared, operands } = deferral;
        let (given, open): (SmallVec<[_; 2]>, SmallVec<[_; 2]>) =
            operands.into_iter().partition(|(_, grad)| grad.is_some());
        for (position, grad) in given {
            let edge = node.inputs.get(position).and_then(|input| input.edge.as_ref());
            if let (Some(edge), Some(grad)) = (edge, grad) {
                self.add(py, edge, grad)?;
            }
        }
        let open: SmallVec<[usize; 4]> = open.into_iter().map(|(position, _)| position).collect();
        if open.is_empty() {
            return Ok(());
        }
        self.differentiate_rest(py, &node, &grads, shared, &open)
    }
}
