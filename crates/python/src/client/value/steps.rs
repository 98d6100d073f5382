//! View operators as data: what leads from a whole value to a part of it, and how a part that was written goes back.

use gt_protocol::operator::Strided;
use gt_protocol::rules::{RuleArg, infer};
use gt_protocol::{Attr, Meta, Op};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

pub(crate) type Attrs = SmallVec<[Attr; 2]>;

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

    /// The path without its last steps.
    pub(crate) fn without(path: Option<&Arc<Self>>, count: usize) -> Option<&Arc<Self>> {
        (0..count).fold(path, |path, _| path.and_then(|path| path.parent.as_ref()))
    }

    /// Whether both are one path, not only equal ones.
    pub(crate) fn are_same(one: Option<&Arc<Self>>, other: Option<&Arc<Self>>) -> bool {
        one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
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
    let strided = strided(second.op);
    let dims = (first.op == second.op).then(|| strided.merged(&first.attrs, &second.attrs));
    Some(Step { op: second.op, attrs: smallvec![Attr::Ints(dims??)] })
}

/// What the table says of a view operator.
pub(crate) fn strided(op: Op) -> &'static Strided {
    match &op.info().strided {
        Some(strided) => strided,
        None => panic!("{} is no view operator", op.info().name),
    }
}

/// What a view operator that has been taken before makes of something of `meta`.
pub(crate) fn result_of(step: &Step, meta: Meta) -> Meta {
    match infer(step.op, &[RuleArg::Value(&meta)], &step.attrs) {
        Ok(metas) => *metas.first().expect("a view operator has one result"),
        Err(error) => panic!("{} of {meta} has been taken before: {error}", step.op.info().name),
    }
}

/// How a slice that a view operator has taken is written back.
pub(crate) enum Back {
    /// The slice is the whole: this operator is the inverse.
    Whole(Step),
    /// The slice is a part: this operator writes it over the whole.
    Part(Step),
    /// Elements are written by their numbers.
    ByNumber,
}

/// How to write what `step` has taken from a value of `meta`.
pub(crate) fn back(step: &Step, meta: &Meta) -> Back {
    let strided = strided(step.op);
    if let Some(op) = strided.scatter {
        return Back::Part(Step { op, attrs: step.attrs.clone() });
    }
    strided.undone(&step.attrs, &meta.dims).map_or(Back::ByNumber, |dims| {
        let takes_attrs = !step.op.info().attrs.is_empty();
        let attrs = takes_attrs.then_some(Attr::Ints(dims));
        Back::Whole(Step { op: step.op, attrs: attrs.into_iter().collect() })
    })
}

/// Whether the view is of everything.
pub(crate) fn is_whole(step: &Step) -> bool {
    strided(step.op).undo.is_some()
}

/// Whether the view shows not the elements themselves, but their conjugates.
pub(crate) fn conjugates(step: &Step) -> bool {
    step.op.info().selects.is_empty()
}

/// Whether what is written through the view is written by the numbers of its elements: they may be one element, so that a
/// copy of each is as good as the others only where it was written.
pub(crate) fn is_by_number(step: &Step) -> bool {
    let strided = strided(step.op);
    strided.undo.is_none() && strided.scatter.is_none()
}
