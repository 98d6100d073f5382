//! Variables: what a Python tensor is a handle of, what several of them share, and where gradients go. Types and what can
//! be read off them; nothing here emits.
//!
//! A variable names a value. As soon as another variable shares its memory (a view, `detach()`, `.data`), the value stands
//! in a [`Storage`]; a view remembers the operators that lead from there to it, and takes itself again after a write
//! (`emission/emit.rs`). Which of them count a write is the [`Counter`]'s business, and through which the gradient flows the
//! [`View`]'s. How memory comes to be shared stands in `views/sharing.rs`, writing in `views/write.rs`.

use super::SharedValue;
use super::metadata::SharedMeta;
use super::pool::{Pool, Pooled, PooledWeak, Resident};
use super::steps::{Path, Step};
use crate::client::gil_cell::GilCell;
use gt_protocol::{Attr, Dims, Meta, Op, Scalar};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below so many names of views their list is not searched for dead ones.
const VIEWS_MIN: usize = 8;

/// A tensor on a cluster: operators emit instructions, values come back when they are read.
#[pyclass(frozen, subclass, weakref, module = "gt", name = "Tensor")]
pub(crate) struct Tensor {
    pub var: ObjectVar,
}

impl Tensor {
    pub(crate) fn of(var: Var) -> Self {
        Self { var: ObjectVar(ManuallyDrop::new(var)) }
    }

    pub(crate) fn wrap(py: Python<'_>, var: Var) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self::of(var))
    }
}

/// The variable of a Python object: dropped without asking whether the GIL is held.
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
        // SAFETY: nobody looks at it again. The GIL is held: Python frees its objects under it, and before a tensor is an
        // object it is in the hands of `wrap` or of a method, which have a token.
        let (var, py) = unsafe { (ManuallyDrop::take(&mut self.0), Python::assume_attached()) };
        var.release(py);
    }
}

pub(crate) type Vars = SmallVec<[Var; 2]>;

/// What a Python tensor is a handle of: a reference to its state, counted.
#[derive(Clone)]
pub(crate) struct Var(pub(crate) Pooled<GilCell<State>>);

pub(crate) struct WeakVar(PooledWeak<GilCell<State>>);

static VARS: GilCell<Pool<GilCell<State>>> = GilCell::new(Pool::new());

impl Resident for GilCell<State> {
    fn pool() -> &'static GilCell<Pool<Self>> {
        &VARS
    }

    #[inline]
    fn end(self, py: Python<'_>) {
        let State { value, alias, edge, grad, .. } = self.into_inner();
        if let Some(value) = value {
            value.release(py);
        }
        drop((alias, edge, grad));
    }
}

pub(crate) struct State {
    /// Of a variable without alias: its value. Of a view: what it has taken since the last write. Else nothing.
    pub(crate) value: Option<SharedValue>,
    /// What it shares with others, once it does.
    pub(crate) alias: Option<Box<Alias>>,
    /// How often it was written, while it shares nothing.
    pub(crate) version: u32,
    /// Where the gradient of the current value goes; of a leaf nothing.
    pub(crate) edge: Option<Edge>,
    /// Whether it is a leaf that accumulates a gradient.
    pub(crate) leaf: bool,
    /// Whether it keeps its gradient though it is no leaf.
    pub(crate) retains: bool,
    pub grad: Option<Py<Tensor>>,
}

/// Where the elements of a variable lie, and who counts writes to them.
pub(crate) struct Alias {
    pub storage: Arc<Storage>,
    /// How they are taken from the storage; `None` for all of it.
    pub path: Option<Arc<Path>>,
    pub meta: SharedMeta,
    pub strides: Dims,
    /// Of the first element, in elements of the storage.
    pub offset: i64,
    /// Shared by views and `detach()`; `.data` counts for itself.
    pub counter: Arc<Counter>,
    /// How it differs as a view from another variable; `None` after `detach()` and `.data`.
    pub view: Option<View>,
}

/// A view through which gradients flow.
pub(crate) struct View {
    /// The variable that it is a view of, itself none.
    pub root: Var,
    /// How it was taken; the first `skip` steps lead to the root.
    pub path: Option<Arc<Path>>,
    pub skip: usize,
    pub origin: Origin,
    /// The count at which the view's edge was made.
    pub version: u32,
}

/// Where a view was taken; writes through some are forbidden.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Recorded,
    NoGrad,
    /// One of several results: its place, and the function's name where the variable is itself one of them.
    Several(u16, Option<&'static str>),
}

impl View {
    pub(crate) fn again(&self) -> Self {
        Self { root: self.root.clone(), path: self.path.clone(), ..*self }
    }

