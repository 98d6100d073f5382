//! Losses over a cut batch: element by element, or a partial sum. A mean is decomposed into a sum and a quotient.
//! Over cut classes each member has the targets in its shard.

use super::index::masked;
use super::{Lead, Question, Strategy, cut};
use crate::Attr;
use crate::placement::{Placement, ReduceOp};

const NONE: u8 = 0;
const MEAN: u8 = 1;

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let Attr::Choice(reduction) = *question.attr("reduction") else { return None };
    let info = question.op.info();
    // A gradient's scores stand behind the gradient of the loss.
    let first = info.operands.iter().position(|operand| operand.name != "grad")?;
    if info.attr_index("ignore_index").is_some() {
        return likelihood(question, lead, first, reduction);
    }
    let dims = question.meta(first)?.dims;
    let fits = question.meta(first + 1)?.dims == dims && dims.get(lead.dim) == Some(&lead.size);
    // The gradient of a mean divides by the count of the whole.
    if reduction == MEAN || !fits {
        return None;
    }
    let here = || cut(lead.dim, lead.ranges);
    let (whole, partial) = (Placement::Replicate, Placement::Partial(ReduceOp::Sum));
    Some(match (first, reduction) {
        (0, NONE) => question.answer([here(), here()], [here()]),
        (0, _) => question.answer([here(), here()], [partial]),
        (_, NONE) => question.answer([here(), here(), here()], [here()]),
        (_, _) => question.answer([whole, here(), here()], [here()]),
    })
}

/// Losses of classes: the scores are operand `first`, then come the targets and the weight of each class.
fn likelihood(
    question: &Question<'_>,
    lead: Lead<'_>,
    first: usize,
    reduction: u8,
) -> Option<Strategy> {
    let rank = question.rank(first)?;
    let class = usize::from(rank > 1);
    let target = first + 1;
    let each = first == 1 && lead.position == 0 && reduction == NONE;
    if lead.position == target || each {
        // Targets have every dimension of the scores but the classes'.
        let dim = lead.dim + usize::from(lead.dim >= class);
        return if rank > 1 { batch(question, lead, first, dim, reduction) } else { None };
    }
    if lead.position == first && lead.dim != class {
        return batch(question, lead, first, lead.dim, reduction);
    }
    let of_classes = lead.position == first || lead.position == target + 1;
    if of_classes { classes(question, lead, (first, class), reduction) } else { None }
}

/// Dimension `dim` of the scores is cut, and so is that of the targets.
fn batch(
    question: &Question<'_>,
    lead: Lead<'_>,
    first: usize,
    dim: usize,
    reduction: u8,
) -> Option<Strategy> {
    let scores = || cut(dim, lead.ranges);
    let targets = || cut(dim - usize::from(dim > 1), lead.ranges);
    let whole = Placement::Replicate;
    let partial = || Placement::Partial(ReduceOp::Sum);
    if first == 1 {
        let grad = if reduction == NONE { targets() } else { whole };
        return Some(question.answer([grad, scores(), targets()], [scores()]));
    }
    let (loss, weight) = match reduction {
        NONE => (targets(), whole),
        MEAN => return None,
        _ => (partial(), partial()),
    };
    let needs = [scores(), targets()];
    Some(if question.outputs.len() == 3 {
        question.answer(needs, [loss, scores(), weight])
    } else {
        question.answer(needs, [loss, weight])
    })
}

/// The classes are cut: a target outside of a member's shard counts as zero there.
fn classes(
    question: &Question<'_>,
    lead: Lead<'_>,
    (first, class): (usize, usize),
    reduction: u8,
) -> Option<Strategy> {
    let scores = || cut(class, lead.ranges);
    let each = || cut(0, lead.ranges);
    let whole = || Placement::Replicate;
    let partial = || Placement::Partial(ReduceOp::Sum);
    let smooths = question.op.info().attr_index("label_smoothing").is_some();
    let strategy = match (first, reduction) {
        (0, _) if smooths => return None,
        (0, NONE) => question.answer([scores(), whole(), each()], [partial(), whole()]),
        (0, MEAN) => return None,
        (0, _) => question.answer([scores(), whole(), each()], [partial(), partial()]),
        // The sum of a row's gradients takes the weights of all classes.
        (_, _) if smooths => question.answer([whole(), scores()], [scores()]),
        (_, _) => question.answer([whole(), scores(), whole(), each()], [scores()]),
    };
    masked(question, lead, strategy)
}
