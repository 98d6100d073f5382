//! View operators as data: what leads from a whole value to a part of it, and how a part that was written goes back.

use gt_protocol::rules::{Arg as RuleArg, infer};
use gt_protocol::{Attr, Dims, Meta, Op};
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

/// What a view operator that has been taken before makes of something of `meta`.
pub(crate) fn result_of(step: &Step, meta: Meta) -> Meta {
    let result = infer(step.op, &[RuleArg::Value(&meta)], &step.attrs);
    result.ok().and_then(|metas| metas.first().copied()).unwrap_or(meta)
}

/// A dimension counted from the front.
pub(crate) fn wrapped(dim: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    usize::try_from(if dim < 0 { dim + rank } else { dim }).ok()
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
