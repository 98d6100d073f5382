//! PyTorch's aliasing over immutable values: variables, views of them, and writes through either.
//!
//! A variable names a value that changes by being replaced. A view remembers how it was taken from its base; when the
//! base's root has been written since, the view takes itself again. A write through a view scatters into its base.

use super::emit::{self, Arg};
use super::errors;
use super::gil_cell::GilCell;
use super::tape::{self, Edge};
use super::tensor::Tensor;
use super::value::Value;
use gt_protocol::rules::ErrorClass;
use gt_protocol::{Attr, Dims, Meta, Op};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a Python tensor is a handle of.
pub(crate) struct Var(GilCell<State>);

pub(crate) struct State {
    value: Arc<Value>,
    /// Of a root: how often it was written. Of a view: its root's count when the view was last taken.
    writes: u32,
    /// Of a root: the count that autograd checks (`.data` does not raise it).
    version: u32,
    /// Where the gradient of the current value goes; of a leaf nothing.
    edge: Option<Edge>,
    /// Of a leaf: whether it accumulates a gradient.
    leaf: bool,
    pub grad: Option<Py<Tensor>>,
    view: Option<Box<View>>,
}

struct View {
    base: Arc<Var>,
    root: Arc<Var>,
    step: Step,
    strides: Dims,
    /// Grad mode where the view was taken: it is taken again under the same.
    recorded: bool,
}

/// How a view is taken from its base.
enum Step {
    Op {
        op: Op,
        attrs: SmallVec<[Attr; 2]>,
    },
    Detach,
    /// Like detach, and writes through it do not raise the version.
    Data,
}

/// A variable's value and where its gradient goes.
pub(crate) struct Resolved {
    pub value: Arc<Value>,
    pub edge: Option<Edge>,
}

impl Var {
    /// A variable of its own.
    pub(crate) fn new(value: Arc<Value>, edge: Option<Edge>) -> Arc<Self> {
        Arc::new(Self(GilCell::new(State {
            value,
            writes: 0,
            version: 0,
            edge,
            leaf: false,
            grad: None,
            view: None,
        })))
    }

    pub(crate) fn meta(&self, py: Python<'_>) -> Meta {
        self.0.get(py).value.meta
    }

    pub(crate) fn state<'a>(&'a self, py: Python<'a>) -> std::cell::RefMut<'a, State> {
        self.0.get_mut(py)
    }

    pub(crate) fn is_leaf(&self, py: Python<'_>) -> bool {
        self.0.get(py).edge.is_none()
    }

    pub(crate) fn requires_grad(&self, py: Python<'_>) -> bool {
        let state = self.0.get(py);
        state.leaf || state.edge.is_some()
    }

    /// Marks a leaf as one that accumulates gradients (or not).
    pub(crate) fn set_requires_grad(&self, py: Python<'_>, requires: bool) -> PyResult<()> {
        let mut state = self.0.get_mut(py);
        if state.edge.is_some() {
            if requires {
                return Ok(());
            }
            return Err(errors::mistake(
                py,
                ErrorClass::Runtime,
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable \
                 in a subgraph that doesn't require differentiation use var_no_grad = var.detach().",
            ));
        }
        if requires && !state.value.meta.dtype.is_float() {
            return Err(errors::mistake(
                py,
                ErrorClass::Runtime,
                "only Tensors of floating point dtype can require gradients",
            ));
        }
        state.leaf = requires;
        Ok(())
    }

    pub(crate) fn version(self: &Arc<Self>, py: Python<'_>) -> u32 {
        self.root(py).0.get(py).version
    }

    /// The variable that owns the storage.
    pub(crate) fn root(self: &Arc<Self>, py: Python<'_>) -> Arc<Self> {
        match &self.0.get(py).view {
            Some(view) => Arc::clone(&view.root),
            None => Arc::clone(self),
        }
    }

    pub(crate) fn is_view(&self, py: Python<'_>) -> bool {
        self.0.get(py).view.as_ref().is_some_and(|view| matches!(view.step, Step::Op { .. }))
    }

    /// In elements, as `PyTorch`'s `stride()`.
    pub(crate) fn strides(&self, py: Python<'_>) -> Dims {
        let state = self.0.get(py);
        state.view.as_ref().map_or_else(|| contiguous(&state.value.meta.dims), |view| view.strides)
    }

    /// The current value, taken again where the root has been written.
    pub(crate) fn resolve(self: &Arc<Self>, py: Python<'_>) -> PyResult<Resolved> {
        let stale = {
            let state = self.0.get(py);
            state.view.as_ref().is_some_and(|view| view.root.0.get(py).writes != state.writes)
        };
        if stale {
            self.take_again(py)?;
        }
        let state = self.0.get(py);
        let edge = match &state.edge {
            None if state.leaf => Some(Edge::Leaf(Arc::clone(self))),
            edge => edge.clone(),
        };
        Ok(Resolved { value: Arc::clone(&state.value), edge })
    }

