//! PyTorch's aliasing over immutable values: variables, and views of them. Writing is in [`super::write`],
//! where gradients go in [`super::edge`].
//!
//! A variable names a value. As soon as another variable shares its memory (a view, `detach()`, `.data`), the value lies
//! in a [`Storage`]; a view remembers the operators that lead from there to it, and takes itself again after a write.
//! Which of them count a write is the [`Counter`]'s business, and through which the gradient flows the [`View`]'s.

use super::emit::{self, Arg};
use super::gil_cell::GilCell;
use super::storage::{self, Attrs, Counter, Path, Step, Storage};
use super::tape::{self, Edge};
use super::tensor::Tensor;
use super::value::Value;
use gt_protocol::{Attr, Dims, Meta, Op};
use pyo3::prelude::*;
use smallvec::smallvec;
use std::sync::{Arc, Weak};

/// What a Python tensor is a handle of.
pub(crate) struct Var(pub(super) GilCell<State>);

pub(crate) struct State {
    /// Of a variable without alias: its value. Of a view: what it has taken since the last write. Else nothing.
    pub(super) value: Option<Arc<Value>>,
    /// What it shares with others, once it does.
    pub(super) alias: Option<Box<Alias>>,
    /// How often it was written, while it shares nothing.
    pub(super) version: u32,
    /// Where the gradient of the current value goes; of a leaf nothing.
    pub(super) edge: Option<Edge>,
    /// Whether it is a leaf that accumulates a gradient.
    pub(super) leaf: bool,
    /// Whether it keeps its gradient though it is no leaf.
    pub(super) retains: bool,
    pub grad: Option<Py<Tensor>>,
}

/// Where the elements of a variable lie, and who counts writes to them.
pub(super) struct Alias {
    pub storage: Arc<Storage>,
    /// How they are taken from the storage; `None` for all of it.
    pub path: Option<Arc<Path>>,
    pub meta: Meta,
    pub strides: Dims,
    /// Of the first element, in elements of the storage.
    pub offset: i64,
    /// Shared by views and `detach()`; `.data` counts for itself.
    pub counter: Arc<Counter>,
    /// How it differs as a view from another variable; `None` after `detach()` and `.data`.
    pub view: Option<View>,
}

/// A view through which gradients flow.
pub(super) struct View {
    /// The variable that it is a view of, itself none.
    pub root: Arc<Var>,
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
    fn again(&self) -> Self {
        Self { root: Arc::clone(&self.root), path: self.path.clone(), ..*self }
    }

    /// The operators from the root to the view.
    pub(super) fn steps(&self) -> Vec<Step> {
        Path::steps(self.path.as_ref()).split_off(self.skip)
    }
}

/// A variable's value and where its gradient goes.
pub(crate) struct Resolved {
    pub value: Arc<Value>,
    /// Only while gradients are recorded.
    pub edge: Option<Edge>,
}

/// What a saved value was read from: it must not have been written when it is used.
pub(crate) enum Watched {
    /// Nothing: the operator itself wrote what it had read.
    Never,
    Var(Weak<Var>, u32),
    Shared(Arc<Counter>, u32),
}

impl Watched {
    /// The count then and the count now, where they differ.
    pub(crate) fn modified(&self, py: Python<'_>) -> Option<(u32, u32)> {
        let (then, now) = match self {
            Self::Never => return None,
            Self::Var(var, then) => (*then, var.upgrade()?.version(py)),
            Self::Shared(counter, then) => (*then, counter.now()),
        };
        (then != now).then_some((then, now))
    }

    /// Whether both count the same memory.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Var(mine, _), Self::Var(its, _)) => Weak::ptr_eq(mine, its),
            (Self::Shared(mine, _), Self::Shared(its, _)) => Arc::ptr_eq(mine, its),
            (_, _) => false,
        }
    }
}

impl Var {
    /// A variable that shares its value with nobody.
    pub(crate) fn new(value: Arc<Value>, edge: Option<Edge>) -> Arc<Self> {
        Arc::new(Self(GilCell::new(State {
            value: Some(value),
            alias: None,
            version: 0,
            edge,
            leaf: false,
            retains: false,
            grad: None,
        })))
    }

    pub(crate) fn meta(&self, py: Python<'_>) -> Meta {
        let state = self.0.get(py);
        match (&state.alias, &state.value) {
            (Some(alias), _) => alias.meta,
            (None, Some(value)) => value.meta,
            (None, None) => unreachable!("a variable without alias has a value"),
        }
    }

