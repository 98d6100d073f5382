//! A reduction over other dimensions is local; over the cut one it is a partial result where the fold is known.

use super::{Lead, Question, Strategy, cut, normal};
use crate::placement::{Fold, Placement};
use crate::{Attr, Op};
use smallvec::{SmallVec, smallvec};

/// The dimensions that are folded.
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
        let stays = question.op == Op::Cumsum || question.flag("keepdim");
        let to = if stays { lead.dim } else { lead.dim - before };
        // `argmax` without a dimension numbers the elements of the whole.
        return question.alike(lead, to);
    }
    let fold = match question.op {
        Op::Sum => Fold::Sum,
        Op::Prod => Fold::Prod,
        Op::Any => Fold::Max,
        Op::All => Fold::Min,
        // A member without an element has no maximum.
        Op::Amax if lead.pieces.sizes().all(|size| size > 0) => Fold::Max,
        Op::Amin if lead.pieces.sizes().all(|size| size > 0) => Fold::Min,
        _ => return None,
    };
    Some(question.answer([cut(lead.dim, lead.pieces)], [Placement::Partial(fold)]))
}

/// The fold of folds.
pub(super) fn partial(question: &Question<'_>, fold: Fold) -> Option<Strategy> {
    let passes = match question.op {
        // Contributions of integers add up in their own dtype only: they may wrap round. Those of floats are no integers.
        Op::Sum | Op::Cumsum | Op::Mean => fold == Fold::Sum && question.widens(),
        Op::Any => fold == Fold::Max && question.keeps_dtype(0),
        Op::All => fold == Fold::Min && question.keeps_dtype(0),
        Op::Amax => fold == Fold::Max,
        Op::Amin => fold == Fold::Min,
        Op::Prod => fold == Fold::Prod && question.keeps_dtype(0),
        _ => false,
    };
    passes.then(|| question.answer([Placement::Partial(fold)], [Placement::Partial(fold)]))
}
