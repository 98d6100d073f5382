//! Views that take from a cut dimension, write into it or add to it: each member does so with what it holds, and what
//! comes of it stays where it is. Nothing moves; the shards may be uneven then.

use super::{Lead, Local, Question, Strategy, cut};
use crate::placement::{Interval, Intervals, ShardRanges};

/// A dimension that is put together may be held in this many intervals; more of them cost more than they save.
pub(super) const INTERVALS_MAX: usize = 256;

/// A range of indexes, each `step`th of it.
struct Range {
    start: i64,
    end: i64,
    step: i64,
}

impl Range {
    /// Attributes `start`, `end` and `step`, which count from the back where they are negative.
    fn of(question: &Question<'_>, size: i64) -> Option<Self> {
        let bound = |name| {
            let value = question.int(name)?;
            Some(if value < 0 { value.saturating_add(size) } else { value }.clamp(0, size))
        };
        let start = bound("start")?;
        Some(Self { start, end: bound("end")?.max(start), step: question.int("step")? })
    }

    /// How many of the indexes stand before this one.
    fn before(&self, index: i64) -> i64 {
        let up_to = index.clamp(self.start, self.end) - self.start;
        // Rounded up: a part of a step has begun with an index.
        (up_to + self.step - 1) / self.step
    }

    /// Which of the range each member holds.
    fn held(&self, ranges: &ShardRanges) -> Option<ShardRanges> {
        if self.step == 1 {
            return Some(ranges.window(Interval { start: self.start, end: self.end }));
        }
        let single = ranges.iter().all(|intervals| intervals.len() <= 1);
        let part = |one: &Interval| {
            let part = Interval { start: self.before(one.start), end: self.before(one.end) };
            (!part.is_empty()).then_some(part)
        };
        let parts = || ranges.iter().map(|all| all.iter().filter_map(part).collect());
        (self.step > 1 && single).then(|| ShardRanges::new(parts()))
    }
}

/// `slice` and `slice_scatter`.
pub(super) fn window(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    if question.dim("dim", question.rank(0)?)? != lead.dim {
        return question.alike(lead, lead.dim);
    }
    if lead.position == 1 {
        return around(question, lead);
    }
    let range = Range::of(question, lead.size)?;
    if !lead.ranges.ascending() {
        return None;
    }
    let (whole, part) = (cut(lead.dim, lead.ranges), cut(lead.dim, &range.held(lead.ranges)?));
    let strategy = if question.args.len() == 1 {
        question.answer([whole], [part])
    } else {
        question.answer([whole.clone(), part], [whole])
    };
    windowed(question, strategy, range.step, lead.ranges)
}

fn windowed(
    question: &Question<'_>,
    mut strategy: Strategy,
    step: i64,
    ranges: &ShardRanges,
) -> Option<Strategy> {
    let info = question.op.info();
    let (start, end) = (info.attr_index("start")?, info.attr_index("end")?);
    strategy.locals.push(Local::Window { start, end, step, ranges: ranges.clone() });
    Some(strategy)
}

/// What is written is cut: what it is written into is cut around it. Where it is one of equal blocks (query, key or value
/// of a fused projection, a gate of four), all are cut like it, so that the gradients of the blocks lie alike; else the
/// ends are on the members with the first and the last.
fn around(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let size = *question.meta(0)?.dims.get(lead.dim)?;
    let range = Range::of(question, size)?;
    if range.step != 1 || lead.size == 0 || !lead.ranges.ascending() {
        return None;
    }
    let blocks = (range.start % lead.size == 0 && size % lead.size == 0)
        .then(|| tiled(lead.ranges, lead.size, size / lead.size));
    let ranges = blocks
        .flatten()
        .unwrap_or_else(|| grown(lead.ranges, lead.size, (range.start, size - range.end)));
    let whole = cut(lead.dim, &ranges);
    let strategy = question.answer([whole.clone(), cut(lead.dim, lead.ranges)], [whole]);
    windowed(question, strategy, 1, &ranges)
}

/// The shards of a dimension of `size` again and again; `None` where that makes too many intervals.
fn tiled(ranges: &ShardRanges, size: i64, count: i64) -> Option<ShardRanges> {
    let most = ranges.iter().map(<[Interval]>::len).max()?;
    let intervals = usize::try_from(count).ok()?.checked_mul(most)?;
    (intervals <= INTERVALS_MAX).then(|| ranges.repeated(size, count))
}