    #[cold]
    fn take_again(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let (base, root, plan, recorded) = {
            let state = self.0.get(py);
            let Some(view) = &state.view else { return Ok(()) };
            let plan = match &view.step {
                Step::Op { op, attrs } => Some((*op, attrs.clone())),
                Step::Detach | Step::Data => None,
            };
            (Arc::clone(&view.base), Arc::clone(&view.root), plan, view.recorded)
        };
        let (value, edge) = match plan {
            None => (base.resolve(py)?.value, None),
            Some((op, attrs)) => {
                let before = tape::set_grad_enabled(recorded);
                let taken = emit::emit(py, op, &[Arg::Var(&base)], attrs);
                tape::set_grad_enabled(before);
                let taken = emit::only(taken?)?.resolve(py)?;
                (taken.value, taken.edge)
            }
        };
        let writes = root.0.get(py).writes;
        let old = {
            let mut state = self.0.get_mut(py);
            state.writes = writes;
            (std::mem::replace(&mut state.value, value), std::mem::replace(&mut state.edge, edge))
        };
        drop(old);
        Ok(())
    }

    /// A view of `self` by a view operator. Where `strides` is `None` the result is no view but a copy.
    pub(crate) fn view(
        self: &Arc<Self>,
        py: Python<'_>,
        op: Op,
        attrs: SmallVec<[Attr; 2]>,
        strides: Option<Dims>,
    ) -> PyResult<Arc<Self>> {
        let taken = emit::only(emit::emit(py, op, &[Arg::Var(self)], attrs.clone())?)?;
        if let Some(strides) = strides {
            taken.attach(py, self, Step::Op { op, attrs }, strides);
        }
        Ok(taken)
    }

    fn attach(self: &Arc<Self>, py: Python<'_>, base: &Arc<Self>, step: Step, strides: Dims) {
        let root = base.root(py);
        let mut state = self.0.get_mut(py);
        state.writes = root.0.get(py).writes;
        let recorded = tape::grad_enabled();
        state.view = Some(Box::new(View { base: Arc::clone(base), root, step, strides, recorded }));
    }

    /// `detach()` or `.data`: the same storage, no gradient.
    pub(crate) fn detached(self: &Arc<Self>, py: Python<'_>, data: bool) -> PyResult<Arc<Self>> {
        let twin = Self::new(self.resolve(py)?.value, None);
        let strides = self.strides(py);
        twin.attach(py, self, if data { Step::Data } else { Step::Detach }, strides);
        Ok(twin)
    }

    /// The checks that come before any write in place.
    pub(crate) fn check_writable(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        let meta = self.meta(py);
        let strides = self.strides(py);
        let overlaps =
            meta.dims.iter().zip(strides.iter()).any(|(&size, &stride)| size > 1 && stride == 0);
        if overlaps {
            return Err(errors::mistake(
                py,
                ErrorClass::Runtime,
                "unsupported operation: more than one element of the written-to tensor refers to a single memory \
                 location. Please clone() the tensor before performing the operation.",
            ));
        }
        if !tape::grad_enabled() {
            return Ok(());
        }
        if self.0.get(py).leaf {
            return Err(errors::mistake(
                py,
                ErrorClass::Runtime,
                "a leaf Variable that requires grad is being used in an in-place operation. \
                 Write it as `with gt.no_grad():` around the update",
            ));
        }
        if self.is_view(py) && self.root_is_leaf(py) {
            return Err(errors::mistake(
                py,
                ErrorClass::Runtime,
                "a view of a leaf Variable that requires grad is being used in an in-place operation.",
            ));
        }
        Ok(())
    }

    /// Whether this is a differentiable view of a leaf that requires grad.
    fn root_is_leaf(self: &Arc<Self>, py: Python<'_>) -> bool {
        let mut current = Arc::clone(self);
        loop {
            let next = {
                let state = current.0.get(py);
                match &state.view {
                    None => return state.leaf,
                    Some(view) if matches!(view.step, Step::Op { .. }) => Arc::clone(&view.base),
                    Some(_) => return false,
                }
            };
            current = next;
        }
    }

    /// Whether the value's buffer may be given to the operator that replaces it: nobody else names the value.
    /// `held` is how many references the caller itself holds.
    pub(crate) fn sole_owner(&self, py: Python<'_>, held: usize) -> bool {
        let state = self.0.get(py);
        state.view.is_none() && Arc::strong_count(&state.value) == 1 + held
    }

