//! Look-ups: local along the dimensions that are not indexed, and along those of the indices.

use super::{Lead, Local, Question, Strategy, cut};
use crate::Op;
use crate::placement::{Fold, Placement};

const SUM: Placement = Placement::Partial(Fold::Sum);

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let at = |dim: usize| cut(dim, lead.pieces);
    let whole = Placement::Replicate;
    match (question.op, lead.position) {
        (Op::Embedding, 1) => Some(question.answer([whole, at(lead.dim)], [at(lead.dim)])),
        (Op::Embedding, 0) if lead.dim == 1 => {
            Some(question.answer([at(1)], [at(question.out_rank()?.checked_sub(1)?)]))
        }
        (Op::Embedding, 0) => masked(question, lead, question.answer([at(0)], [SUM])),
        (Op::EmbeddingBackward, _) if lead.dim < question.rank(1)? => {
            Some(question.answer([at(lead.dim), at(lead.dim)], [SUM]))
        }
        (Op::EmbeddingBackward, 0) => Some(question.answer([at(lead.dim)], [at(1)])),
        (Op::Gather, position) => gather(question, lead, position),
        (Op::IndexSelect, 0) => {
            let dim = question.dim("dim", question.rank(0)?)?;
            if dim == lead.dim {
                return masked(question, lead, question.answer([at(dim)], [SUM]));
            }
            Some(question.answer([at(lead.dim)], [at(lead.dim)]))
        }
        (Op::IndexSelect, _) => {
            let dim = question.dim("dim", question.rank(0)?)?;
            let dim = if lead.dim == 0 { dim } else { return None };
            Some(question.answer([whole, at(0)], [at(dim)]))
        }
        (Op::Scatter | Op::ScatterAdd | Op::Sort | Op::Topk, _) => {
            let dim = question.dim("dim", question.rank(0)?)?;
            if dim == lead.dim { None } else { question.alike(lead, lead.dim) }
        }
        (Op::IndexAdd, 0 | 2) => {
            let dim = question.dim("dim", question.rank(0)?)?;
            if dim == lead.dim {
                return None;
            }
            Some(question.answer([at(lead.dim), whole, at(lead.dim)], [at(lead.dim)]))
        }
        (Op::Tril | Op::Triu, _) => triangle(question, lead),
        _ => None,
    }
}

fn gather(question: &Question<'_>, lead: Lead<'_>, position: usize) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)?)?;
    let here = cut(lead.dim, lead.pieces);
    if lead.dim != dim {
        return question.alike(lead, lead.dim);
    }
    if position == 1 {
        return Some(question.answer([Placement::Replicate, here.clone()], [here]));
    }
    masked(question, lead, question.answer([here], [SUM]))
}

/// Each member looks up what it holds; what it does not hold counts as zero there, so that the sum is the whole.
fn masked(question: &Question<'_>, lead: Lead<'_>, mut strategy: Strategy) -> Option<Strategy> {
    let info = question.op.info();
    let (start, total) = (info.attr_index("start")?, info.attr_index("total")?);
    if lead.pieces.iter().any(|intervals| intervals.len() > 1) {
        return None;
    }
    let pieces = lead.pieces.clone();
    strategy.locals.push(Local::Range { start, total, size: lead.size, pieces });
    Some(strategy)
}

/// The diagonal moves with the piece's first row or column.
fn triangle(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let mut strategy = question.alike(lead, lead.dim)?;
    if lead.dim + 2 >= rank {
        if lead.pieces.iter().any(|intervals| intervals.len() > 1) {
            return None;
        }
        let attr = question.op.info().attr_index("diagonal")?;
        let factor = if lead.dim + 2 == rank { 1 } else { -1 };
        strategy.locals.push(Local::Shift { attr, factor, pieces: lead.pieces.clone() });
    }
    Some(strategy)
}
