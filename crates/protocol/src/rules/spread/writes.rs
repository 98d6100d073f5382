//! Writes by index tensors: local where the target is cut. What is added may be cut as its indices are: each member adds
//! what it has to its share of the target.

use super::index::{Picks, along, masked};
use super::{Lead, Question, Strategy, cut};
use crate::Dtype;
use crate::placement::{Placement, ReduceOp};

const SUM: Placement = Placement::Partial(ReduceOp::Sum);

/// Whether the writes add up. Those that replace do not: of two to one place the last one counts.
fn adds(question: &Question<'_>) -> bool {
    let sums = question.term(question.op.info().linear, 0).is_some();
    sums && question.meta(0).is_some_and(|target| target.dtype != Dtype::Bool)
}

pub(super) fn scatter(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)?)?;
    if dim != lead.dim {
        return question.alike(lead, lead.dim);
    }
    let here = || cut(dim, lead.ranges);
    if lead.position == 0 {
        return masked(question, lead, question.answer([here()], [here()]));
    }
    // The source may be larger than the index: then its shards are not those of what is read of it.
    let same = |position| {
        question.meta(position).is_some_and(|meta| meta.dims.get(dim) == Some(&lead.size))
    };
    let shares = adds(question) && same(1) && same(2);
    shares.then(|| question.answer([SUM, here(), here()], [SUM]))
}

pub(super) fn index_add(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)?)?;
    let at = |dim: usize| cut(dim, lead.ranges);
    match lead.position {
        0 if lead.dim == dim => masked(question, lead, question.answer([at(dim)], [at(dim)])),
        0 | 2 if lead.dim != dim => {
            let whole = Placement::Replicate;
            Some(question.answer([at(lead.dim), whole, at(lead.dim)], [at(lead.dim)]))
        }
        _ => adds(question).then(|| question.answer([SUM, at(0), at(dim)], [SUM])),
    }
}

pub(super) fn index_put(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let picks = Picks::new(question, 2)?;
    let rank = question.rank(0)?;
    let here = || cut(lead.dim, lead.ranges);
    if lead.position == 0 {
        let Some(to) = picks.kept(lead.dim) else {
            return along(question, lead, question.answer([here()], [here()]));
        };
        let values = question.aligned(picks.part(rank) - to, lead).get(1)?.clone();
        return Some(question.answer([here(), values], [here()]));
    }
    // Where the cut dimension is in the part that is written.
    let from_end = question.rank(lead.position)? - lead.dim;
    let end = if lead.position == 1 { picks.part(rank) } else { picks.at + picks.shared };
    let to = end.checked_sub(from_end)?;
    if !picks.among_shared(to) {
        let dim = (0..rank).find(|&dim| picks.kept(dim) == Some(to))?;
        let fits = question.meta(0)?.dims.get(dim) == Some(&lead.size);
        return fits
            .then(|| question.answer([cut(dim, lead.ranges), here()], [cut(dim, lead.ranges)]));
    }
    // A cut dimension of size 1 may be what is stretched.
    let from_end = picks.at + picks.shared - to;
    let size = |meta: &crate::Meta| {
        let dim = meta.dims.len().checked_sub(from_end)?;
        meta.dims.get(dim).copied()
    };
    let indices = question.args.iter().skip(2).filter_map(|arg| size(arg.meta?));
    let mut stretched = indices.filter(|&size| size != 1);
    if !adds(question) || stretched.next().unwrap_or(1) != lead.size {
        return None;
    }
    let values = question.aligned(picks.part(rank) - to, lead).get(1)?.clone();
    let mut needs = question.aligned(from_end, lead);
    *needs.get_mut(0)? = SUM;
    *needs.get_mut(1)? = values;
    Some(question.answer(needs, [SUM]))
}
