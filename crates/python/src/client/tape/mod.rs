//! The tape: records of instructions that the backward pass needs. It is on the client only and
//! never sent.

pub(crate) mod edge;
pub(crate) mod formula;
#[rustfmt::skip]
pub(crate) mod generated_formulas;
pub(crate) mod generic;
pub(crate) mod saved;

use crate::client::gil_cell::GilCell;
use crate::client::session::caller;
use crate::client::session::runtime::Caller;
use crate::client::value::metadata::SharedMeta;
use crate::client::value::pool::{Pool, Pooled, Resident};
use crate::client::value::steps::{Attrs, Step, result_of};
pub(crate) use crate::client::value::variable::{
    Edge, Input, Inputs, Kept, Node, NodeKind, Place, SavedValue, SavedValues, SharedNode,
};
use crate::client::value::variable::{Var, Watched, WeakNode};
use gt_protocol::{Attr, Meta, Op};
use pyo3::Python;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static GRAD_ENABLED: Cell<bool> = const { Cell::new(true) };
}

pub(crate) fn grad_enabled() -> bool {
    GRAD_ENABLED.get()
}

/// Sets this thread's grad mode and returns the one before.
pub(crate) fn set_grad_enabled(enabled: bool) -> bool {
    GRAD_ENABLED.replace(enabled)
}

fn next_sequence() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The node recorded last, while it lives: `gt.debug.print_tape()` begins there.
static LAST: GilCell<Option<WeakNode>> = GilCell::new(None);
static NODES: GilCell<Pool<Node>> = GilCell::new(Pool::new());

pub(crate) fn last(py: Python<'_>) -> Option<SharedNode> {
    LAST.get(py).as_ref().and_then(|last| last.upgrade(py))
}

/// Records an operator whose result was made without its instruction. Its row saves nothing.
pub(crate) fn link(
    py: Python<'_>,
    op: Op,
    attrs: Attrs,
    inputs: Vec<(Option<Edge>, Meta)>,
    output: Meta,
) -> Edge {
    let caller = caller::current(py);
    let node = node(py, NodeKind::Op(op), &attrs, caller, |node| {
        for (edge, meta) in inputs {
            let meta = Some(SharedMeta::of(py, &meta));
            node.inputs.push(Input { edge, meta, scalar: None });
        }
        node.outputs.push(SharedMeta::of(py, &output));
    });
    Edge::Node(node, 0)
}

/// Makes a node; `fill` writes the saved operands and outputs in place, because a node is large to
/// move.
#[inline]
pub(crate) fn node(
    py: Python<'_>,
    kind: NodeKind,
    attrs: &[Attr],
    caller: Caller,
    fill: impl FnOnce(&mut Node),
) -> SharedNode {
    let empty = Node {
        kind,
        attrs: if attrs.is_empty() { Vec::new() } else { attrs.to_vec() },
        inputs: Inputs::new(),
        outputs: SmallVec::new(),
        sequence: next_sequence(),
        site: caller.site,
        signal: caller.signal,
        saved: GilCell::new(Some(SavedValues::new())),
        cold: GilCell::new(None),
    };
    let mut node = Pooled::new(py, empty);
    fill(node.alone_mut(py).expect("a new node has one reference"));
    node
}

/// Records view operators; the first takes a value of `meta` whose gradient goes to `edge`.
pub(crate) fn link_views(
    py: Python<'_>,
    edge: Option<Edge>,
    meta: Meta,
    steps: &[Step],
) -> Option<Edge> {
    let (mut edge, mut meta) = (edge, meta);
    for step in steps {
        let result = result_of(step, meta);
        edge = Some(link(py, step.op, step.attrs.clone(), vec![(edge, meta)], result));
        meta = result;
    }
    edge
}

/// `Exp` for `exp`: `PyTorch`'s name of the function, or another name that the row or the node
/// gives.
fn function_name(op: Op, attrs: &[Attr]) -> String {
    let info = op.info();
    let overload = info.attrs.iter().position(|attr| attr.name == "overload");
    let generic = match overload.and_then(|place| attrs.get(place)) {
        Some(Attr::Text(overload)) => Some(overload.as_ref()),
        _ => None,
    };
    let own = if info.function.is_empty() { info.aten } else { info.function };
    let aten = generic.unwrap_or(own).split('.').next().unwrap_or_default();
    let name = if aten.is_empty() { info.name } else { aten.trim_end_matches("_forward") };
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters.next().map_or(String::new(), |first| {
            first.to_uppercase().collect::<String>() + letters.as_str()
        })
    };
    name.split('_').map(capital).collect()
}

