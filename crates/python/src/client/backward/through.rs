//! A backward pass goes through one node: its hooks, the gradients of its operands, and where they go.

use super::deferral::Deferral;
use super::evaluate::{Evaluation, SharedTerms, sum_to};
use super::gradient_sum::{Gradients, Sum, ViewKey};
use super::leaf::accumulate;
use super::pass::Pass;
use super::survey::Target;
use super::{anomaly, function, grad_fn, hooks};
use crate::client::emission::emit::cast;
use crate::client::session::errors;
use crate::client::tape::{Edge, SharedNode, saved};
use crate::client::value::variable::{NodeKind, Var};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Family, Meta, Op};
use pyo3::prelude::*;
use smallvec::SmallVec;

impl Pass {
    /// Passes through a node at whose outputs every gradient has arrived.
    pub(super) fn go_through(
        &mut self,
        py: Python<'_>,
        node: &SharedNode,
        mut sums: SmallVec<[Sum; 2]>,
    ) -> PyResult<()> {
        let is_passed = self.survey.is_passed(node);
        let is_cold = node.cold.get(py).is_some();
        let view = ViewKey::of(node).filter(|_| is_passed && !is_cold && !self.is_hooked(node));
        if let (Some(key), [sum]) = (&view, sums.as_mut_slice())
            && sum.is_of_views()
            && !self.is_asked_for(node)
        {
            return self.add_view(py, node, key.clone(), std::mem::take(sum));
        }
        let grads = sums.into_iter().map(|sum| sum.total(py));
        let mut grads = grads.collect::<PyResult<SmallVec<[Option<Var>; 2]>>>()?;
        // PyTorch captures the gradient as it arrives, before hooks, if the pass goes on from here.
        if is_passed {
            self.capture_outputs(py, node, &grads)?;
        }
        if is_cold {
            hooks::outputs(py, node, &mut grads)?;
            keep_outputs(py, node, &grads)?;
        }
        if !is_passed {
            return self.capture_outputs(py, node, &grads);
        }
        if is_cold {
            hooks::before(py, node, &mut grads)?;
        }
        if let (Some(key), [grad @ Some(_)], Some(op)) = (view, grads.as_mut_slice(), node.op())
            && op.info().strided.is_some_and(|strided| strided.scatter.is_some())
        {
            let output = node.outputs.first().map(|meta| ***meta);
            let grad = grad.take().zip(output).map(|(grad, meta)| fit(py, grad, &meta, op));
            return self.add_view(py, node, key, Sum::of(grad.transpose()?));
        }
        self.differentiate(py, node, &grads, is_cold)
    }

    /// Returns true if the gradient that arrives at this node was asked for, so that it must be
    /// whole.
    fn is_asked_for(&self, node: &SharedNode) -> bool {
        let of_node = Target::Node(node.sequence, 0)..=Target::Node(node.sequence, u32::MAX);
        self.targets.range(of_node).next().is_some()
    }

    /// Returns true if this node's operand is a leaf whose hooks wait for all of its gradients.
    fn is_hooked(&mut self, node: &SharedNode) -> bool {
        match node.inputs.first().and_then(|input| input.edge.as_ref()) {
            Some(Edge::Leaf(leaf)) => self.survey.hooked(leaf).is_some(),
            Some(Edge::Node(..) | Edge::Nowhere) | None => false,
        }
    }

    /// Gradients of non-leaves that the pass was asked for.
    fn capture_outputs(
        &mut self,
        py: Python<'_>,
        node: &SharedNode,
        grads: &[Option<Var>],
    ) -> PyResult<()> {
        for (output, grad) in (0..).zip(grads) {
            let Some(grad) = grad else { continue };
            if let Some(positions) = self.targets.get(&Target::Node(node.sequence, output)) {
                for position in positions.clone() {
                    self.capture(py, position, grad)?;
                }
            }
        }
        Ok(())
    }

