//! Losses over a cut batch: element by element, or a partial sum. A mean is rewritten as a sum and a quotient.

use super::{Lead, Question, Strategy, cut};
use crate::placement::{Fold, Placement};
use crate::{Attr, Op};

const NONE: u8 = 0;
const MEAN: u8 = 1;

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let Attr::Choice(reduction) = *question.attr("reduction") else { return None };
    let here = || cut(lead.dim, lead.pieces);
    let whole = || Placement::Replicate;
    let partial = || Placement::Partial(Fold::Sum);
    match question.op {
        Op::NllLoss if lead.position < 2 && lead.dim == 0 && question.rank(0)? > 1 => {
            match reduction {
                MEAN => None,
                NONE => Some(question.answer([here(), here(), whole()], [here(), partial()])),
                _ => Some(question.answer([here(), here(), whole()], [partial(), partial()])),
            }
        }
        Op::NllLossBackward if lead.position < 3 && lead.dim == 0 && question.rank(1)? > 1 => {
            let grad = if reduction == NONE { here() } else { whole() };
            Some(question.answer([grad, here(), here()], [here()]))
        }
        Op::MseLoss | Op::MseLossBackward => {
            let first = usize::from(question.op == Op::MseLossBackward);
            let dims = question.meta(first)?.dims;
            if question.meta(first + 1)?.dims != dims || dims.get(lead.dim) != Some(&lead.size) {
                return None;
            }
            let reduced = reduction != NONE;
            match (first, reduction) {
                (0, MEAN) => None,
                (0, _) => {
                    let give = if reduced { partial() } else { here() };
                    Some(question.answer([here(), here()], [give]))
                }
                // The gradient of a mean divides by the count of the whole.
                (_, MEAN) => None,
                (_, _) => {
                    let grad = if reduced { whole() } else { here() };
                    Some(question.answer([grad, here(), here()], [here()]))
                }
            }
        }
        _ => None,
    }
}