/// The value of a variable as a node keeps it: whole where a formula of ours `reads` it, watched
/// only where just `PyTorch` `keeps` it.
#[inline]
pub(crate) fn saved_value(
    py: Python<'_>,
    var: &Var,
    (reads, keeps): (bool, bool),
) -> Option<SavedValue> {
    let value = match (reads, keeps) {
        (true, _) => Kept::Value(var.with_value(py, |value| value.clone_ref(py))?),
        (false, true) => Kept::Unread,
        (false, false) => return None,
    };
    let watched = if keeps { var.watched(py) } else { Watched::Unsaved };
    Some(SavedValue { place: Place::Output(0), value, watched })
}

/// Makes `var` the variable of a node's result; the node keeps it as [`saved_value`] does.
#[inline]
pub(crate) fn add_result(
    py: Python<'_>,
    node: &SharedNode,
    position: u32,
    var: &Var,
    how: (bool, bool),
) {
    let edge = var.with_value(py, |value| {
        value.meta.dtype.is_differentiable().then(|| Edge::Node(node.clone_ref(py), position))
    });
    let Some(edge) = edge else { unreachable!("a result that is new is no view") };
    var.state(py).edge = edge;
    if let Some(kept) = saved_value(py, var, how) {
        let kept = SavedValue { place: Place::Output(position), ..kept };
        node.saved.get_mut(py).get_or_insert_default().push(kept);
    }
}

/// Ends the recording of a node.
#[inline]
pub(crate) fn close(py: Python<'_>, node: SharedNode) {
    let before = LAST.get_mut(py).replace(node.downgrade(py));
    if let Some(before) = before {
        before.release(py);
    }
    node.release(py);
}

impl Node {
    /// The operator, where it is one of the table.
    pub(crate) fn op(&self) -> Option<Op> {
        match self.kind {
            NodeKind::Op(op) => Some(op),
            NodeKind::Function(_) => None,
        }
    }

    /// `PyTorch`'s name of the function in messages about tensors: without `Backward`.
    pub(crate) fn function_name(&self) -> String {
        match &self.kind {
            NodeKind::Op(op) => function_name(*op, &self.attrs),
            NodeKind::Function(function) => function.name.clone(),
        }
    }

    /// `PyTorch`'s name of the node in messages about gradients.
    pub(crate) fn name(&self) -> String {
        match &self.kind {
            NodeKind::Op(_) => format!("{}Backward0", self.function_name()),
            NodeKind::Function(function) => format!("{}Backward", function.name),
        }
    }

    /// Takes the saved values; where `PyTorch` saves nothing, a second pass may follow.
    pub(crate) fn free_saved(&self, py: Python<'_>) -> Option<SavedValues> {
        let mut saved = self.saved.get_mut(py);
        let is_kept = |kept: &SavedValue| !matches!(kept.watched, Watched::Unsaved);
        let is_composed = self.cold.get(py).as_ref().is_some_and(|cold| !cold.composed.is_empty());
        let kept = is_composed || saved.as_ref().is_some_and(|saved| saved.iter().any(is_kept));
        if kept { saved.take() } else { None }
    }

    /// Records that the result was written over `target`: values read of it count as read before
    /// the write, and the result becomes `target`.
    pub(crate) fn written_over(
        &self,
        py: Python<'_>,
        before: &Watched,
        after: impl Fn() -> Watched,
    ) {
        let mut saved = self.saved.get_mut(py);
        for kept in saved.iter_mut().flatten() {
            match kept.place {
                Place::Operand(0) if kept.watched.is_of(before) => kept.watched = Watched::Never,
                Place::Output(_) if !matches!(kept.watched, Watched::Unsaved) => {
                    kept.watched = after();
                }
                Place::Operand(_) | Place::Output(_) => {}
            }
        }
        if let Some(cold) = self.cold.get_mut(py).as_mut() {
            cold.composed.retain(|(watched, _)| !watched.is_of(before));
        }
    }
}

impl Resident for Node {
    fn pool() -> &'static GilCell<Pool<Self>> {
        &NODES
    }

    /// A long chain is freed in a loop, not by recursion.
    #[inline]
    fn end(&mut self, py: Python<'_>) {
        let mut queue: SmallVec<[SharedNode; 4]> = SmallVec::new();
        self.release_inputs(py, &mut queue);
        for output in self.outputs.drain(..) {
            output.release(py);
        }
        while let Some(mut node) = queue.pop() {
            if let Some(node) = node.alone_mut(py) {
                node.release_inputs(py, &mut queue);
            }
            node.release(py);
        }
    }
}

impl Node {
    /// Drops the operands; nodes among them are moved to `queue`.
    fn release_inputs(&mut self, py: Python<'_>, queue: &mut SmallVec<[SharedNode; 4]>) {
        for Input { edge, meta, .. } in self.inputs.drain(..) {
            if let Some(meta) = meta {
                meta.release(py);
            }
            match edge {
                Some(Edge::Node(node, _)) => queue.push(node),
                Some(Edge::Leaf(leaf)) => leaf.release(py),
                Some(Edge::Nowhere) | None => {}
            }
        }
    }
}
