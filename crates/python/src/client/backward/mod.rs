//! The backward pass: nodes in the reverse order of recording, the gradients of their operands, sums in between.

pub(crate) mod anomaly;
pub(crate) mod evaluate;
pub(crate) mod function;
pub(crate) mod grad_fn;
mod gradient_sum;
pub(crate) mod hooks;
mod leaf;
pub(crate) mod seeds;
mod survey;
pub(crate) mod term;
mod view_gradients;
mod vjp;
mod windows;

use crate::client::emission::emit::cast;
use crate::client::session::{errors, signal, site};
use crate::client::tape::{self, Edge, SharedNode, saved};
use crate::client::value::variable::Tensor;
use crate::client::value::variable::{NodeKind, Var};
use evaluate::{Evaluation, sum_to};
use gradient_sum::{Sum, ViewKey};
use gt_protocol::integer::to_usize;
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Family, Meta, Op};
use leaf::accumulate;
use pyo3::prelude::*;
use seeds::{checked_seed, ones_like};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::BTreeMap;
use survey::Survey;
use view_gradients::plus;

/// `backward(...)` of roots, each with the gradient that arrives there: `.grad` of the given inputs accumulates, or of all leaves.
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
            var.retain_grad(py)?; // the pass itself fills it; PyTorch's error for what needs none
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
    /// Whether this thread's innermost pass is for chosen inputs: no leaf accumulates.
    static FOR_INPUTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the pass that is running on this thread is for chosen inputs.
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
    let mut work = Pass::new(py, targets, keep)?;
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
    work.survey(py, edges.iter().map(|(edge, _)| edge));
    let before = tape::set_grad_enabled(create);
    let outer = site::set_override(None);
    let outer_signal = signal::set_override(None);
    let outer_inputs = FOR_INPUTS.replace(!targets.is_empty());
    let done = work.run(py, edges, create);
    FOR_INPUTS.set(outer_inputs);
    site::set_override(outer);
    signal::set_override(outer_signal);
    tape::set_grad_enabled(before);
    done?;
    Ok(work.captured)
}

/// Gradients that have arrived at a node's outputs.
struct Pending {
    node: SharedNode,
    grads: SmallVec<[Sum; 2]>,
}

/// Gradients of views of a leaf, which it gets together when the pass ends.
struct LeafViews {
    leaf: Var,
    sum: Sum,
    /// Of the view that was the last.
    site: u32,
    signal: u16,
}

/// Where a wanted gradient is found.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Node(u64, u32),
    Leaf(usize),
}

struct Pass {
    /// By the order of recording: the last one is next.
    pending: BTreeMap<u64, Pending>,
    /// Which captured gradient a place fills; empty when leaves accumulate.
    targets: BTreeMap<Target, Vec<usize>>,
    captured: Vec<Option<Var>>,
    /// In the order in which they came, and where each leaf stands in it.
    leaf_views: Vec<LeafViews>,
    leaf_places: BTreeMap<usize, usize>,
    survey: Survey,
    keep: bool,
}

