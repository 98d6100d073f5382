//! How variables come to share memory: views, `detach()`, `.data`; and copies, which share a value only.

use crate::client::emission::emit::{self, Arg};
use crate::client::session::{errors, runtime};
use crate::client::tape;
use crate::client::value::contiguous;
use crate::client::value::steps::{Attrs, Path, Step};
use crate::client::value::variable::{Alias, Counter, Origin, Storage, Var, View};
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dims, Op};
use pyo3::prelude::*;
use smallvec::smallvec;
use std::sync::Arc;

impl Var {
    /// Lets others share the memory.
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

    /// Nobody may write its memory from here on: an error says why.
    pub(crate) fn make_read_only(&self, py: Python<'_>, text: &str) {
        self.share(py);
        if let Some(alias) = self.look(py).alias() {
            alias.storage.set_read_only(py, text);
        }
    }

    /// A view of `self` by a view operator. Where `layout` is `None` the result is no view but a copy.
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
            alias.meta = taken.shared_meta(py);
            (alias.strides, alias.offset) = (strides, alias.offset + offset);
            alias.view = Some(View { root, path: Some(from_root), skip, origin, version });
            taken.state(py).cold_mut().alias = Some(Box::new(alias));
            taken.register(py);
        }
        Ok(taken)
    }

    /// A copy of what this variable shares; empty places where it shares nothing.
    fn alias_of(&self, py: Python<'_>) -> Alias {
        let state = self.look(py);
        let Some(alias) = state.alias() else { unreachable!("share() made one") };
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

    /// Says that this view is one of several results of `function`.
    pub(crate) fn mark_multiple(&self, py: Python<'_>, place: u16, function: &'static str) {
        if let Some(view) = self.state(py).alias_mut().and_then(|alias| alias.view.as_mut())
            && view.origin != Origin::NoGrad
        {
            view.origin = Origin::Several(place, Some(function));
        }
    }

    /// `detach()` or `.data`: the same memory, no gradient.
    pub(crate) fn detached(&self, py: Python<'_>, data: bool) -> PyResult<Self> {
        runtime::begin_new_child(py)?; // or the twin would share what is the parent's
        self.share(py);
        let mut alias = self.alias_of(py);
        alias.view = None;
        if data {
            alias.counter = Counter::starting(0);
        }
        let twin = Self::new(py, self.value(py)?, None);
        if alias.path.is_none() {
            twin.name(py, None);
        }
        twin.state(py).cold_mut().alias = Some(Box::new(alias));
        twin.register(py);
        Ok(twin)
    }

    /// A variable of its own with the same value, through which the gradient flows.
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

    /// `x.data = other`: names the other's memory from here on. Views of what it named before keep that.
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

    /// A variable of the same memory, of which this one may become a view in place: itself where it is a view, its
    /// successor where its gradient is recorded, else a detached twin. No element is written, so elements may share memory.
    pub(crate) fn view_source(&self, py: Python<'_>) -> PyResult<Self> {
        if !self.is_view(py) && !self.is_recorded(py) {
            self.check_views(py)?;
            return self.detached(py, false);
        }
        self.check_writable(py, false)?;
        if self.is_view(py) { Ok(self.clone()) } else { self.successor(py) }
    }

    /// Refuses another shape where views would send their gradients to places of the old one.
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

    /// Becomes `view`, which was taken of its source: another shape of its memory. That is a write to autograd.
    pub(crate) fn change_shape(&self, py: Python<'_>, view: &Self) -> PyResult<()> {
        if self.is_view(py) || self.is_recorded(py) {
            self.become_view(py, view)?;
        } else {
            self.rename(py, view)?;
        }
        self.count(py);
        Ok(())
    }

    /// Another variable of its memory and its gradient: others' root in its place, once it becomes a view of that.
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

    /// Becomes `view`, which was taken of this variable, of its value or of its successor: its shape, memory and
    /// gradient's way.
    ///
    /// # Errors
    ///
    /// What others are views of becomes nothing but a view, as long as its gradient is recorded.
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

fn same_path(one: Option<&Arc<Path>>, other: Option<&Arc<Path>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}
