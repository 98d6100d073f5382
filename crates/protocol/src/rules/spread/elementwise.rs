//! Position by position: operands are cut where they are aligned with the result's cut dimension.

use super::{Lead, Question, Strategy, cut};
use crate::placement::{Fold, Placement};
use crate::{Attr, Op};

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

/// Linear operators let a sum pass, those that keep the order a maximum or a minimum. A sum and a whole value do not add
/// up: each member would add the value once more.
pub(super) fn partial(question: &Question<'_>, position: usize, fold: Fold) -> Option<Strategy> {
    let lies = |at: usize| question.args.get(at).filter(|arg| arg.meta.is_some());
    let same = |at: usize| lies(at).is_some_and(|arg| *arg.placement == Placement::Partial(fold));
    let partial = || Placement::Partial(fold);
    let whole = || Placement::Replicate;
    let extreme = matches!(fold, Fold::Max | Fold::Min);
    let needs = match (question.op, fold) {
        (Op::Neg, Fold::Sum) => vec![partial()],
        (op, _) if extreme && keeps_order(op) => vec![partial()],
        (Op::Cast, _) if fold != Fold::Prod && question.widens() => vec![partial()],
        (Op::Add | Op::Sub, Fold::Sum) if same(0) && same(1) && is_linear(question, 0) => {
            is_linear(question, 1).then(|| vec![partial(); 2])?
        }
        // A whole value may be among the contributions as often as it likes.
        (Op::Maximum, Fold::Max) | (Op::Minimum, Fold::Min) => {
            let need = |at: usize| if same(at) { partial() } else { whole() };
            vec![need(0), need(1)]
        }
        // Either extreme of both with something is the other's extreme with it.
        (Op::Maximum | Op::Minimum, _) if extreme => {
            let mut needs = vec![whole(), whole()];
            *needs.get_mut(position)? = partial();
            needs
        }
        (Op::Where, _) if same(1) && same(2) && is_linear(question, 1) => {
            is_linear(question, 2).then(|| vec![whole(), partial(), partial()])?
        }
        (Op::Where | Op::MaskedFill, _) if extreme && position != condition(question.op) => {
            let hands_on = question.keeps_dtype(position);
            let elements = |at| at != condition(question.op);
            return hands_on.then(|| question.extremes(fold, elements));
        }
        (Op::Clamp, _) if extreme && question.keeps_dtype(position) => {
            return Some(question.extremes(fold, |at| clamped_with(fold, position, at)));
        }
        // What is largest is smallest with the other sign; of integers the least has no other.
        (Op::Neg, _) if extreme && is_float(question, 0) => {
            let other = if fold == Fold::Max { Fold::Min } else { Fold::Max };
            return Some(question.answer([partial()], [Placement::Partial(other)]));
        }
        (Op::LeakyRelu, _) if extreme && rises(question) => vec![partial()],
        // The other factor is whole; an integer's quotient is rounded, so that only floats pass.
        (Op::Mul, Fold::Sum) if is_linear(question, position) => {
            if position == 0 {
                vec![partial(), whole()]
            } else {
                vec![whole(), partial()]
            }
        }
        (Op::Div, Fold::Sum) if position == 0 && is_float(question, 0) => vec![partial()],
        _ => return None,
    };
    Some(question.answer(needs, [partial()]))
}

/// For every number, so that a contribution that is not the extreme one may be any. What is no number stays none, or a
/// fold would lose it: no sign, which makes 0 of it.
fn keeps_order(op: Op) -> bool {
    matches!(
        op,
        Op::Relu
            | Op::Exp
            | Op::Expm1
            | Op::Tanh
            | Op::Sigmoid
            | Op::Erf
            | Op::Floor
            | Op::Ceil
            | Op::Round
            | Op::Trunc
    )
}

/// Whether `clamp` may take contributions of the operand `at` together with those of `position`: it is the maximum of the
/// first two, and the minimum of that and the third. A minimum does not pass a maximum of both, nor the other way round.
fn clamped_with(fold: Fold, position: usize, at: usize) -> bool {
    const UPPER: usize = 2;
    match fold {
        Fold::Max => (at == UPPER) == (position == UPPER),
        _ => at == UPPER || at == if position == UPPER { 0 } else { position },
    }
}

/// The operand that says which elements are handed on.
fn condition(op: Op) -> usize {
    usize::from(op != Op::Where)
}

fn rises(question: &Question<'_>) -> bool {
    matches!(question.attr("negative_slope"), Attr::Float(slope) if *slope >= 0.0)
}

fn is_float(question: &Question<'_>, position: usize) -> bool {
    question.meta(position).is_some_and(|meta| meta.dtype.is_float())
}

/// Contributions of integers add up in their own dtype only: they may wrap round.
fn is_linear(question: &Question<'_>, position: usize) -> bool {
    is_float(question, position) || question.keeps_dtype(position)
}
