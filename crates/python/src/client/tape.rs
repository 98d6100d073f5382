//! The tape: what the backward pass needs to know of an instruction. Client only; nothing of it travels.

use super::alias::Var;
use super::gil_cell::GilCell;
use super::value::Value;
use gt_protocol::{Attr, Meta, Op, Scalar};
use pyo3::Python;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// One recorded instruction.
pub(crate) struct Node {
    pub op: Op,
    pub attrs: SmallVec<[Attr; 2]>,
    pub inputs: SmallVec<[Input; 3]>,
    pub outputs: SmallVec<[Meta; 2]>,
    /// Order of recording: gradients are computed in the reverse of it.
    pub sequence: u64,
    pub site: u32,
    pub signal: u16,
    /// What the row's `saves` keeps; `None` once a backward pass has freed it.
    pub saved: GilCell<Option<SmallVec<[SavedValue; 2]>>>,
    /// Variables that keep the gradient of an output (`retain_grad`).
    pub retained: GilCell<Vec<(u8, Weak<Var>)>>,
}

/// An operand as the tape keeps it.
pub(crate) struct Input {
    /// Where its gradient goes; `None` where it needs none.
    pub edge: Option<Edge>,
    pub meta: Option<Meta>,
    pub scalar: Option<Scalar>,
}

/// A kept value, with the variable it was read from and that one's version then.
pub(crate) struct SavedValue {
    pub place: Place,
    pub value: Arc<Value>,
    pub owner: Weak<Var>,
    pub version: u32,
}

/// Which operand or output a saved value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Operand(usize),
    Output(usize),
}

/// Where a gradient flows.
#[derive(Clone)]
pub(crate) enum Edge {
    /// Output `.1` of a recorded instruction.
    Node(Arc<Node>, u8),
    /// A leaf, whose `.grad` accumulates.
    Leaf(Arc<Var>),
}

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

pub(crate) fn next_sequence() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The node recorded last, while it lives: where `gt.debug.print_tape()` begins.
static LAST: GilCell<Weak<Node>> = GilCell::new(Weak::new());

pub(crate) fn remember(py: Python<'_>, node: &Arc<Node>) {
    *LAST.get_mut(py) = Arc::downgrade(node);
}

pub(crate) fn last(py: Python<'_>) -> Option<Arc<Node>> {
    LAST.get(py).upgrade()
}

/// A long chain is freed in a loop, not by recursion.
impl Drop for Node {
    fn drop(&mut self) {
        let mut queue: Vec<Arc<Node>> = take_nodes(&mut self.inputs);
        while let Some(node) = queue.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                queue.append(&mut take_nodes(&mut node.inputs));
            }
        }
    }
}

fn take_nodes(inputs: &mut [Input]) -> Vec<Arc<Node>> {
    inputs
        .iter_mut()
        .filter_map(|input| match input.edge.take() {
            Some(Edge::Node(node, _)) => Some(node),
            Some(Edge::Leaf(_)) | None => None,
        })
        .collect()
}
