//! Variables: the state behind a Python tensor, shared memory, and edges of gradients. Types and
//! their accessors; nothing here emits.
//!
//! A variable names a value. As soon as another variable shares its memory (a view, `detach()`,
//! `.data`), the value moves to a [`Storage`]; a view remembers the operators that lead from there
//! to it, and takes itself again after a write (`emission/emit.rs`). The [`Counter`] determines
//! which variables count a write, and the [`View`] through which the gradient flows.
//! `views/sharing.rs` makes variables share memory, `views/write.rs` writes.

use super::entry::{Entries, Rest, ValueHandle, ValueRef, VarRef, WeakRef};
use super::metadata::SharedMeta;
use super::pool::{Pooled, PooledWeak};
use super::steps::Path;
use crate::client::gil_cell::GilCell;
use gt_protocol::{Attr, Dims, Meta, Op, Scalar};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyWeakrefReference};
use smallvec::SmallVec;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// Message of the panic for a variable with neither an alias nor a value.
const NO_VALUE: &str = "a variable without alias has a value";

pub(crate) type Vars = SmallVec<[Var; 2]>;

/// The variable behind a Python tensor: a counted reference to its state.
#[derive(Clone)]
pub(crate) struct Var(VarRef<State>);

pub(crate) struct WeakVar(WeakRef<State>);

/// A value that the dispatcher holds for this client: dropping the last reference frees it there.
pub(crate) type SharedValue = ValueRef<State>;

static ENTRIES: GilCell<Entries<State>> = GilCell::new(Entries::new());
// An entry fills one cache line.
const _: () = assert!(Entries::<State>::ENTRY_BYTES == 64);

/// State of a variable besides its own value and its leaf flag.
#[derive(Default)]
pub(crate) struct State {
    /// Edge of the current value; `None` for a leaf.
    pub(crate) edge: Option<Edge>,
    /// Fields that few variables need.
    cold: Option<Box<VarExtras>>,
}

#[derive(Default)]
pub(crate) struct VarExtras {
    /// The value where it is in another entry: of a variable that was written, or of a view that
    /// took itself again.
    value: Option<SharedValue>,
    /// The memory that it shares with others, once it does.
    pub(crate) alias: Option<Box<Alias>>,
    /// Number of writes while it shares no memory.
    pub(crate) version: u32,
    /// True if it keeps its gradient though it is no leaf.
    pub(crate) retains: bool,
    /// Origin of a saved value that a backward pass reads while it is recorded itself.
    pub(crate) read_from: Option<Watched>,
    pub grad: Option<Py<Tensor>>,
    /// The program's Python object of a leaf, as long as it lives.
    pub object: Option<Py<PyWeakrefReference>>,
    /// Functions that are called with a leaf's gradient before it accumulates, by their handles.
    pub hooks: Option<Py<PyDict>>,
    /// Functions that are called with the leaf once its gradient has accumulated.
    pub accumulate_hooks: Option<Py<PyDict>>,
}

impl State {
    #[inline]
    pub(crate) fn alias(&self) -> Option<&Alias> {
        self.cold.as_ref()?.alias.as_deref()
    }

    pub(crate) fn alias_mut(&mut self) -> Option<&mut Alias> {
        self.cold.as_mut()?.alias.as_deref_mut()
    }

    pub(crate) fn cold(&self) -> Option<&VarExtras> {
        self.cold.as_deref()
    }

    pub(crate) fn cold_mut(&mut self) -> &mut VarExtras {
        self.cold.get_or_insert_default()
    }
}

impl Rest for State {
    fn entries() -> &'static GilCell<Entries<Self>> {
        &ENTRIES
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.edge.is_none() && self.cold.is_none()
    }

    #[inline]
    fn end(self, py: Python<'_>) {
        let Self { edge, cold } = self;
        drop(cold);
        if let Some(edge) = edge {
            edge.release(py);
        }
    }
}

