//! Sharing of memory between variables: views, `detach()`, `.data`; and copies, which share a
//! value only.

use crate::client::emission::emit::{self, Arg};
use crate::client::session::{errors, runtime};
use crate::client::tape;
use crate::client::value::contiguous;
use crate::client::value::steps::{self, Attrs, Path, Step};
use crate::client::value::variable::{Alias, Counter, Origin, Storage, Var, View};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dims, Op};
use pyo3::prelude::*;
use smallvec::smallvec;
use std::sync::Arc;

impl Var {
    /// Moves the value to a storage that other variables can share.
    fn share(&self, py: Python<'_>) {
        if self.look(py).alias().is_some() {
            return;
        }
        let value = self.take_named(py).expect("a variable without alias has a value");
        let meta = value.meta.clone_ref(py);
        let mut state = self.state(py);
        let version = state.cold().map_or(0, |cold| cold.version);
        state.cold_mut().alias = Some(Box::new(Alias {
            storage: Storage::new(value),
            path: None,
            strides: contiguous(&meta.dims),
            meta,
            offset: 0,
            counter: Counter::starting(version),
            view: None,
        }));
    }

    /// Makes the memory read-only from here on; an error on a write says why.
    pub(crate) fn make_read_only(&self, py: Python<'_>, text: &str) {
        self.share(py);
        if let Some(alias) = self.look(py).alias() {
            alias.storage.set_read_only(py, text);
        }
    }

    /// A view of `self` by a view operator. If `layout` is `None`, the result is a copy and not a
    /// view.
    pub(crate) fn view(
        &self,
        py: Python<'_>,
        op: Op,
        attrs: Attrs,
        layout: Option<(Dims, i64)>,
    ) -> PyResult<Self> {
        let taken = emit::only(emit::emit(py, op, &[Arg::Var(self)], attrs.clone())?)?;
        if let Some((strides, offset)) = layout {
            self.share(py);
            let mut alias = self.alias_of(py);
            let (root, skip, from) = match &alias.view {
                Some(view) => (view.root(py), view.skip, view.origin),
                None => (self.clone(), Path::length(alias.path.as_ref()), Origin::Recorded),
            };
            let origin = match from {
                _ if !tape::grad_enabled() => Origin::NoGrad,
                Origin::Several(place, _) => Origin::Several(place, None),
                Origin::Function { several, .. } => Origin::Function { place: 0, several },
                from => from,
            };
            let version = alias.counter.now();
            let step = Step { op, attrs };
            let path = Path::extend(alias.path.as_ref(), step.clone(), alias.view.is_some());
            // The two paths differ only after `x.data = y` of a view x.
            let from_root = match alias.view.as_ref().map(|view| &view.path) {
                Some(viewed) if !Path::are_same(viewed.as_ref(), alias.path.as_ref()) => {
                    Path::extend(viewed.as_ref(), step, true)
                }
                Some(_) | None => Arc::clone(&path),
            };
            alias.path = Some(path);
            alias.meta = taken.shared_meta(py);
            (alias.strides, alias.offset) = (strides, alias.offset + offset);
            alias.view = Some(View { root, path: Some(from_root), skip, origin, version });
            taken.state(py).cold_mut().alias = Some(Box::new(alias));
            taken.register(py);
        }
        Ok(taken)
    }

    /// A copy of this variable's alias; placeholders where it shares nothing.
    fn alias_of(&self, py: Python<'_>) -> Alias {
        let state = self.look(py);
        let Some(alias) = state.alias() else { unreachable!("share() has made an alias") };
        Alias {
            storage: Arc::clone(&alias.storage),
            path: alias.path.clone(),
            meta: alias.meta.clone_ref(py),
            strides: alias.strides,
            offset: alias.offset,
            counter: Arc::clone(&alias.counter),
            view: alias.view.as_ref().map(View::again),
        }
    }