    /// Computes the gradients of the operands that need one.
    fn differentiate(
        &mut self,
        py: Python<'_>,
        node: &SharedNode,
        grads: &[Option<Var>],
        is_cold: bool,
    ) -> PyResult<()> {
        let op = match &node.kind {
            NodeKind::Op(op) => *op,
            NodeKind::Function(function) => {
                let given = function::gradients(py, node, function, grads)?;
                return self.pass_on(py, node, grads, given);
            }
        };
        let passes_on =
            node.inputs.iter().any(|input| !matches!(input.edge, None | Some(Edge::Nowhere)));
        // Only values that were kept are freed.
        if passes_on && node.saved.get(py).is_none() {
            return Err(grad_fn::freed(py));
        }
        if passes_on {
            saved::check(py, node)?;
        }
        let mut evaluation = Evaluation::new(py, op, node, grads);
        let mut given: Gradients = SmallVec::new();
        let mut operands = SmallVec::new();
        for (position, input) in node.inputs.iter().enumerate() {
            let (Some(edge), Some(meta)) = (&input.edge, &input.meta) else { continue };
            if matches!(edge, Edge::Nowhere) {
                saved::check_outputs(py, node)?;
                continue;
            }
            let is_put_off = self.puts_off(edge);
            if is_put_off && !is_cold {
                operands.push((position, None));
            }
            if !(self.survey.is_wanted(edge) || is_put_off && is_cold) {
                continue;
            }
            if let Some(grad) = evaluation.gradient(position)? {
                let grad = checked(py, (node, position), fit(py, grad, meta, op)?)?;
                if is_cold {
                    given.push((position, grad)); // hooks receive the deferred ones too
                } else {
                    self.add(py, edge, grad)?;
                }
            }
        }
        if is_cold {
            return self.pass_on(py, node, grads, given);
        }
        if !operands.is_empty() {
            let (node, shared) = (node.clone_ref(py), evaluation.into_shared());
            self.put_off(Deferral { node, grads: grads.into(), shared, operands });
        }
        Ok(())
    }

    /// Computes the deferred gradients of operands.
    pub(super) fn differentiate_rest(
        &mut self,
        py: Python<'_>,
        node: &SharedNode,
        grads: &[Option<Var>],
        shared: SharedTerms,
        positions: &[usize],
    ) -> PyResult<()> {
        let Some(op) = node.op() else {
            unreachable!("a user's function has given all of its gradients already")
        };
        if node.saved.get(py).is_none() {
            return Err(grad_fn::freed(py));
        }
        saved::check(py, node)?;
        let mut evaluation = Evaluation::with_shared(py, op, node, grads, shared);
        for &position in positions {
            let Some(input) = node.inputs.get(position) else { continue };
            let (Some(edge), Some(meta)) = (&input.edge, &input.meta) else { continue };
            if let Some(grad) = evaluation.gradient(position)? {
                let grad = checked(py, (node, position), fit(py, grad, meta, op)?)?;
                self.add(py, edge, grad)?;
            }
        }
        Ok(())
    }

    /// Gives the gradients of a node's operands to its hooks, and passes the hooks' results on.
    fn pass_on(
        &mut self,
        py: Python<'_>,
        node: &SharedNode,
        grads: &[Option<Var>],
        given: Gradients,
    ) -> PyResult<()> {
        let mut operands = SmallVec::new();
        for (position, grad) in hooks::after(py, node, grads, given)? {
            let edge = node.inputs.get(position).and_then(|input| input.edge.as_ref());
            match edge {
                Some(edge) if self.puts_off(edge) => operands.push((position, Some(grad))),
                Some(edge) => self.add(py, edge, grad)?,
                None => {}
            }
        }
        if !operands.is_empty() {
            let (node, shared) = (node.clone_ref(py), SharedTerms::default());
            self.put_off(Deferral { node, grads: SmallVec::new(), shared, operands });
        }
        Ok(())
    }
}

/// Returns a gradient after `detect_anomaly`, if it is on, has found no NaN in it.
fn checked(py: Python<'_>, place: (&SharedNode, usize), grad: Var) -> PyResult<Var> {
    if anomaly::is_on() {
        anomaly::check(py, place.0, place.1, &grad)?;
    }
    Ok(grad)
}

/// Adds to `.grad` of non-leaves that called `retain_grad`.
fn keep_outputs(py: Python<'_>, node: &SharedNode, grads: &[Option<Var>]) -> PyResult<()> {
    for (output, grad) in (0..).zip(grads) {
        let Some(grad) = grad else { continue };
        let keepers: Vec<Var> = node
            .cold
            .get(py)
            .iter()
            .flat_map(|cold| &cold.retained)
            .filter(|(kept, _)| *kept == output)
            .filter_map(|(_, var)| var.upgrade(py).filter(|var| var.comes_from(py, node, output)))
            .collect();
        for var in keepers {
            accumulate(py, &var, grad)?;
        }
    }
    Ok(())
}

/// The gradient in the operand's shape and dtype: broadcast dimensions of elementwise operators are summed.
fn fit(py: Python<'_>, grad: Var, wanted: &Meta, op: Op) -> PyResult<Var> {
    let mut grad = grad;
    let grad_meta = grad.meta(py);
    if grad_meta.dims != wanted.dims {
        if op.info().family != Family::Elementwise {
            return Err(errors::mistake(
                py,
                ErrorClass::Shape,
                format!(
                    "Function {}Backward returned an invalid gradient - got {} but expected shape compatible with {}",
                    op.info().name,
                    grad_meta.dims,
                    wanted.dims
                ),
            ));
        }
        grad = sum_to(py, grad, &wanted.dims)?;
    }
    if grad.meta(py).dtype != wanted.dtype {
        grad = cast(py, &grad, wanted.dtype)?;
    }
    Ok(grad)
}