/// Position of a variable's elements in memory, and the counter of writes to them.
pub(crate) struct Alias {
    pub storage: Arc<Storage>,
    /// Operators that take the elements from the storage; `None` for all of it.
    pub path: Option<Arc<Path>>,
    pub meta: SharedMeta,
    pub strides: Dims,
    /// Offset of the first element, in elements of the storage.
    pub offset: i64,
    /// Shared by views and `detach()`; `.data` has its own.
    pub counter: Arc<Counter>,
    /// Relation to the variable that it is a view of; `None` after `detach()` and `.data`.
    pub view: Option<View>,
}

/// A view through which gradients flow.
pub(crate) struct View {
    /// The variable that it was a view of when it was taken; see [`View::root`].
    pub root: Var,
    /// Operators that took it from the storage; the first `skip` of them lead to the root.
    pub path: Option<Arc<Path>>,
    pub skip: usize,
    pub origin: Origin,
    /// The count at which the view's edge was made.
    pub version: u32,
}

/// Origin of a view; writes to views of some origins are forbidden.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Recorded,
    NoGrad,
    /// One of several results: its index, and the function's name where the variable itself is one
    /// of them.
    Several(u16, Option<&'static str>),
    /// Result `place` of a user's function, or (0) a view of one; `several` if the function has
    /// several results.
    Function {
        place: u16,
        several: bool,
    },
}

/// A value that several variables share. A write replaces it.
pub(crate) struct Storage(pub(super) GilCell<Shared>);

pub(super) struct Shared {
    pub value: SharedValue,
    /// Variables that may keep a view's value; a write makes them drop it.
    pub views: Vec<WeakVar>,
    /// Length of the list at which dead views are removed.
    pub views_max: usize,
    /// Reason why the memory must not be written, if there is one.
    pub read_only: Option<Arc<str>>,
    /// Stand-in for the address, once it has been asked for.
    pub address: Option<u64>,
}

/// Number of writes to the memory, as autograd counts them.
#[derive(Default)]
pub(crate) struct Counter(pub(super) AtomicU32);

// Short lists are inline: a node is written at every recorded instruction.
/// One recorded instruction, or a user's function.
pub(crate) struct Node {
    pub kind: NodeKind,
    pub attrs: Vec<Attr>,
    pub inputs: Inputs,
    pub outputs: SmallVec<[SharedMeta; 1]>,
    /// Order of recording: gradients are computed in the reverse order.
    pub sequence: u64,
    pub site: u32,
    pub signal: u16,
    /// Values that the row's gradient formulas read; `None` once a backward pass has freed them.
    pub saved: GilCell<Option<SavedValues>>,
    pub cold: GilCell<Option<Box<ColdNode>>>,
}

/// Operation whose gradients a node computes.
pub(crate) enum NodeKind {
    /// An operator of the table, whose row has formulas.
    Op(Op),
    /// `gt.autograd.Function`.
    Function(Box<UserFunction>),
}

/// A user's function that has been applied.
pub(crate) struct UserFunction {
    /// `PyTorch`'s name of it in messages.
    pub name: String,
    /// The `ctx` of its forward, which calls its backward.
    pub context: Py<PyAny>,
    /// Place at which each tensor of `save_for_backward` is saved.
    pub saved: Vec<Option<Place>>,
}

/// Fields that few nodes need.
#[derive(Default)]
pub(crate) struct ColdNode {
    /// Variables that keep the gradient of an output (`retain_grad`).
    pub retained: Vec<(u32, WeakVar)>,
    /// Functions that are called with the gradient of an output, by their handles.
    pub hooks: Vec<(u32, Py<PyDict>)>,
    /// Functions that are called with the gradients of all outputs, before those of the operands are computed.
    pub before: Option<Py<PyDict>>,
    /// Functions that are called afterwards with the gradients of outputs and operands.
    pub after: Option<Py<PyDict>>,
    /// Dictionary that the user may fill with data about the node.
    pub metadata: Option<Py<PyDict>>,
    /// Values that `PyTorch` saves and no formula of GT's reads, where GT composes `PyTorch`'s
    /// operator of several: they must not be written before the pass.
    pub composed: Vec<(Watched, SharedMeta)>,
}

pub(crate) type SharedNode = Pooled<Node>;
pub(crate) type WeakNode = PooledWeak<Node>;

pub(crate) type Inputs = SmallVec<[Input; 2]>;
pub(crate) type SavedValues = SmallVec<[SavedValue; 2]>;