    /// The operators from the root to the view.
    pub(crate) fn steps(&self) -> Vec<Step> {
        Path::steps(self.path.as_ref()).split_off(self.skip)
    }
}

/// A value that several variables share. Writing replaces it.
pub(crate) struct Storage(GilCell<Shared>);

struct Shared {
    value: SharedValue,
    /// Variables that may keep a view of the value; a write makes them forget it.
    views: Vec<WeakVar>,
    /// How long the list may become before the dead are taken out.
    views_max: usize,
}

impl Storage {
    pub(crate) fn new(value: SharedValue) -> Arc<Self> {
        Arc::new(Self(GilCell::new(Shared { value, views: Vec::new(), views_max: VIEWS_MIN })))
    }

    pub(crate) fn value(&self, py: Python<'_>) -> SharedValue {
        self.0.get(py).value.clone()
    }

    /// Whether nothing else holds the value: no saved operand, no copy that was never written.
    pub(crate) fn is_alone(&self, py: Python<'_>) -> bool {
        self.0.get(py).value.count(py) == 1
    }

    pub(crate) fn replace(&self, py: Python<'_>, value: SharedValue) {
        let old = std::mem::replace(&mut self.0.get_mut(py).value, value);
        drop(old);
    }

    pub(crate) fn register(&self, py: Python<'_>, view: &Var) {
        let mut shared = self.0.get_mut(py);
        if shared.views.len() >= shared.views_max {
            shared.views.retain(|view| view.is_alive(py));
            shared.views_max = VIEWS_MIN.max(2 * shared.views.len());
        }
        shared.views.push(view.downgrade(py));
    }

    /// Every view forgets what it has taken: it takes itself again at its next use, and until then holds no memory.
    pub(crate) fn forget_views(&self, py: Python<'_>) {
        let views = std::mem::take(&mut self.0.get_mut(py).views);
        let mut kept: Vec<WeakVar> = Vec::with_capacity(views.len());
        for view in views {
            if let Some(var) = view.upgrade(py) {
                var.forget(py, self);
                kept.push(view);
            }
        }
        self.0.get_mut(py).views.append(&mut kept);
    }
}

/// How often the memory was written, as autograd counts it.
#[derive(Default)]
pub(crate) struct Counter(AtomicU32);

impl Counter {
    pub(crate) fn starting(count: u32) -> Arc<Self> {
        Arc::new(Self(AtomicU32::new(count)))
    }

    pub(crate) fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// Short lists in place: a node is written out at every recorded instruction.
/// One recorded instruction.
pub(crate) struct Node {
    pub op: Op,
    pub attrs: Vec<Attr>,
    pub inputs: Inputs,
    pub outputs: SmallVec<[SharedMeta; 1]>,
    /// Order of recording: gradients are computed in the reverse of it.
    pub sequence: u64,
    pub site: u32,
    pub signal: u16,
    /// What the row's gradient formulas read again; `None` once a backward pass has freed it.
    pub saved: GilCell<Option<SavedValues>>,
    /// Variables that keep the gradient of an output (`retain_grad`).
    pub retained: GilCell<Vec<(u32, WeakVar)>>,
}

pub(crate) type SharedNode = Pooled<Node>;
pub(crate) type WeakNode = PooledWeak<Node>;

pub(crate) type Inputs = SmallVec<[Input; 2]>;
pub(crate) type SavedValues = SmallVec<[SavedValue; 2]>;

/// An operand as the tape keeps it.
pub(crate) struct Input {
    /// Where its gradient goes; `None` where it needs none.
    pub edge: Option<Edge>,
    pub meta: Option<SharedMeta>,
    pub scalar: Option<Scalar>,
}

/// A kept value, and what it was read from.
pub(crate) struct SavedValue {
    pub place: Place,
    pub value: SharedValue,
    pub watched: Watched,
}

/// Which operand or output a saved value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Operand(usize),
    Output(u32),
}

/// Where a gradient flows.
#[derive(Clone)]
pub(crate) enum Edge {
    /// Output `.1` of a recorded instruction.
    Node(SharedNode, u32),
    /// A leaf, whose `.grad` accumulates.
    Leaf(Var),
    /// A view that was taken under `no_grad`: it requires grad as what it is a view of does, but gradients end there.
    Nowhere,
}

/// What a saved value was read from: it must not have been written when it is used.
pub(crate) enum Watched {
    /// Nothing: the operator itself wrote what it had read.
    Never,
    Var(WeakVar, u32),
    Shared(Arc<Counter>, u32),
}