    /// Enters a view into its storage's list.
    fn register(&self, py: Python<'_>) {
        let storage = {
            let state = self.look(py);
            state
                .alias()
                .filter(|alias| alias.path.is_some())
                .map(|alias| Arc::clone(&alias.storage))
        };
        if let Some(storage) = storage {
            storage.register(py, self);
        }
    }

    /// Marks this view as one of several results of `function`.
    pub(crate) fn mark_multiple(&self, py: Python<'_>, place: u16, function: &'static str) {
        if let Some(view) = self.state(py).alias_mut().and_then(|alias| alias.view.as_mut())
            && view.origin != Origin::NoGrad
        {
            view.origin = Origin::Several(place, Some(function));
        }
    }

    /// Marks this variable, if it is a view, as a result of a user's function: from now on its
    /// gradient goes there.
    pub(crate) fn mark_of_function(&self, py: Python<'_>, place: u16, several: bool) {
        let mut state = self.state(py);
        let Some(alias) = state.alias_mut() else { return };
        let now = alias.counter.now();
        if let Some(view) = alias.view.as_mut() {
            view.origin = Origin::Function { place, several };
            view.version = now;
        }
    }

    /// `detach()` or `.data`: a variable with the same memory and no gradient.
    pub(crate) fn detached(&self, py: Python<'_>, data: bool) -> PyResult<Self> {
        runtime::begin_new_child(py)?; // else it would share the parent's value
        self.share(py);
        let mut alias = self.alias_of(py);
        alias.view = None;
        if data {
            alias.counter = Counter::starting(0);
        }
        let shared = Self::new(py, self.value(py)?, None);
        if alias.path.is_none() {
            shared.name(py, None);
        }
        shared.state(py).cold_mut().alias = Some(Box::new(alias));
        shared.register(py);
        Ok(shared)
    }

    /// A variable of all of the memory that this one is a part of: itself, its root, or, where no
    /// gradient depends on it, a detached one. `None` where the part's gradient is known, but not
    /// the whole that it is a part of.
    pub(crate) fn whole(&self, py: Python<'_>) -> Option<Self> {
        self.share(py);
        let mut alias = self.alias_of(py);
        let (elements, _) = self.memory(py);
        let shows_all = alias.offset == 0
            && alias.meta.dims.elements() == Some(elements)
            && alias.strides == contiguous(&alias.meta.dims);
        if shows_all && !self.is_conjugate(py) {
            return Some(self.clone());
        }
        let recorded = self.is_recorded(py);
        if let Some(view) = &alias.view
            && Path::are_same(view.path.as_ref(), alias.path.as_ref())
        {
            let root = view.root(py);
            let is_whole = root.look(py).alias().is_some_and(|root| root.path.is_none());
            if is_whole && (!recorded || root.requires_grad(py)) {
                return Some(root);
            }
        }
        if recorded {
            return None;
        }
        let value = alias.storage.value(py);
        let meta = value.meta.clone_ref(py);
        let whole = Self::new(py, value, None);
        whole.name(py, None);
        (alias.path, alias.view, alias.offset) = (None, None, 0);
        (alias.strides, alias.meta) = (contiguous(&meta.dims), meta);
        whole.state(py).cold_mut().alias = Some(Box::new(alias));
        Some(whole)
    }

    /// Number of elements of the memory that this variable is a part of, and number of variables
    /// that share it. A root that only this view refers to is not counted.
    pub(crate) fn memory(&self, py: Python<'_>) -> (i64, usize) {
        let elements = |dims: &Dims| dims.elements().expect("checked where the shape was made");
        let state = self.look(py);
        let Some(alias) = state.alias() else { return (elements(&self.meta(py).dims), 1) };
        let is_own = |view: &View| view.root.references(py) == 1;
        let unknown = usize::from(alias.view.as_ref().is_some_and(is_own));
        let sharing = Arc::strong_count(&alias.storage) - unknown;
        (elements(&alias.storage.value(py).meta.dims), sharing)
    }

