//! A number depends on its place in the whole tensor: each member draws its own box of it.

use super::{Lead, Local, Question, Strategy, cut};
use crate::placement::ShardRanges;
use smallvec::smallvec;

pub(super) fn follow(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let mut strategy = question.alike(lead, lead.dim)?;
    strategy.locals.push(random_box(question, lead.dim, lead.ranges)?);
    Some(strategy)
}

pub(super) fn made(question: &Question<'_>, dim: usize, ranges: &ShardRanges) -> Option<Strategy> {
    let attr = question.op.info().attr_index("size")?;
    let mut strategy = question.whole();
    strategy.gives = smallvec![cut(dim, ranges)];
    strategy.locals = smallvec![
        Local::Size { attr, entry: dim, ranges: ranges.clone() },
        random_box(question, dim, ranges)?,
    ];
    Some(strategy)
}

/// Boxes have one interval a dimension.
fn random_box(question: &Question<'_>, dim: usize, ranges: &ShardRanges) -> Option<Local> {
    let info = question.op.info();
    let (global, start) = (info.attr_index("global")?, info.attr_index("start")?);
    let boxes = ranges.iter().all(|intervals| intervals.len() <= 1);
    boxes.then(|| Local::Box { global, start, dim, ranges: ranges.clone() })
}
