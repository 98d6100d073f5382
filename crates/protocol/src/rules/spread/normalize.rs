//! Local unless a normalised dimension is cut (see `decomposition`); the weights' gradients are partial sums.

use super::{Lead, Question, SpreadArg, Strategy, cut};
use crate::Meta;
use crate::placement::{Placement, ReduceOp};

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let Some(normalized) = question.ints("normalized_shape") else {
        return (question.dim("dim", rank)? != lead.dim)
            .then(|| question.alike(lead, lead.dim))
            .flatten();
    };
    let is_data = |meta: &Meta| meta.dims.len() == rank;
    // A cut of a parameter says nothing of the rows.
    let rows = rank.checked_sub(normalized.len())?;
    if lead.dim >= rows || !is_data(question.meta(lead.position)?) {
        return None;
    }
    let here = || cut(lead.dim, lead.ranges);
    let need = |arg: &SpreadArg<'_>| arg.meta.filter(|meta| is_data(meta)).map(|_| here());
    let give = |meta: &Meta| if is_data(meta) { here() } else { Placement::Partial(ReduceOp::Sum) };
    Some(question.answer(
        question.args.iter().map(|arg| need(arg).unwrap_or_default()),
        question.outputs.iter().map(give),
    ))
}
