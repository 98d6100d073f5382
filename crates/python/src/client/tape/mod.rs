//! The tape: what the backward pass needs to know of an instruction. Client only; nothing of it travels.

pub(crate) mod edge;
pub(crate) mod formula;
#[rustfmt::skip]
pub(crate) mod generated_formulas;
pub(crate) mod saved;

use crate::client::gil_cell::GilCell;
use crate::client::session::caller;
use crate::client::session::runtime::Caller;
use crate::client::value::metadata::SharedMeta;
use crate::client::value::pool::{Pool, Pooled, Resident};
use crate::client::value::steps::{Attrs, Step, result_of};
pub(crate) use crate::client::value::variable::{
    Edge, Input, Inputs, Node, Place, SavedValue, SavedValues, SharedNode,
};
use crate::client::value::variable::{Var, Vars, Watched, WeakNode};
use crate::client::value::{SharedValue, Values};
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

/// The node recorded last, while it lives: where `gt.debug.print_tape()` begins.
static LAST: GilCell<Option<WeakNode>> = GilCell::new(None);
static NODES: GilCell<Pool<Node>> = GilCell::new(Pool::new());

pub(crate) fn last(py: Python<'_>) -> Option<SharedNode> {
    LAST.get(py).as_ref().and_then(|last| last.upgrade(py))
}

/// Records an operator that needs no instruction, since its result has been made otherwise. Its row saves nothing.
pub(crate) fn link(
    py: Python<'_>,
    op: Op,
    attrs: Attrs,
    inputs: Vec<(Option<Edge>, Meta)>,
    output: Meta,
) -> Edge {
    let inputs = inputs.into_iter().map(|(edge, meta)| Input {
        edge,
        meta: Some(SharedMeta::of(py, &meta)),
        scalar: None,
    });
    let caller = caller::current(py);
    let saved = SavedValues::new();
    let recording = Recording { op, attrs: &attrs, caller, saved, saved_outputs: 0 };
    let outputs = std::iter::once(SharedMeta::of(py, &output)).collect();
    Edge::Node(Pooled::new(py, recording.node(inputs.collect(), outputs)), 0)
}

/// What is known of an instruction that goes onto the tape.
pub(crate) struct Recording<'a> {
    pub op: Op,
    pub attrs: &'a [Attr],
    pub caller: Caller,
    /// What is saved of its operands.
    pub saved: SavedValues,
    /// Bit k: output k is saved.
    pub saved_outputs: u16,
}

impl Recording<'_> {
    #[inline]
    fn node(&self, inputs: Inputs, outputs: SmallVec<[SharedMeta; 1]>) -> Node {
        Node {
            op: self.op,
            attrs: self.attrs.to_vec(),
            inputs,
            outputs,
            sequence: next_sequence(),
            site: self.caller.site,
            signal: self.caller.signal,
            saved: GilCell::new(Some(SavedValues::new())),
            retained: GilCell::new(Vec::new()),
        }
    }

    /// Puts it onto the tape with what is saved of its operands and its results: their variables, in `vars`.
    pub(crate) fn record(self, py: Python<'_>, inputs: Inputs, values: Values, vars: &mut Vars) {
        let mut metas = SmallVec::new();
        for value in &values {
            metas.push(value.meta.clone_ref(py));
        }
        let node = Pooled::new(py, self.node(inputs, metas));
        let mut saved = self.saved;
        for (position, value) in (0..).zip(values) {
            let keeps = self.saved_outputs & (1_u16 << position.min(15)) != 0;
            vars.push(result(py, &node, position, value, keeps.then_some(&mut saved)));
        }
        close(py, node, saved);
    }
}

/// Records view operators, the first of something of `meta` whose gradient goes to `edge`.
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

/// `Exp` of `exp`, as `PyTorch` calls its functions in messages.
pub(crate) fn function_name(op: Op) -> String {
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters.next().map_or(String::new(), |first| {
            first.to_uppercase().collect::<String>() + letters.as_str()
        })
    };
    op.info().name.split('_').map(capital).collect()
}

/// The variable of a node's result, which `saved` keeps where it is asked to.
fn result(
    py: Python<'_>,
    node: &SharedNode,
    position: u32,
    value: SharedValue,
    saved: Option<&mut SavedValues>,
) -> Var {
    let float = value.meta.dtype.is_float();
    let edge = float.then(|| Edge::Node(node.clone_ref(py), position));
    let Some(saved) = saved else { return Var::new(py, value, edge) };
    let var = Var::new(py, value.clone_ref(py), edge);
    let watched = var.watched(py);
    saved.push(SavedValue { place: Place::Output(position), value, watched });
    var
}

/// Ends the recording of a node.
fn close(py: Python<'_>, node: SharedNode, saved: SavedValues) {
    if !saved.is_empty() {
        *node.saved.get_mut(py) = Some(saved);
    }
    let before = LAST.get_mut(py).replace(node.downgrade(py));
    if let Some(before) = before {
        before.release(py);
    }
    node.release(py);
}

impl Node {
    /// Takes what was saved; where nothing was, a second pass may follow.
    pub(crate) fn free_saved(&self, py: Python<'_>) -> Option<SavedValues> {
        let mut saved = self.saved.get_mut(py);
        let kept = saved.as_ref().is_some_and(|saved| !saved.is_empty());
        if kept { saved.take() } else { None }
    }

    /// The result was written over `target`: what was read of it counts as read before, and the result is now `target`.
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
                Place::Operand(_) => {}
                Place::Output(_) => kept.watched = after(),
            }
        }
    }
}

impl Resident for Node {
    fn pool() -> &'static GilCell<Pool<Self>> {
        &NODES
    }

    /// A long chain is freed in a loop, not by recursion.
    #[inline]
    fn end(mut self, py: Python<'_>) {
        let mut queue: SmallVec<[SharedNode; 4]> = SmallVec::new();
        self.release_inputs(py, &mut queue);
        for output in self.outputs {
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
    /// Lets its operands go; nodes among them are left in `queue`.
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