impl Watched {
    /// The count then and the count now, where they differ.
    pub(crate) fn modified(&self, py: Python<'_>) -> Option<(u32, u32)> {
        let (then, now) = match self {
            Self::Never => return None,
            Self::Var(var, then) => (*then, var.upgrade(py)?.version(py)),
            Self::Shared(counter, then) => (*then, counter.now()),
        };
        (then != now).then_some((then, now))
    }

    /// Whether both count the same memory.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Var(mine, _), Self::Var(its, _)) => mine.is(its),
            (Self::Shared(mine, _), Self::Shared(its, _)) => Arc::ptr_eq(mine, its),
            (_, _) => false,
        }
    }
}

impl Var {
    /// Shows `look` the current value; `None` where it has to be taken again since its memory was written. `look` calls
    /// nothing of Python's.
    #[inline]
    pub(crate) fn with_value<R>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&SharedValue) -> R,
    ) -> Option<R> {
        let state = self.0.get(py);
        match (&state.value, &state.alias) {
            (Some(value), _) => Some(look(value)),
            (None, Some(alias)) if alias.path.is_none() => Some(look(&alias.storage.value(py))),
            (None, Some(_)) => None,
            (None, None) => unreachable!("a variable without alias has a value"),
        }
    }

    /// A variable that shares its value with nobody.
    #[inline]
    pub(crate) fn new(py: Python<'_>, value: SharedValue, edge: Option<Edge>) -> Self {
        let state = State {
            value: Some(value),
            alias: None,
            version: 0,
            edge,
            leaf: false,
            retains: false,
            grad: None,
        };
        Self(Pooled::new(py, GilCell::new(state)))
    }

    /// Whether both are one variable.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }

    /// Tells it from all other variables that are alive.
    pub(crate) fn address(&self) -> usize {
        self.0.address()
    }

    /// What dropping it does, for those who have a token.
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
        let state = self.0.get(py);
        match (&state.alias, &state.value) {
            (Some(alias), _) => look(&alias.meta),
            (None, Some(value)) => look(&value.meta),
            (None, None) => unreachable!("a variable without alias has a value"),
        }
    }

    pub(crate) fn state<'a>(&'a self, py: Python<'a>) -> std::cell::RefMut<'a, State> {
        self.0.get_mut(py)
    }

    /// A write has changed `storage`: what was taken of it is void.
    pub(crate) fn forget(&self, py: Python<'_>, storage: &Storage) {
        let old = {
            let mut state = self.0.get_mut(py);
            let mine = state
                .alias
                .as_ref()
                .is_some_and(|alias| std::ptr::eq(alias.storage.as_ref(), storage));
            if mine { state.value.take() } else { None }
        };
        drop(old);
    }

    pub(crate) fn is_view(&self, py: Python<'_>) -> bool {
        self.0.get(py).alias.as_ref().is_some_and(|alias| alias.view.is_some())
    }

    /// In elements, as `PyTorch`'s `stride()`.
    pub(crate) fn strides(&self, py: Python<'_>) -> Dims {
        if let Some(alias) = &self.0.get(py).alias {
            return alias.strides;
        }
        contiguous(&self.meta(py).dims)
    }

    pub(crate) fn offset(&self, py: Python<'_>) -> i64 {
        self.0.get(py).alias.as_ref().map_or(0, |alias| alias.offset)
    }

    /// The storage, where it is shared.
    pub(crate) fn storage(&self, py: Python<'_>) -> Option<Arc<Storage>> {
        self.0.get(py).alias.as_ref().map(|alias| Arc::clone(&alias.storage))
    }

    /// How often the memory was written, as autograd counts it.
    pub(crate) fn version(&self, py: Python<'_>) -> u32 {
        let state = self.0.get(py);
        state.alias.as_ref().map_or(state.version, |alias| alias.counter.now())
    }

    /// For those who save the current value.
    pub(crate) fn watched(&self, py: Python<'_>) -> Watched {
        let state = self.0.get(py);
        match &state.alias {
            None => Watched::Var(self.downgrade(py), state.version),
            Some(alias) => Watched::Shared(Arc::clone(&alias.counter), alias.counter.now()),
        }
    }
}

impl WeakVar {
    pub(crate) fn upgrade(&self, py: Python<'_>) -> Option<Var> {
        self.0.upgrade(py).map(Var)
    }

    fn is_alive(&self, py: Python<'_>) -> bool {
        self.0.is_alive(py)
    }

    fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

/// Row-major strides.
pub(crate) fn contiguous(dims: &Dims) -> Dims {
    let mut strides = *dims;
    let mut stride = 1;
    for (place, size) in strides.as_mut_slice().iter_mut().rev().zip(dims.iter().rev()) {
        *place = stride;
        stride *= (*size).max(1);
    }
    strides
}