impl Pass {
    fn new(py: Python<'_>, targets: &[Var], keep: bool) -> PyResult<Self> {
        let mut wanted: BTreeMap<Target, Vec<usize>> = BTreeMap::new();
        for (position, target) in targets.iter().enumerate() {
            let key = match target.edge(py)? {
                Some(Edge::Node(node, output)) => Target::Node(node.sequence, output),
                Some(Edge::Leaf(leaf)) => Target::Leaf(leaf.address()),
                Some(Edge::Nowhere) | None => {
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
            keep,
        })
    }

    /// From the roots to the leaves.
    fn run(
        &mut self,
        py: Python<'_>,
        seeds: SmallVec<[(Edge, Var); 1]>,
        create: bool,
    ) -> PyResult<()> {
        for (edge, seed) in seeds {
            self.add(py, &edge, seed)?;
        }
        self.leaves_after(py, None)?;
        self.drain(py, create)
    }

    /// A gradient arrives at an edge.
    fn add(&mut self, py: Python<'_>, edge: &Edge, grad: Var) -> PyResult<()> {
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

    /// What has arrived at an output so far.
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

    /// What has arrived at a view goes to what it is a view of.
    fn add_view(
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
            // What was a leaf with gradient when it was used may be none any more.
            if !leaf.requires_grad(py) {
                return Ok(());
            }
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

    fn capture(&mut self, py: Python<'_>, position: usize, grad: &Var) -> PyResult<()> {
        let Some(place) = self.captured.get_mut(position) else { return Ok(()) };
        *place = Some(match place.take() {
            None => grad.clone(),
            Some(sum) => plus(py, &sum, grad)?,
        });
        Ok(())
    }

    fn drain(&mut self, py: Python<'_>, create: bool) -> PyResult<()> {
        while let Some((sequence, Pending { node, grads })) = self.pending.pop_last() {
            site::set_override(Some(node.site));
            signal::set_override(Some(signal::backward_of(py, node.signal)));
            let done = self.go_through(py, &node, grads);
            done.map_err(|error| anomaly::explain(py, &node, error))?;
            if !self.keep && !create {
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

    /// What has arrived at leaves whose hooks wait for all of it, where nothing recorded before `sequence` leads there.
    fn leaves_after(&mut self, py: Python<'_>, sequence: Option<u64>) -> PyResult<()> {
        while let Some((leaf, sum)) = self.survey.complete(sequence) {
            let Some(sum) = sum else { continue };
            let grad = hooks::leaf(py, &leaf, sum)?;
            self.add_to_leaf(py, &leaf, grad)?;
        }
        Ok(())
    }

    /// All that will arrive at a node's outputs has arrived.
    fn go_through(
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
        // As PyTorch: what is asked for is what arrives, where the pass goes on from here.
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

    /// Whether what arrives at this node was asked for, so that it has to be whole.
    fn is_asked_for(&self, node: &SharedNode) -> bool {
        let of_node = Target::Node(node.sequence, 0)..=Target::Node(node.sequence, u32::MAX);
        self.targets.range(of_node).next().is_some()
    }

    /// Whether this node's operand is a leaf whose hooks wait for all that arrives there.
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
        // Only what had been kept is freed.
        if passes_on && node.saved.get(py).is_none() {
            return Err(grad_fn::freed(py));
        }
        let mut evaluation = Evaluation::new(py, op, node, grads);
        let mut given: Gradients = SmallVec::new();
        for (position, input) in node.inputs.iter().enumerate() {
            let (Some(edge), Some(meta)) = (&input.edge, &input.meta) else { continue };
            if matches!(edge, Edge::Nowhere) {
                saved::check_outputs(py, node)?;
                continue;
            }
            if !self.survey.is_wanted(edge) {
                continue;
            }
            if let Some(grad) = evaluation.gradient(position)? {
                let grad = fit(py, grad, meta, op)?;
                if anomaly::is_on() {
                    anomaly::check(py, node, position, &grad)?;
                }
                if is_cold {
                    given.push((position, grad)); // a hook sees all of them
                } else {
                    self.add(py, edge, grad)?;
                }
            }
        }
        if is_cold { self.pass_on(py, node, grads, given) } else { Ok(()) }
    }

    /// Gives the gradients of a node's operands to its hooks, and what these make of them to where they go.
    fn pass_on(
        &mut self,
        py: Python<'_>,
        node: &SharedNode,
        grads: &[Option<Var>],
        given: Gradients,
    ) -> PyResult<()> {
        for (position, grad) in hooks::after(py, node, grads, given)? {
            let edge = node.inputs.get(position).and_then(|input| input.edge.as_ref());
            if let Some(edge) = edge {
                self.add(py, edge, grad)?;
            }
        }
        Ok(())
    }
}

/// Gradients of non-leaves that keep theirs.
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

/// Gradients of operands, by their places.
type Gradients = SmallVec<[(usize, Var); 2]>;

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