    /// Writes `new` (of this variable's shape and dtype) in place of the value: through views, into the root.
    pub(crate) fn write(self: &Arc<Self>, py: Python<'_>, new: &Arc<Self>) -> PyResult<()> {
        let resolved = new.resolve(py)?;
        let edge = if tape::grad_enabled() { resolved.edge } else { None };
        self.replace(
            py,
            resolved.value,
            edge,
            Kept { graph: !tape::grad_enabled(), version: false },
        )
    }

    fn replace(
        self: &Arc<Self>,
        py: Python<'_>,
        value: Arc<Value>,
        edge: Option<Edge>,
        kept: Kept,
    ) -> PyResult<()> {
        let through = {
            let state = self.0.get(py);
            state.view.as_ref().map(|view| {
                let step = match &view.step {
                    Step::Op { op, attrs } => Through::Op(*op, attrs.clone()),
                    Step::Detach => Through::Same { version: false },
                    Step::Data => Through::Same { version: true },
                };
                (Arc::clone(&view.base), Arc::clone(&view.root), step)
            })
        };
        if let Some((base, root, step)) = through {
            match step {
                Through::Same { version } => {
                    let kept = Kept { graph: true, version: kept.version || version };
                    base.replace(py, Arc::clone(&value), None, kept)?;
                }
                Through::Op(op, attrs) => {
                    let piece = Self::new(Arc::clone(&value), edge.clone());
                    let whole = scatter(py, &base, op, &attrs, &piece)?.resolve(py)?;
                    let base_edge = if kept.graph { None } else { whole.edge };
                    base.replace(py, whole.value, base_edge, kept)?;
                }
            }
            let writes = root.0.get(py).writes;
            self.set(py, value, edge, kept, |state| state.writes = writes);
            return Ok(());
        }
        self.set(py, value, edge, kept, |state| {
            state.writes = state.writes.wrapping_add(1);
            if !kept.version {
                state.version = state.version.wrapping_add(1);
            }
        });
        Ok(())
    }

    fn set(
        &self,
        py: Python<'_>,
        value: Arc<Value>,
        edge: Option<Edge>,
        kept: Kept,
        count: impl FnOnce(&mut State),
    ) {
        // What is replaced is dropped after the borrow: its destructor may run anything.
        let old = {
            let mut state = self.0.get_mut(py);
            count(&mut state);
            let old_value = std::mem::replace(&mut state.value, value);
            let old_edge = if kept.graph { None } else { std::mem::replace(&mut state.edge, edge) };
            (old_value, old_edge)
        };
        drop(old);
    }

    /// Puts another value in place without autograd's checks: optimizers, `x.data = y`.
    pub(crate) fn overwrite(self: &Arc<Self>, py: Python<'_>, value: Arc<Value>) -> PyResult<()> {
        self.replace(py, value, None, Kept { graph: true, version: false })
    }
}

/// What a write leaves as it is.
#[derive(Clone, Copy)]
struct Kept {
    /// The gradient's edge: under `no_grad`, and beyond a detached alias.
    graph: bool,
    /// The version that autograd checks: beyond `.data`.
    version: bool,
}

enum Through {
    Op(Op, SmallVec<[Attr; 2]>),
    Same { version: bool },
}

/// `base` with `piece` written where the view operator reads.
fn scatter(
    py: Python<'_>,
    base: &Arc<Var>,
    op: Op,
    attrs: &SmallVec<[Attr; 2]>,
    piece: &Arc<Var>,
) -> PyResult<Arc<Var>> {
    let dims = base.meta(py).dims;
    let back = match op {
        Op::Slice => Op::SliceScatter,
        Op::Select => Op::SelectScatter,
        Op::Diagonal => Op::DiagonalScatter,
        Op::Permute => {
            let attrs = SmallVec::from_elem(Attr::Ints(inverse(attrs, dims.len())), 1);
            return emit::only(emit::emit(py, Op::Permute, &[Arg::Var(piece)], attrs)?);
        }
        // reshape, and expand of size-1 dimensions to themselves
        _ => {
            let attrs = SmallVec::from_elem(Attr::Ints(dims), 1);
            return emit::only(emit::emit(py, Op::Reshape, &[Arg::Var(piece)], attrs)?);
        }
    };
    emit::only(emit::emit(py, back, &[Arg::Var(base), Arg::Var(piece)], attrs.clone())?)
}

fn inverse(attrs: &[Attr], rank: usize) -> Dims {
    let mut inverse = Dims::EMPTY;
    let Some(Attr::Ints(dims)) = attrs.first() else { return inverse };
    let signed_rank = i64::try_from(rank).unwrap_or(0);
    for place in 0..rank {
        let found = dims
            .iter()
            .position(|&dim| usize::try_from(dim.rem_euclid(signed_rank.max(1))) == Ok(place));
        let _ = inverse.push(found.and_then(|found| i64::try_from(found).ok()).unwrap_or(0));
    }
    inverse
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