/// The shards with so many more indexes before the first one and after the last one.
fn grown(ranges: &ShardRanges, size: i64, (before, after): (i64, i64)) -> ShardRanges {
    let grow = |one: &Interval| Interval {
        start: if one.start == 0 { 0 } else { one.start + before },
        end: one.end + before + if one.end == size { after } else { 0 },
    };
    let all = |intervals: &[Interval]| {
        intervals.iter().filter(|one| !one.is_empty()).map(grow).collect::<Intervals>()
    };
    ShardRanges::new(ranges.iter().map(all))
}

/// How much is added before and after a dimension. Pairs stand from the last dimension on.
fn amounts(question: &Question<'_>, rank: usize, dim: usize) -> Option<(usize, i64, i64)> {
    let pad = question.ints("pad")?;
    let entry = 2 * (rank - 1 - dim);
    let at = |entry: usize| pad.get(entry).copied().unwrap_or(0);
    Some((entry, at(entry), at(entry + 1)))
}

/// The members with the first and the last index pad their shards.
pub(super) fn pad(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let (entry, before, after) = amounts(question, rank, lead.dim)?;
    if before == 0 && after == 0 {
        return question.alike(lead, lead.dim);
    }
    if before < 0 || after < 0 || lead.size == 0 || !lead.ranges.ascending() {
        return None;
    }
    let ranges = grown(lead.ranges, lead.size, (before, after));
    let mut strategy = question.answer([cut(lead.dim, lead.ranges)], [cut(lead.dim, &ranges)]);
    let attr = question.op.info().attr_index("pad")?;
    strategy.locals.push(Local::Ends { attr, entry, ranges: lead.ranges.clone() });
    Some(strategy)
}

/// The dimensions that stay come first, the diagonal is the last one.
pub(super) fn diagonal(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let (one, other) = (question.dim("dim1", rank)?, question.dim("dim2", rank)?);
    if lead.position == 0 && (lead.dim == one || lead.dim == other) {
        return along_diagonal(question, lead, (one, other));
    }
    let mut stays = (0..rank).filter(|&dim| dim != one && dim != other);
    let (from, to) = if lead.position == 0 {
        (lead.dim, stays.position(|dim| dim == lead.dim)?)
    } else {
        (stays.nth(lead.dim)?, lead.dim)
    };
    let (here, there) = (cut(from, lead.ranges), cut(to, lead.ranges));
    Some(if question.args.len() == 1 {
        question.answer([here], [there])
    } else {
        question.answer([here.clone(), there], [here])
    })
}

/// The diagonal through the cut dimension: each member has the part that runs through its shard.
fn along_diagonal(
    question: &Question<'_>,
    lead: Lead<'_>,
    (rows, columns): (usize, usize),
) -> Option<Strategy> {
    if lead.ranges.iter().any(|intervals| intervals.len() > 1) {
        return None;
    }
    let dims = question.meta(0)?.dims;
    let offset = question.int("offset")?;
    let (row, column) = ((-offset).max(0), offset.max(0));
    let length = (dims.get(rows)? - row).min(dims.get(columns)? - column).max(0);
    let (start, factor) = if lead.dim == rows { (row, 1) } else { (column, -1) };
    let part = lead.ranges.window(Interval { start, end: start + length });
    let (here, there) = (cut(lead.dim, lead.ranges), cut(dims.len().checked_sub(2)?, &part));
    let mut strategy = if question.args.len() == 1 {
        question.answer([here], [there])
    } else {
        question.answer([here.clone(), there], [here])
    };
    let attr = question.op.info().attr_index("offset")?;
    strategy.locals.push(Local::Shift { attr, factor, ranges: lead.ranges.clone() });
    Some(strategy)
}

/// Each member repeats its own shard.
pub(super) fn repeat(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let repeats = question.ints("repeats")?;
    let dim = lead.dim + repeats.len().checked_sub(rank)?;
    let ranges = tiled(lead.ranges, lead.size, *repeats.get(dim)?)?;
    Some(question.answer([cut(lead.dim, lead.ranges)], [cut(dim, &ranges)]))
}

/// Along the other dimensions what is written is cut as what it is written into.
pub(super) fn select_scatter(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let dim = question.dim("dim", rank)?;
    let (here, source) = if lead.position == 0 {
        (lead.dim, lead.dim.checked_sub(usize::from(dim < lead.dim))?)
    } else {
        (lead.dim + usize::from(dim <= lead.dim), lead.dim)
    };
    let whole = cut(here, lead.ranges);
    (dim != here)
        .then(|| question.answer([whole.clone(), cut(source, lead.ranges)], [whole.clone()]))
}
