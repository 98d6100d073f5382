//! Position by position: operands are cut where they are aligned with the result's cut dimension.

use super::{Lead, Question, Strategy, cut};
use crate::Op;
use crate::placement::{Fold, Placement};

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let from_end = question.rank(lead.position)? - lead.dim;
    let out_dim = question.out_rank()?.checked_sub(from_end)?;
    for output in question.outputs {
        // A cut dimension of size 1 may be what is stretched.
        if output.dims.len().checked_sub(from_end) != Some(out_dim)
            || output.dims.get(out_dim) != Some(&lead.size)
        {
            return None;
        }
    }
    let needs = question.aligned(from_end, lead);
    Some(question.answer(needs, question.outputs.iter().map(|_| cut(out_dim, lead.pieces))))
}

/// Linear operators let a sum pass. A sum and a whole value do not add up: each member would add the value once more.
pub(super) fn partial(question: &Question<'_>, position: usize, fold: Fold) -> Option<Strategy> {
    let lies = |at: usize| question.args.get(at).filter(|arg| arg.meta.is_some());
    let same = |at: usize| lies(at).is_some_and(|arg| *arg.placement == Placement::Partial(fold));
    let all = |count: usize| (0..count).all(same);
    let partial = Placement::Partial(fold);
    let needs = match (question.op, fold) {
        (Op::Neg, Fold::Sum) => vec![partial.clone()],
        (Op::Add | Op::Sub, Fold::Sum) | (Op::Maximum, Fold::Max) | (Op::Minimum, Fold::Min)
            if all(2) =>
        {
            vec![partial.clone(); 2]
        }
        // The other factor is whole; an integer's quotient is rounded, so that only floats pass.
        (Op::Mul, Fold::Sum) if position == 0 => vec![partial.clone(), Placement::Replicate],
        (Op::Mul, Fold::Sum) if position == 1 => vec![Placement::Replicate, partial.clone()],
        (Op::Div, Fold::Sum) if position == 0 && question.outputs.first()?.dtype.is_float() => {
            vec![partial.clone(), Placement::Replicate]
        }
        _ => return None,
    };
    Some(question.answer(needs, [partial]))
}