    /// Stand-in for the address of the memory that this variable is a part of.
    pub(crate) fn memory_address(&self, py: Python<'_>) -> u64 {
        self.share(py);
        self.storage(py).expect("share() has made an alias").address(py)
    }

    /// Returns true if it shows the conjugates of the elements in its memory.
    pub(crate) fn is_conjugate(&self, py: Python<'_>) -> bool {
        let state = self.look(py);
        let path = state.alias().and_then(|alias| alias.path.as_ref());
        Path::steps(path).iter().filter(|step| steps::conjugates(step)).count() % 2 != 0
    }

    /// A detached variable that shows the part of this one's memory that `other`, of the same
    /// shape, shows of its own. Autograd counts this as its first write.
    pub(crate) fn shown_as(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        self.share(py);
        let storage = self.storage(py).expect("share() has made an alias");
        let mut alias = other.alias_of(py);
        let steps = Path::steps(alias.path.as_ref());
        let shared = Self::new(py, emit::take(py, storage.value(py), &steps)?, None);
        (alias.storage, alias.counter, alias.view) = (storage, Counter::starting(1), None);
        if alias.path.is_none() {
            shared.name(py, None);
        }
        shared.state(py).cold_mut().alias = Some(Box::new(alias));
        shared.register(py);
        Ok(shared)
    }

    /// Copies a restriction on writes from the view `other` to this view of the same memory.
    pub(crate) fn take_origin(&self, py: Python<'_>, other: &Self) {
        let origin = {
            let state = other.look(py);
            state.alias().and_then(|alias| alias.view.as_ref()).map(|view| view.origin)
        };
        let origin = match origin {
            None | Some(Origin::Recorded) => return,
            Some(Origin::NoGrad) => Origin::NoGrad,
            Some(Origin::Several(place, _)) => Origin::Several(place, None),
            Some(Origin::Function { several, .. }) => Origin::Function { place: 0, several },
        };
        if let Some(view) = self.state(py).alias_mut().and_then(|alias| alias.view.as_mut())
            && view.origin == Origin::Recorded
        {
            view.origin = origin;
        }
    }

    /// A variable with the same memory and the same gradient that is no view to autograd: a write
    /// to one does not count as a change of the other.
    pub(crate) fn unwatched(&self, py: Python<'_>) -> PyResult<Self> {
        let edge = self.edge(py)?;
        let shared = self.detached(py, true)?;
        shared.set_edge(py, edge);
        Ok(shared)
    }

    /// A new variable with the same value; the gradient flows through it.
    pub(crate) fn copied(&self, py: Python<'_>) -> PyResult<Self> {
        let resolved = self.resolve(py)?;
        let meta = **resolved.value.meta;
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
        Ok(Self::new(py, resolved.value, edge))
    }

    /// `x.data = other`: names the other's memory from here on. Views of the earlier memory keep
    /// that.
    pub(crate) fn rename(&self, py: Python<'_>, other: &Self) -> PyResult<()> {
        let value = other.value(py)?;
        other.share(py);
        let mut alias = other.alias_of(py);
        let value = alias.path.is_some().then_some(value);
        let old = {
            let mut state = self.state(py);
            let cold = state.cold_mut();
            alias.view = cold.alias.as_ref().and_then(|old| old.view.as_ref().map(View::again));
            alias.counter = match &cold.alias {
                Some(old) => Arc::clone(&old.counter),
                None => Counter::starting(cold.version),
            };
            cold.alias.replace(Box::new(alias))
        };
        self.name(py, value);
        drop(old);
        self.register(py);
        Ok(())
    }

