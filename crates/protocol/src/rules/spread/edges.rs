//! Views that read a part of a sharded dimension, write into it or pad it: each member works on its
//! own shard, and the result stays there. Nothing moves, so the shards may become uneven.

use super::spec::{Driving, LocalAttr, OpSpec, Strategy, cut};
use crate::placement::{Interval, Intervals, ShardRanges};

/// Maximum number of intervals of a member after joining; more of them cost more than they save.
pub(super) const INTERVALS_MAX: usize = 256;

/// A range of indices with a step.
struct SteppedRange {
    start: i64,
    end: i64,
    step: i64,
}

impl SteppedRange {
    /// Reads the attributes `start`, `end` and `step`; negative indices count from the end.
    fn of(spec: &OpSpec<'_>, size: i64) -> Option<Self> {
        let bound = |name| {
            let value = spec.int(name)?;
            Some(if value < 0 { value.saturating_add(size) } else { value }.clamp(0, size))
        };
        let start = bound("start")?;
        Some(Self { start, end: bound("end")?.max(start), step: spec.int("step")? })
    }

    /// Number of the range's indices before this one.
    fn before(&self, index: i64) -> i64 {
        let up_to = index.clamp(self.start, self.end) - self.start;
        // Rounded up: each step begins with an index.
        up_to / self.step + i64::from(up_to % self.step > 0)
    }

