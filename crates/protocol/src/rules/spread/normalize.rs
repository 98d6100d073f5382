//! Local unless a normalised dimension is cut (see `decomposition`); the weights' gradients are partial sums.

use super::{Lead, Question, Strategy, cut};
use crate::Op;
use crate::placement::{Fold, Placement};

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    match question.op {
        Op::LayerNorm | Op::LayerNormBackward => {
            let normalized = question.ints("normalized_shape")?.len();
            let backward = question.op == Op::LayerNormBackward;
            let data = if backward { 4 } else { 1 };
            // A cut of a parameter says nothing of the rows.
            if lead.position >= data || lead.dim >= rank.checked_sub(normalized)? {
                return None;
            }
            let here = cut(lead.dim, lead.pieces);
            let rest = if backward { Placement::Partial(Fold::Sum) } else { here.clone() };
            let needs = std::iter::repeat_n(here.clone(), data);
            Some(question.answer(needs, [here, rest.clone(), rest]))
        }
        _ if question.dim("dim", rank)? != lead.dim => question.alike(lead, lead.dim),
        _ => None,
    }
}
