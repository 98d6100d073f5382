//! By the letter of the index equation that is cut: in both operands and not in the result, the result is a partial sum.

use super::{Lead, Local, Question, Strategy, cut};
use crate::Op;
use crate::placement::{Fold, Placement};

const SUM: Placement = Placement::Partial(Fold::Sum);

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    if question.op == Op::Linear {
        return linear(question, lead);
    }
    let (lhs, rhs) = (question.rank(0)?, question.rank(1)?);
    let out_rank = question.out_rank()?;
    let at = |dim: usize| cut(dim, lead.pieces);
    let from_end = if lead.position == 0 { lhs - lead.dim } else { rhs - lead.dim };
    // A vector has the letter that is summed over and no other.
    let (rows, columns) = (lhs > 1, rhs > 1);
    let summed = if lead.position == 0 { 1 } else { 1 + usize::from(columns) };
    if from_end == summed {
        let other = rhs - 1 - usize::from(columns);
        return Some(question.answer([at(lhs - 1), at(other)], [SUM]));
    }
    Some(match (lead.position, from_end) {
        (0, 2) => question.answer([at(lhs - 2)], [at(out_rank - 1 - usize::from(columns))]),
        (1, 1) => question.answer([Placement::Replicate, at(rhs - 1)], [at(out_rank - 1)]),
        (_, _) => {
            let kept = usize::from(rows) + usize::from(columns);
            let out = out_rank.checked_sub(from_end - 2 + kept)?;
            // A batch dimension of size 1 is stretched over the other operand's.
            if question.outputs.first()?.dims.get(out) != Some(&lead.size) {
                return None;
            }
            question.answer(question.aligned(from_end, lead), [at(out)])
        }
    })
}

fn linear(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let last = question.rank(0)?.checked_sub(1)?;
    if question.rank(1)? != 2 {
        return None;
    }
    let at = |dim: usize| cut(dim, lead.pieces);
    Some(match (lead.position, lead.dim) {
        (0, dim) if dim < last => question.answer([at(dim)], [at(dim)]),
        (0, _) | (1, 1) => with_bias_once(question, question.answer([at(last), at(1)], [SUM])),
        _ => {
            let whole = Placement::Replicate;
            question.answer([whole, at(0), at(0)], [at(question.out_rank()?.checked_sub(1)?)])
        }
    })
}

/// A partial sum of products has the bias in one member's contribution.
fn with_bias_once(question: &Question<'_>, mut strategy: Strategy) -> Strategy {
    if question.meta(2).is_some() {
        strategy.locals.push(Local::First { operand: 2 });
    }
    strategy
}

pub(super) fn partial(question: &Question<'_>, position: usize, fold: Fold) -> Option<Strategy> {
    if fold != Fold::Sum || position > 1 {
        return None;
    }
    let mut needs = [Placement::Replicate, Placement::Replicate];
    *needs.get_mut(position)? = SUM;
    let strategy = question.answer(needs, [SUM]);
    Some(if question.op == Op::Linear { with_bias_once(question, strategy) } else { strategy })
}