/// An operand as the tape keeps it.
pub(crate) struct Input {
    /// Edge of its gradient; `None` where it needs none.
    pub edge: Option<Edge>,
    pub meta: Option<SharedMeta>,
    pub scalar: Option<Scalar>,
}

/// A saved value, and its origin.
pub(crate) struct SavedValue {
    pub place: Place,
    pub value: Kept,
    pub watched: Watched,
}

/// Form in which a value is saved.
pub(crate) enum Kept {
    Value(SharedValue),
    /// The packed form that the user's function returned, and the function that unpacks it
    /// (`saved_tensors_hooks`).
    Packed {
        packed: Py<PyAny>,
        unpack: Py<PyAny>,
    },
    /// Not saved: no gradient formula of GT reads it, but `PyTorch` saves it and refuses that it is
    /// written.
    Unread,
}

/// Index of a saved value among the operands or outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Operand(usize),
    Output(u32),
}

/// Destination of a gradient.
#[derive(Clone)]
pub(crate) enum Edge {
    /// Output `.1` of a recorded instruction.
    Node(SharedNode, u32),
    /// A leaf, whose `.grad` accumulates.
    Leaf(Var),
    /// A view that was taken under `no_grad`: it requires grad where its root does, but gradients
    /// end there.
    Nowhere,
}

impl Edge {
    #[inline]
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Node(node, output) => Self::Node(node.clone_ref(py), *output),
            Self::Leaf(leaf) => Self::Leaf(leaf.clone_ref(py)),
            Self::Nowhere => Self::Nowhere,
        }
    }

    /// Drops the edge, for callers that have a token.
    #[inline]
    pub(crate) fn release(self, py: Python<'_>) {
        match self {
            Self::Node(node, _) => node.release(py),
            Self::Leaf(leaf) => leaf.release(py),
            Self::Nowhere => {}
        }
    }
}

/// Origin of a saved value: it must not have been written when the value is used.
pub(crate) enum Watched {
    /// Not watched: the operator itself wrote the value that it had read.
    Never,
    /// Not watched: `PyTorch` does not save it, so it may be written.
    Unsaved,
    Var(WeakVar, u32),
    Shared(Arc<Counter>, u32),
}

