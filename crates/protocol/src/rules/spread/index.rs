//! Look-ups: local along the dimensions that are not indexed, and along those of the indices.

use super::{Lead, Local, Question, Strategy, cut};
use crate::Attr;
use crate::placement::{Placement, ReduceOp};
use smallvec::SmallVec;

const SUM: Placement = Placement::Partial(ReduceOp::Sum);

pub(super) fn embedding(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let at = |dim: usize| cut(dim, lead.ranges);
    match (lead.position, lead.dim) {
        (0, 0) => masked(question, lead, question.answer([at(0)], [SUM])),
        (0, _) => Some(question.answer([at(1)], [at(question.out_rank()?.checked_sub(1)?)])),
        (_, dim) => Some(question.answer([Placement::Replicate, at(dim)], [at(dim)])),
    }
}

pub(super) fn embedding_backward(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let here = || cut(lead.dim, lead.ranges);
    if lead.dim < question.rank(1)? {
        return Some(question.answer([here(), here()], [SUM]));
    }
    Some(question.answer([here()], [cut(1, lead.ranges)]))
}

pub(super) fn index_select(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)?)?;
    let at = |dim: usize| cut(dim, lead.ranges);
    match lead.position {
        0 if dim == lead.dim => masked(question, lead, question.answer([at(dim)], [SUM])),
        0 => Some(question.answer([at(lead.dim)], [at(lead.dim)])),
        _ => (lead.dim == 0).then(|| question.answer([Placement::Replicate, at(0)], [at(dim)])),
    }
}

/// What is sorted stays whole.
pub(super) fn sort(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)?)?;
    if dim == lead.dim { None } else { question.alike(lead, lead.dim) }
}

pub(super) fn gather(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)?)?;
    let here = cut(lead.dim, lead.ranges);
    if lead.dim != dim {
        return question.alike(lead, lead.dim);
    }
    if lead.position == 1 {
        return Some(question.answer([Placement::Replicate, here.clone()], [here]));
    }
    masked(question, lead, question.answer([here], [SUM]))
}

/// Where the dimensions of an advanced index are among those of what it picks.
pub(super) struct Picks {
    /// Which dimensions of the operand have an index, as far as there are index operands.
    picked: SmallVec<[bool; 8]>,
    /// Dimensions of the indices together, and where they begin in the result.
    pub shared: usize,
    pub at: usize,
}

impl Picks {
    pub fn new(question: &Question<'_>, first: usize) -> Option<Self> {
        let indices = question.args.get(first..)?;
        let picked: SmallVec<[bool; 8]> = indices.iter().map(|arg| arg.meta.is_some()).collect();
        let shared = indices.iter().filter_map(|arg| Some(arg.meta?.dims.len())).max()?;
        let before = picked.iter().position(|&picked| picked)?;
        let run = picked.iter().skip(before).take_while(|&&picked| picked).count();
        let adjacent = run == picked.iter().filter(|&&picked| picked).count();
        Some(Self { picked, shared, at: if adjacent { before } else { 0 } })
    }

    /// Where a dimension of the operand that has no index is in the result.
    pub fn kept(&self, dim: usize) -> Option<usize> {
        if self.picked.get(dim) == Some(&true) {
            return None;
        }
        let before = dim - self.picked.iter().take(dim).filter(|&&picked| picked).count();
        Some(if before < self.at { before } else { before + self.shared })
    }

    /// Dimensions of what is picked of an operand of `rank`.
    pub fn part(&self, rank: usize) -> usize {
        let picked = self.picked.iter().filter(|&&picked| picked).count();
        rank.saturating_sub(picked) + self.shared
    }

    /// Whether a dimension of what is picked is one of the indices'.
    pub fn among_shared(&self, dim: usize) -> bool {
        (self.at..self.at + self.shared).contains(&dim)
    }
}

/// Advanced indexing: local along dimensions without an index and along those of the indices; where an index names
/// places of a cut dimension, each member looks up what it holds.
pub(super) fn index(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let picks = Picks::new(question, 1)?;
    let here = cut(lead.dim, lead.ranges);
    if lead.position == 0 {
        return match picks.kept(lead.dim) {
            Some(to) => Some(question.answer([here], [cut(to, lead.ranges)])),
            None => along(question, lead, question.answer([here], [SUM])),
        };
    }
    let from_end = question.rank(lead.position)? - lead.dim;
    let to = picks.at + picks.shared - from_end;
    // A cut dimension of size 1 may be what is stretched.
    if question.outputs.first()?.dims.get(to) != Some(&lead.size) {
        return None;
    }
    let mut needs = question.aligned(from_end, lead);
    *needs.first_mut()? = Placement::Replicate;
    Some(question.answer(needs, [cut(to, lead.ranges)]))
}

/// As [`masked`], along a dimension that has an index among others.
pub(super) fn along(
    question: &Question<'_>,
    lead: Lead<'_>,
    strategy: Strategy,
) -> Option<Strategy> {
    let attr = question.op.info().attr_index("along")?;
    let mut strategy = masked(question, lead, strategy)?;
    strategy.locals.push(Local::Value { attr, value: i64::try_from(lead.dim).ok()? });
    Some(strategy)
}

/// Each member looks up what it holds; what it does not hold counts as zero there, so that the sum is the whole.
pub(super) fn masked(
    question: &Question<'_>,
    lead: Lead<'_>,
    mut strategy: Strategy,
) -> Option<Strategy> {
    let info = question.op.info();
    let (start, total) = (info.attr_index("start")?, info.attr_index("total")?);
    // What is a shard of something larger already keeps its own range.
    let is_piece = *question.attr("total") != Attr::Absent;
    if is_piece || lead.ranges.iter().any(|intervals| intervals.len() > 1) {
        return None;
    }
    let ranges = lead.ranges.clone();
    strategy.locals.push(Local::Range { start, total, size: lead.size, ranges });
    Some(strategy)
}

/// The diagonal moves with the shard's first row or column.
pub(super) fn triangle(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let mut strategy = question.alike(lead, lead.dim)?;
    if lead.dim + 2 >= rank {
        if lead.ranges.iter().any(|intervals| intervals.len() > 1) {
            return None;
        }
        let attr = question.op.info().attr_index("diagonal")?;
        let factor = if lead.dim + 2 == rank { 1 } else { -1 };
        strategy.locals.push(Local::Shift { attr, factor, ranges: lead.ranges.clone() });
    }
    Some(strategy)
}
