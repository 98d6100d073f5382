//! View operators as data: the operators that lead from a whole value to a part of it, and those
//! that write a part back.

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
    /// `parent`, then `step`. With `merge`, two steps that equal one are merged, so that `x =
    /// x.t()` in a loop does not grow.
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

    /// Returns true if both are the same path object, not only equal ones.
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

/// The view columns of an operator's row.
pub(crate) fn strided(op: Op) -> &'static Strided {
    match &op.info().strided {
        Some(strided) => strided,
        None => panic!("{} is no view operator", op.info().name),
    }
}

/// Metadata of the result of a view operator on a value of `meta`; the same step has succeeded
/// before.
pub(crate) fn result_of(step: &Step, meta: Meta) -> Meta {
    match infer(step.op, &[RuleArg::Value(&meta)], &step.attrs) {
        Ok(metas) => *metas.first().expect("a view operator has one result"),
        Err(error) => panic!("{} of {meta} succeeded before: {error}", step.op.info().name),
    }
}

/// Operator that writes back a slice which a view operator has taken.
pub(crate) enum Back {
    /// The view has all elements: this operator is the inverse.
    Whole(Step),
    /// The view has some of the elements: this operator writes it over the whole.
    Part(Step),
    /// Elements are written by their indices.
    ByNumber,
}

/// Operator that writes back the slice which `step` has taken from a value of `meta`.
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

/// Returns true if the view has all elements.
pub(crate) fn is_whole(step: &Step) -> bool {
    strided(step.op).undo.is_some()
}

/// Returns true if the view shows the elements' conjugates.
pub(crate) fn conjugates(step: &Step) -> bool {
    step.op.info().selects.is_empty()
}

/// Returns true if a write through the view goes by the elements' indices: the view may have
/// several copies of one element, and only the copy that was written is up to date.
pub(crate) fn is_by_number(step: &Step) -> bool {
    let strided = strided(step.op);
    strided.undo.is_none() && strided.scatter.is_none()
}
