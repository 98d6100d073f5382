//! Memory as PyTorch's users think of it: one value that several variables name, whole or through view operators.

use super::alias::Var;
use super::emit::{self, Arg};
use super::gil_cell::GilCell;
use super::value::Value;
use gt_protocol::{Attr, Dims, Meta, Op};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

pub(crate) type Attrs = SmallVec<[Attr; 2]>;

/// Below so many names of views their list is not searched for dead ones.
const VIEWS_MIN: usize = 8;

/// A value that several variables share. Writing replaces it.
pub(crate) struct Storage(GilCell<Shared>);

struct Shared {
    value: Arc<Value>,
    /// Variables that may keep a view of the value; a write makes them forget it.
    views: Vec<Weak<Var>>,
    /// How long the list may become before the dead are taken out.
    views_max: usize,
}

impl Storage {
    pub(crate) fn new(value: Arc<Value>) -> Arc<Self> {
        Arc::new(Self(GilCell::new(Shared { value, views: Vec::new(), views_max: VIEWS_MIN })))
    }

    pub(crate) fn value(&self, py: Python<'_>) -> Arc<Value> {
        Arc::clone(&self.0.get(py).value)
    }

    /// Whether nothing else holds the value: no saved operand, no copy that was never written.
    pub(crate) fn is_alone(&self, py: Python<'_>) -> bool {
        Arc::strong_count(&self.0.get(py).value) == 1
    }

    pub(crate) fn replace(&self, py: Python<'_>, value: Arc<Value>) {
        let old = std::mem::replace(&mut self.0.get_mut(py).value, value);
        drop(old);
    }

    pub(crate) fn register(&self, py: Python<'_>, view: &Arc<Var>) {
        let mut shared = self.0.get_mut(py);
        if shared.views.len() >= shared.views_max {
            shared.views.retain(|view| view.strong_count() > 0);
            shared.views_max = VIEWS_MIN.max(2 * shared.views.len());
        }
        shared.views.push(Arc::downgrade(view));
    }

