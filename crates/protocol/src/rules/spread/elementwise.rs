//! Position by position: operands are cut where they are aligned with the result's cut dimension.

use super::{Lead, Question, Strategy, cut};

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
    Some(question.answer(needs, question.outputs.iter().map(|_| cut(out_dim, lead.ranges))))
}