    /// Part of the range that each member holds.
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
pub(super) fn window(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    if spec.dim("dim", spec.rank(0)?)? != driving.dim {
        return spec.alike(driving, driving.dim);
    }
    if driving.position == 1 {
        return around(spec, driving);
    }
    let range = SteppedRange::of(spec, driving.size)?;
    if !driving.ranges.ascending() {
        return None;
    }
    let (whole, part) =
        (cut(driving.dim, driving.ranges), cut(driving.dim, &range.held(driving.ranges)?));
    let strategy = if spec.args.len() == 1 {
        spec.strategy([whole], [part])
    } else {
        spec.strategy([whole.clone(), part], [whole])
    };
    windowed(spec, strategy, range.step, driving.ranges)
}

fn windowed(
    spec: &OpSpec<'_>,
    mut strategy: Strategy,
    step: i64,
    ranges: &ShardRanges,
) -> Option<Strategy> {
    let info = spec.op.info();
    let (start, end) = (info.attr_index("start")?, info.attr_index("end")?);
    strategy.local_attrs.push(LocalAttr::Window { start, end, step, ranges: ranges.clone() });
    Some(strategy)
}

/// Strategy for a sharded source: the target is sharded around it. Where the source is one of equal
/// blocks (query, key or value of a fused projection, one gate of four), all blocks are sharded
/// like it, so that the gradients of the blocks have the same placement; else the two ends go to
/// the members with the first and the last index.
fn around(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let size = *spec.meta(0)?.dims.get(driving.dim)?;
    let range = SteppedRange::of(spec, size)?;
    if range.step != 1 || driving.size == 0 || !driving.ranges.ascending() {
        return None;
    }
    let blocks = (range.start % driving.size == 0 && size % driving.size == 0)
        .then(|| tiled(driving.ranges, driving.size, size / driving.size));
    let ranges = blocks
        .flatten()
        .unwrap_or_else(|| grown(driving.ranges, driving.size, (range.start, size - range.end)));
    let whole = cut(driving.dim, &ranges);
    let strategy = spec.strategy([whole.clone(), cut(driving.dim, driving.ranges)], [whole]);
    windowed(spec, strategy, 1, &ranges)
}

/// The shards of a dimension of `size`, repeated; `None` where that makes too many intervals.
fn tiled(ranges: &ShardRanges, size: i64, count: i64) -> Option<ShardRanges> {
    if size == 0 {
        return Some(ranges.clone()); // an empty dimension stays empty
    }
    let most = ranges.iter().map(<[Interval]>::len).max()?;
    let intervals = usize::try_from(count).ok()?.checked_mul(most)?;
    (intervals <= INTERVALS_MAX).then(|| ranges.repeated(size, count))
}

/// The shards with this many more indices before the first one and after the last one.
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

/// Padding before and after a dimension. Pairs are listed from the last dimension on.
fn amounts(spec: &OpSpec<'_>, rank: usize, dim: usize) -> Option<(usize, i64, i64)> {
    let pad = spec.ints("pad")?;
    let entry = 2 * (rank - 1 - dim);
    let at = |entry: usize| pad.get(entry).copied().unwrap_or(0);
    Some((entry, at(entry), at(entry + 1)))
}

/// The members with the first and the last index pad their shards.
pub(super) fn pad(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let rank = spec.rank(0)?;
    let (entry, before, after) = amounts(spec, rank, driving.dim)?;
    if before == 0 && after == 0 {
        return spec.alike(driving, driving.dim);
    }
    if before < 0 || after < 0 || driving.size == 0 || !driving.ranges.ascending() {
        return None;
    }
    let ranges = grown(driving.ranges, driving.size, (before, after));
    let mut strategy =
        spec.strategy([cut(driving.dim, driving.ranges)], [cut(driving.dim, &ranges)]);
    let attr = spec.op.info().attr_index("pad")?;
    strategy.local_attrs.push(LocalAttr::Ends { attr, entry, ranges: driving.ranges.clone() });
    Some(strategy)
}

/// The other dimensions come first, the diagonal is the last one.
pub(super) fn diagonal(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let rank = spec.rank(0)?;
    let (one, other) = (spec.dim("dim1", rank)?, spec.dim("dim2", rank)?);
    if driving.position == 0 && (driving.dim == one || driving.dim == other) {
        return along_diagonal(spec, driving, (one, other));
    }
    let mut stays = (0..rank).filter(|&dim| dim != one && dim != other);
    let (from, to) = if driving.position == 0 {
        (driving.dim, stays.position(|dim| dim == driving.dim)?)
    } else {
        (stays.nth(driving.dim)?, driving.dim)
    };
    let (here, there) = (cut(from, driving.ranges), cut(to, driving.ranges));
    Some(if spec.args.len() == 1 {
        spec.strategy([here], [there])
    } else {
        spec.strategy([here.clone(), there], [here])
    })
}

/// The diagonal through the sharded dimension: each member has the part in its shard.
fn along_diagonal(
    spec: &OpSpec<'_>,
    driving: Driving<'_>,
    (rows, columns): (usize, usize),
) -> Option<Strategy> {
    if driving.ranges.iter().any(|intervals| intervals.len() > 1) {
        return None;
    }
    let dims = spec.meta(0)?.dims;
    let offset = spec.int("offset")?;
    let (row, column) = (offset.saturating_neg().max(0), offset.max(0));
    let length = (dims.get(rows)? - row).min(dims.get(columns)? - column).max(0);
    let (start, factor) = if driving.dim == rows { (row, 1) } else { (column, -1) };
    let part = driving.ranges.window(Interval { start, end: start + length });
    let (here, there) = (cut(driving.dim, driving.ranges), cut(dims.len().checked_sub(2)?, &part));
    let mut strategy = if spec.args.len() == 1 {
        spec.strategy([here], [there])
    } else {
        spec.strategy([here.clone(), there], [here])
    };
    let attr = spec.op.info().attr_index("offset")?;
    strategy.local_attrs.push(LocalAttr::Shift { attr, factor, ranges: driving.ranges.clone() });
    Some(strategy)
}

/// Each member repeats its own shard.
pub(super) fn repeat(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let rank = spec.rank(0)?;
    let repeats = spec.ints("repeats")?;
    let dim = driving.dim + repeats.len().checked_sub(rank)?;
    let ranges = tiled(driving.ranges, driving.size, *repeats.get(dim)?)?;
    Some(spec.strategy([cut(driving.dim, driving.ranges)], [cut(dim, &ranges)]))
}

/// The source is sharded as the target along the other dimensions.
pub(super) fn select_scatter(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let rank = spec.rank(0)?;
    let dim = spec.dim("dim", rank)?;
    let (here, source) = if driving.position == 0 {
        (driving.dim, driving.dim.checked_sub(usize::from(dim < driving.dim))?)
    } else {
        (driving.dim + usize::from(dim <= driving.dim), driving.dim)
    };
    let whole = cut(here, driving.ranges);
    (dim != here)
        .then(|| spec.strategy([whole.clone(), cut(source, driving.ranges)], [whole.clone()]))
}