    /// `x.set_(other)`: `x.data = other`, which autograd counts as a write.
    pub(crate) fn take_memory(&self, py: Python<'_>, other: &Self) -> PyResult<()> {
        let (mine, its) = (self.meta(py).dtype, other.meta(py).dtype);
        if mine != its {
            let (mine, its) = (mine.cpp_name(), its.cpp_name());
            let text = format!("Could not set tensor of type {its} to a tensor of type {mine}");
            return Err(errors::mistake(py, ErrorClass::Dtype, text));
        }
        self.rename(py, other)?;
        self.count(py);
        Ok(())
    }

    /// A variable of the same memory, a view of which this one may become in place: itself where it
    /// is a view, its successor where its gradient is recorded, else a detached variable of the
    /// same memory. No element is written, so elements may share memory.
    pub(crate) fn view_source(&self, py: Python<'_>) -> PyResult<Self> {
        if !self.is_view(py) && !self.is_recorded(py) {
            self.check_views(py)?;
            return self.detached(py, false);
        }
        self.check_writable(py, false)?;
        if self.is_view(py) { Ok(self.clone()) } else { self.successor(py) }
    }

    /// Refuses another shape while views exist whose gradients would go to positions of the old
    /// shape.
    fn check_views(&self, py: Python<'_>) -> PyResult<()> {
        let Some(storage) = self.storage(py).filter(|_| self.requires_grad(py)) else {
            return Ok(());
        };
        if !storage.has_recorded_view(py, self) {
            return Ok(());
        }
        Err(errors::mistake(
            py,
            ErrorClass::Runtime,
            "the tensor requires a gradient, has views that were taken while gradients were recorded, and no gradient is \
             recorded now: its shape cannot change in place; use the form without an underscore",
        ))
    }

    fn is_recorded(&self, py: Python<'_>) -> bool {
        tape::grad_enabled() && self.requires_grad(py)
    }

    /// Becomes `view`, which was taken of its source: another shape of the same memory. Autograd
    /// counts that as a write.
    pub(crate) fn change_shape(&self, py: Python<'_>, view: &Self) -> PyResult<()> {
        if self.is_view(py) || self.is_recorded(py) {
            self.become_view(py, view)?;
        } else {
            self.rename(py, view)?;
        }
        self.count(py);
        Ok(())
    }

    /// A new variable with this one's memory and gradient: it becomes the root of this one's views
    /// when this one becomes a view of it.
    fn successor(&self, py: Python<'_>) -> PyResult<Self> {
        self.share(py);
        let alias = self.alias_of(py);
        let successor = Self::new(py, self.value(py)?, self.edge(py)?);
        if alias.path.is_none() {
            successor.name(py, None);
        }
        successor.state(py).cold_mut().alias = Some(Box::new(alias));
        successor.register(py);
        Ok(successor)
    }

    /// Becomes `view`, which was taken of this variable, of its value or of its successor: takes
    /// over its shape, memory and edge.
    ///
    /// # Errors
    ///
    /// A variable that has views may become only a view itself, as long as its gradient is
    /// recorded.
    pub(crate) fn become_view(&self, py: Python<'_>, view: &Self) -> PyResult<()> {
        let is_base = self.look(py).alias().is_some_and(|alias| alias.view.is_none());
        let has_root = view.look(py).alias().is_some_and(|alias| alias.view.is_some());
        if is_base && !has_root {
            return Err(errors::mistake(
                py,
                ErrorClass::Runtime,
                "the tensor has views or is detached elsewhere, and requires a gradient: it cannot be detached in place; \
                 use the form without an underscore",
            ));
        }
        let resolved = view.resolve(py)?;
        let alias = view.look(py).alias().is_some().then(|| Box::new(view.alias_of(py)));
        let whole = alias.as_ref().is_some_and(|alias| alias.path.is_none());
        let old = {
            let mut state = self.state(py);
            let edge = std::mem::replace(&mut state.edge, resolved.edge);
            (edge, std::mem::replace(&mut state.cold_mut().alias, alias))
        };
        self.name(py, (!whole).then_some(resolved.value));
        drop(old);
        self.register(py);
        Ok(())
    }
}