    pub(crate) fn state<'a>(&'a self, py: Python<'a>) -> std::cell::RefMut<'a, State> {
        self.0.get_mut(py)
    }

    /// Shows `look` the value, the edge, and whether this is a leaf that accumulates a gradient; `None` for a view. `look`
    /// calls nothing of Python's.
    pub(super) fn glance<R>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&Arc<Value>, Option<&Edge>, bool) -> R,
    ) -> Option<R> {
        let state = self.0.get(py);
        match (&state.alias, &state.value) {
            (None, Some(value)) => Some(look(value, state.edge.as_ref(), state.leaf)),
            (Some(alias), _) if alias.path.is_none() && alias.view.is_none() => {
                Some(look(&alias.storage.value(py), state.edge.as_ref(), state.leaf))
            }
            (Some(_), _) | (None, None) => None,
        }
    }

    /// The current value and edge, taken again where the memory has been written.
    pub(crate) fn resolve(self: &Arc<Self>, py: Python<'_>) -> PyResult<Resolved> {
        {
            let state = self.0.get(py);
            if let (None, Some(value)) = (&state.alias, &state.value) {
                let edge = match &state.edge {
                    None if state.leaf => Some(Edge::Leaf(Arc::clone(self))),
                    edge => edge.clone(),
                };
                return Ok(Resolved { value: Arc::clone(value), edge });
            }
        }
        let edge = if tape::grad_enabled() { self.edge(py)? } else { None };
        Ok(Resolved { value: self.value(py)?, edge })
    }

    /// The current value.
    pub(crate) fn value(self: &Arc<Self>, py: Python<'_>) -> PyResult<Arc<Value>> {
        let (storage, steps) = {
            let state = self.0.get(py);
            match (&state.value, &state.alias) {
                (Some(value), _) => return Ok(Arc::clone(value)),
                (None, Some(alias)) => match &alias.path {
                    None => return Ok(alias.storage.value(py)),
                    path @ Some(_) => (Arc::clone(&alias.storage), Path::steps(path.as_ref())),
                },
                (None, None) => unreachable!("a variable without alias has a value"),
            }
        };
        let before = tape::set_grad_enabled(false);
        let taken = storage::take(py, storage.value(py), &steps);
        tape::set_grad_enabled(before);
        let taken = taken?;
        let old = self.0.get_mut(py).value.replace(Arc::clone(&taken));
        drop(old);
        Ok(taken)
    }

    /// A write has changed `storage`: what was taken of it is void.
    pub(super) fn forget(&self, py: Python<'_>, storage: &Storage) {
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

    /// Lets others share the memory.
    fn share(&self, py: Python<'_>) {
        let mut state = self.0.get_mut(py);
        if state.alias.is_some() {
            return;
        }
        let Some(value) = state.value.take() else { return };
        let meta = value.meta;
        state.alias = Some(Box::new(Alias {
            storage: Storage::new(value),
            path: None,
            meta,
            strides: contiguous(&meta.dims),
            offset: 0,
            counter: Counter::starting(state.version),
            view: None,
        }));
    }

    /// A view of `self` by a view operator. Where `lies` is `None` the result is no view but a copy.
    pub(crate) fn view(
        self: &Arc<Self>,
        py: Python<'_>,
        op: Op,
        attrs: Attrs,
        lies: Option<(Dims, i64)>,
    ) -> PyResult<Arc<Self>> {
        let taken = emit::only(emit::emit(py, op, &[Arg::Var(self)], attrs.clone())?)?;
        if let Some((strides, offset)) = lies {
            self.share(py);
            let mut alias = self.alias_of(py);
            let (root, skip, from) = match &alias.view {
                Some(view) => (Arc::clone(&view.root), view.skip, view.origin),
                None => (Arc::clone(self), Path::length(alias.path.as_ref()), Origin::Recorded),
            };
            let origin = match from {
                _ if !tape::grad_enabled() => Origin::NoGrad,
                Origin::Several(place, _) => Origin::Several(place, None),
                from => from,
            };
            let version = alias.counter.now();
            let step = Step { op, attrs };
            let path = Path::extend(alias.path.as_ref(), step.clone(), alias.view.is_some());
            // Two paths only after `x.data = y` of a view x.
            let from_root = match alias.view.as_ref().map(|view| &view.path) {
                Some(viewed) if !same_path(viewed.as_ref(), alias.path.as_ref()) => {
                    Path::extend(viewed.as_ref(), step, true)
                }
                Some(_) | None => Arc::clone(&path),
            };
            alias.path = Some(path);
            alias.meta = taken.meta(py);
            (alias.strides, alias.offset) = (strides, alias.offset + offset);
            alias.view = Some(View { root, path: Some(from_root), skip, origin, version });
            taken.0.get_mut(py).alias = Some(Box::new(alias));
            taken.register(py);
        }
        Ok(taken)
    }

    /// A copy of what this variable shares; empty places where it shares nothing.
    fn alias_of(&self, py: Python<'_>) -> Alias {
        let state = self.0.get(py);
        let Some(alias) = &state.alias else { unreachable!("share() made one") };
        Alias {
            storage: Arc::clone(&alias.storage),
            path: alias.path.clone(),
            meta: alias.meta,
            strides: alias.strides,
            offset: alias.offset,
            counter: Arc::clone(&alias.counter),
            view: alias.view.as_ref().map(View::again),
        }
    }

    /// Enters a view into its storage's list.
    fn register(self: &Arc<Self>, py: Python<'_>) {
        let storage = {
            let state = self.0.get(py);
            state
                .alias
                .as_ref()
                .filter(|alias| alias.path.is_some())
                .map(|alias| Arc::clone(&alias.storage))
        };
        if let Some(storage) = storage {
            storage.register(py, self);
        }
    }

    /// Says that this view is one of several results of `function`.
    pub(crate) fn mark_piece(&self, py: Python<'_>, place: u16, function: &'static str) {
        if let Some(view) = self.0.get_mut(py).alias.as_mut().and_then(|alias| alias.view.as_mut())
            && view.origin != Origin::NoGrad
        {
            view.origin = Origin::Several(place, Some(function));
        }
    }

    /// `detach()` or `.data`: the same memory, no gradient.
    pub(crate) fn detached(self: &Arc<Self>, py: Python<'_>, data: bool) -> PyResult<Arc<Self>> {
        self.share(py);
        let mut alias = self.alias_of(py);
        alias.view = None;
        if data {
            alias.counter = Counter::starting(0);
        }
        let twin = Self::new(self.value(py)?, None);
        {
            let mut state = twin.0.get_mut(py);
            if alias.path.is_none() {
                state.value = None;
            }
            state.alias = Some(Box::new(alias));
        }
        twin.register(py);
        Ok(twin)
    }

    /// A variable of its own with the same value, through which the gradient flows.
    pub(crate) fn copied(self: &Arc<Self>, py: Python<'_>) -> PyResult<Arc<Self>> {
        let resolved = self.resolve(py)?;
        let meta = resolved.value.meta;
        let edge = match resolved.edge {
            Some(edge) if tape::grad_enabled() => Some(tape::link(
                py,
                Op::Reshape,
                smallvec![Attr::Ints(meta.dims)],
                vec![(Some(edge), meta)],
                meta,
            )),
            Some(_) | None => None,
        };
        Ok(Self::new(resolved.value, edge))
    }

    /// `x.data = other`: names the other's memory from here on. Views of what it named before keep that.
    pub(crate) fn rename(self: &Arc<Self>, py: Python<'_>, other: &Arc<Self>) -> PyResult<()> {
        let value = other.value(py)?;
        other.share(py);
        let mut alias = other.alias_of(py);
        let old = {
            let mut state = self.0.get_mut(py);
            alias.view = state.alias.as_ref().and_then(|old| old.view.as_ref().map(View::again));
            alias.counter = match &state.alias {
                Some(old) => Arc::clone(&old.counter),
                None => Counter::starting(state.version),
            };
            let value = alias.path.is_some().then_some(value);
            (std::mem::replace(&mut state.value, value), state.alias.replace(Box::new(alias)))
        };
        drop(old);
        self.register(py);
        Ok(())
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
    pub(super) fn storage(&self, py: Python<'_>) -> Option<Arc<Storage>> {
        self.0.get(py).alias.as_ref().map(|alias| Arc::clone(&alias.storage))
    }

    /// How often the memory was written, as autograd counts it.
    pub(crate) fn version(&self, py: Python<'_>) -> u32 {
        let state = self.0.get(py);
        state.alias.as_ref().map_or(state.version, |alias| alias.counter.now())
    }

    /// For those who save the current value.
    pub(crate) fn watched(self: &Arc<Self>, py: Python<'_>) -> Watched {
        let state = self.0.get(py);
        match &state.alias {
            None => Watched::Var(Arc::downgrade(self), state.version),
            Some(alias) => Watched::Shared(Arc::clone(&alias.counter), alias.counter.now()),
        }
    }
}

fn same_path(one: Option<&Arc<Path>>, other: Option<&Arc<Path>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
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