impl Var {
    /// Passes the current value to `look`; `None` where it has to be taken again because its memory
    /// was written. `look` must not call into Python.
    #[inline]
    pub(crate) fn with_value<R>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&SharedValue) -> R,
    ) -> Option<R> {
        if self.0.names_own(py) {
            return self.0.with_own(py, look);
        }
        let state = self.0.rest().get(py);
        let cold = state.cold().expect(NO_VALUE);
        match (&cold.value, &cold.alias) {
            (Some(value), _) => Some(look(value)),
            (None, Some(alias)) if alias.path.is_none() => {
                let value = alias.storage.value(py);
                let seen = look(&value);
                value.release(py);
                Some(seen)
            }
            (None, Some(_)) => None,
            (None, None) => unreachable!("{NO_VALUE}"),
        }
    }

    /// A variable with an unshared value.
    #[inline]
    pub(crate) fn of(py: Python<'_>, value: ValueHandle) -> Self {
        Self(VarRef::new(py, value))
    }

    /// A variable that names a value, which others may hold.
    pub(crate) fn new(py: Python<'_>, value: SharedValue, edge: Option<Edge>) -> Self {
        let (var, value) = VarRef::of(py, value);
        {
            let mut state = var.rest_mut(py);
            state.edge = edge;
            if value.is_some() {
                state.cold_mut().value = value;
            }
        }
        Self(var)
    }

    /// The value that it names itself: none for a view that has not taken itself since the last
    /// write, or for a variable that takes all of its storage.
    pub(crate) fn named(&self, py: Python<'_>) -> Option<SharedValue> {
        self.0.own_value(py).or_else(|| {
            let state = self.0.rest().get(py);
            state.cold().and_then(|cold| cold.value.as_ref().map(|value| value.clone_ref(py)))
        })
    }

    /// Takes the value that it names itself.
    pub(crate) fn take_named(&self, py: Python<'_>) -> Option<SharedValue> {
        self.0.take_own(py).or_else(|| self.0.rest_mut(py).cold.as_mut()?.value.take())
    }

    /// Names a value, or none. The value named before is dropped.
    pub(crate) fn name(&self, py: Python<'_>, value: Option<SharedValue>) {
        let old = self.take_named(py);
        let other = value.and_then(|value| self.0.name_own(py, value));
        if other.is_some() {
            self.0.rest_mut(py).cold_mut().value = other;
        }
        if let Some(old) = old {
            old.release(py);
        }
    }

    /// Returns true if it is a leaf that accumulates a gradient.
    #[inline]
    pub(crate) fn accumulates(&self, py: Python<'_>) -> bool {
        self.0.is_leaf(py)
    }

    pub(crate) fn set_accumulates(&self, py: Python<'_>, accumulates: bool) {
        self.0.set_leaf(py, accumulates);
    }

    pub(crate) fn look<'a>(&'a self, py: Python<'a>) -> std::cell::Ref<'a, State> {
        self.0.rest().get(py)
    }

    #[inline]
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    /// Number of references to the variable.
    pub(crate) fn references(&self, py: Python<'_>) -> u32 {
        self.0.count(py)
    }

    /// Returns true if both are the same variable.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }

    /// Identifies the variable among all that are alive.
    pub(crate) fn address(&self) -> usize {
        self.0.address()
    }

    /// Drops the reference, for callers that have a token.
    #[inline]
    pub(crate) fn release(self, py: Python<'_>) {
        self.0.release(py);
    }

    pub(crate) fn downgrade(&self, py: Python<'_>) -> WeakVar {
        WeakVar(self.0.downgrade(py))
    }

    pub(crate) fn meta(&self, py: Python<'_>) -> Meta {
        self.with_meta(py, |meta| ***meta)
    }

    pub(crate) fn shared_meta(&self, py: Python<'_>) -> SharedMeta {
        self.with_meta(py, |meta| meta.clone_ref(py))
    }

    #[inline]
    fn with_meta<R>(&self, py: Python<'_>, look: impl FnOnce(&SharedMeta) -> R) -> R {
        if self.0.names_own(py) {
            return self.0.with_own(py, |value| look(&value.meta)).expect(NO_VALUE);
        }
        let state = self.0.rest().get(py);
        let cold = state.cold().expect(NO_VALUE);
        match (&cold.alias, &cold.value) {
            (Some(alias), _) => look(&alias.meta),
            (None, Some(value)) => look(&value.meta),
            (None, None) => unreachable!("{NO_VALUE}"),
        }
    }

    #[inline]
    pub(crate) fn state<'a>(&'a self, py: Python<'a>) -> std::cell::RefMut<'a, State> {
        self.0.rest_mut(py)
    }
}

impl WeakVar {
    pub(crate) fn upgrade(&self, py: Python<'_>) -> Option<Var> {
        self.0.upgrade(py).map(Var)
    }

    pub(super) fn is_alive(&self, py: Python<'_>) -> bool {
        self.0.is_alive(py)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

/// A tensor on a cluster: operators emit instructions, values come back when they are read. The
/// memory of up to 1,024 objects that are gone is kept: a program frees about as many as it makes.
#[pyclass(frozen, subclass, weakref, dict, freelist = 1024, module = "gt", name = "Tensor")]
pub(crate) struct Tensor {
    pub var: ObjectVar,
}

impl Tensor {
    #[inline]
    pub(crate) fn of(var: Var) -> Self {
        Self { var: ObjectVar(ManuallyDrop::new(var)) }
    }
}

/// The variable of a Python object: dropped without a check that the GIL is held.
pub(crate) struct ObjectVar(ManuallyDrop<Var>);

impl Deref for ObjectVar {
    type Target = Var;

    #[inline]
    fn deref(&self) -> &Var {
        &self.0
    }
}

impl Drop for ObjectVar {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is not used again. The GIL is held: Python frees its objects under it, and
        // before a tensor is an object it belongs to `wrap` or to a method, which have a token.
        let (var, py) = unsafe { (ManuallyDrop::take(&mut self.0), Python::assume_attached()) };
        var.release(py);
    }
}
