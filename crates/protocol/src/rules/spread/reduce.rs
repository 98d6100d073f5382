//! A reduction over other dimensions is local; over the cut one it is a partial result where the reduction is known.

use super::{Lead, Question, Strategy, cut, normal};
use crate::Attr;
use crate::placement::Placement;
use smallvec::{SmallVec, smallvec};

/// The dimensions that are reduced.
pub(super) fn folded(question: &Question<'_>) -> Option<SmallVec<[usize; 8]>> {
    let rank = question.rank(0)?;
    match question.attr("dim") {
        Attr::Absent => Some((0..rank).collect()),
        Attr::Int(dim) => Some(smallvec![normal(*dim, rank)?]),
        Attr::Ints(dims) if dims.is_empty() => Some((0..rank).collect()),
        Attr::Ints(dims) => dims.iter().map(|&dim| normal(dim, rank)).collect(),
        _ => None,
    }
}

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dims = folded(question)?;
    if !dims.contains(&lead.dim) {
        let before = dims.iter().filter(|&&dim| dim < lead.dim).count();
        let stays = question.out_rank() == question.rank(0);
        let to = if stays { lead.dim } else { lead.dim - before };
        // `argmax` without a dimension numbers the elements of the whole.
        return question.alike(lead, to);
    }
    let info = question.op.info();
    // A member without an element has no maximum.
    let fits = !info.nonempty || lead.ranges.sizes().all(|size| size > 0);
    let combined = info.reduce.filter(|_| fits)?;
    Some(question.answer([cut(lead.dim, lead.ranges)], [Placement::Partial(combined)]))
}