    /// Every view forgets what it has taken: it takes itself again at its next use, and until then holds no memory.
    pub(crate) fn forget_views(&self, py: Python<'_>) {
        let views = std::mem::take(&mut self.0.get_mut(py).views);
        let mut kept: Vec<Weak<Var>> = Vec::with_capacity(views.len());
        for view in views {
            if let Some(var) = view.upgrade() {
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

/// One view operator.
#[derive(Clone)]
pub(crate) struct Step {
    pub op: Op,
    pub attrs: Attrs,
}

/// The view operators between a whole value and a part of it, the last one first.
pub(crate) struct Path {
    parent: Option<Arc<Path>>,
    step: Step,
    length: usize,
}

impl Path {
    /// `parent`, then `step`. Where `merge`, two steps that are one are made one, so that `x = x.t()` in a loop does not grow.
    pub(crate) fn extend(parent: Option<&Arc<Self>>, step: Step, merge: bool) -> Arc<Self> {
        if merge
            && let Some(last) = parent
            && let Some(merged) = merged(&last.step, &step)
        {
            let parent = last.parent.clone();
            return Arc::new(Self { parent, step: merged, length: last.length });
        }
        let length = Self::length(parent) + 1;
        Arc::new(Self { parent: parent.cloned(), step, length })
    }

    pub(crate) fn length(path: Option<&Arc<Self>>) -> usize {
        path.map_or(0, |path| path.length)
    }

    /// The steps in the order in which they are taken.
    pub(crate) fn steps(path: Option<&Arc<Self>>) -> Vec<Step> {
        let mut steps = Vec::with_capacity(Self::length(path));
        let mut current = path;
        while let Some(path) = current {
            steps.push(path.step.clone());
            current = path.parent.as_ref();
        }
        steps.reverse();
        steps
    }
}

/// A long path is freed in a loop, not by recursion.
impl Drop for Path {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut path) = next.and_then(Arc::into_inner) {
            next = path.parent.take();
        }
    }
}

fn merged(first: &Step, second: &Step) -> Option<Step> {
    match (first.op, second.op) {
        (Op::Reshape, Op::Reshape) | (Op::Expand, Op::Expand) => Some(second.clone()),
        (Op::Permute, Op::Permute) => {
            let (Some(Attr::Ints(inner)), Some(Attr::Ints(outer))) =
                (first.attrs.first(), second.attrs.first())
            else {
                return None;
            };
            let mut order = Dims::EMPTY;
            for &dim in outer.iter() {
                let _ = order.push(*inner.get(wrapped(dim, inner.len())?)?);
            }
            Some(Step { op: Op::Permute, attrs: smallvec![Attr::Ints(order)] })
        }
        _ => None,
    }
}

/// A dimension counted from the front.
pub(crate) fn wrapped(dim: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    usize::try_from(if dim < 0 { dim + rank } else { dim }).ok()
}

/// Takes `steps` from `value`, one after the other; nothing is recorded.
pub(crate) fn take(py: Python<'_>, value: Arc<Value>, steps: &[Step]) -> PyResult<Arc<Value>> {
    let mut value = value;
    for step in steps {
        value = unary(py, value, step)?;
    }
    Ok(value)
}

/// One unrecorded operator.
pub(crate) fn unary(py: Python<'_>, value: Arc<Value>, step: &Step) -> PyResult<Arc<Value>> {
    let operand = Var::new(value, None);
    emit::only(emit::emit(py, step.op, &[Arg::Var(&operand)], step.attrs.clone())?)?.value(py)
}

/// How a piece that a view operator has taken goes back.
pub(crate) enum Back {
    /// The piece is the whole: these operators turn it round.
    Whole(SmallVec<[Step; 2]>),
    /// The piece is a part: this operator writes it over the whole.
    Part(Step),
}

/// How to write what `step` has taken from a value of `meta`.
pub(crate) fn back(step: &Step, meta: &Meta) -> Back {
    let part = |op| Back::Part(Step { op, attrs: step.attrs.clone() });
    let reshape = Step { op: Op::Reshape, attrs: smallvec![Attr::Ints(meta.dims)] };
    match step.op {
        Op::Slice => part(Op::SliceScatter),
        Op::Select => part(Op::SelectScatter),
        Op::Diagonal => part(Op::DiagonalScatter),
        Op::Permute => {
            let attrs = smallvec![Attr::Ints(inverse(&step.attrs, meta.dims.len()))];
            Back::Whole(smallvec![Step { op: Op::Permute, attrs }])
        }
        Op::Expand => {
            let mut steps = first_of_expanded(step, &meta.dims);
            steps.push(reshape);
            Back::Whole(steps)
        }
        // Of the view operators only reshape is left.
        _ => Back::Whole(smallvec![reshape]),
    }
}

/// One element of each repeated dimension: all are the same (nothing else is written through an expanded view).
fn first_of_expanded(step: &Step, old: &Dims) -> SmallVec<[Step; 2]> {
    let mut steps = SmallVec::new();
    let Some(Attr::Ints(new)) = step.attrs.first() else { return steps };
    let added = new.len().saturating_sub(old.len());
    for (place, &size) in new.iter().enumerate() {
        let before = place.checked_sub(added).and_then(|place| old.get(place)).copied();
        if size != before.unwrap_or(1) {
            let place = i64::try_from(place).unwrap_or(0);
            let attrs = [place, 0, 1, 1].into_iter().map(Attr::Int).collect();
            steps.push(Step { op: Op::Slice, attrs });
        }
    }
    steps
}

fn inverse(attrs: &[Attr], rank: usize) -> Dims {
    let mut inverse = Dims::EMPTY;
    let Some(Attr::Ints(dims)) = attrs.first() else { return inverse };
    for place in 0..rank {
        let found = dims.iter().position(|&dim| wrapped(dim, rank) == Some(place));
        let _ = inverse.push(found.and_then(|found| i64::try_from(found).ok()).unwrap_or(0));
    }
    inverse
}
