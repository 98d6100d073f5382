//! Position of a shard in the whole, both row-major: maps ranges of the whole to ranges of the
//! shard, and back.
//!
//! One index of a dimension covers as many positions as the dimensions after it have elements.
//! Dimensions that a shard holds entirely are merged with the one before them, so that runs are as
//! long as possible.

use super::{Interval, Layout, Placement};
use crate::value::Dims;
use smallvec::SmallVec;

/// The positions of one member's shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Dimensions from the outermost on; every one but the first is sharded.
    dims: SmallVec<[Cut; 3]>,
    whole: u64,
    shard: u64,
}

/// One dimension, or several merged into one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    /// Intervals of its indices that are held, ascending.
    held: SmallVec<[(u64, u64); 1]>,
    /// Positions of the whole, and of the shard, from one index to the next.
    stride: u64,
    step: u64,
}

/// Positions that are adjacent in the shard and evenly spaced in the whole: `count` runs of `run`
/// positions, each beginning `stride` after the start of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedPositions {
    pub start: u64,
    pub run: u64,
    pub stride: u64,
    pub count: u64,
}

impl StridedPositions {
    /// Number of positions in all runs.
    pub fn len(&self) -> u64 {
        self.run * self.count
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Start of each run.
    pub fn starts(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { start, stride, count, .. } = *self;
        (0..count).map(move |run| start + run * stride)
    }
}

impl Footprint {
    /// Positions of a tensor of shape `dims` that the member at `place` holds; an element has
    /// `unit` positions (its bytes, or 1). `None` where a range of the whole is no range of the
    /// shard: a member holds intervals out of order, or contributions.
    pub fn new(layout: &Layout, dims: &Dims, place: usize, unit: u64) -> Option<Self> {
        let ascending = layout.placements().iter().all(|placement| match placement {
            Placement::Shard { ranges, .. } => ranges.ascending(),
            Placement::Replicate => true,
            Placement::Partial(_) => false,
        });
        let sizes = dims.iter().map(|&size| u64::try_from(size).ok());
        let sizes: SmallVec<[u64; 8]> = sizes.collect::<Option<_>>()?;
        sizes.iter().try_fold(unit, |product, &size| product.checked_mul(size))?;
        if !ascending {
            return None;
        }
        let mut footprint = Self { dims: SmallVec::new(), whole: unit, shard: unit };
        // Built from the innermost dimension on: the positions of one element are held whole.
        let mut inner = Cut { held: SmallVec::from_elem((0, unit), 1), stride: 1, step: 1 };
        let mut inner_size = unit;
        for (dim, (&size, &signed)) in sizes.iter().zip(dims.iter()).enumerate().rev() {
            let held: SmallVec<[(u64, u64); 1]> =
                layout.held(place, dim, signed).iter().filter_map(|&one| bounds(one)).collect();
            let count: u64 = held.iter().map(|(start, end)| end - start).sum();
            if inner.held.as_slice() == [(0, inner_size)] {
                // Everything inside is held: one index of this dimension is one run.
                let scaled = held.iter().map(|(start, end)| (start * inner_size, end * inner_size));
                inner.held = scaled.collect();
                inner_size *= size;
            } else {
                let (stride, step) = (footprint.whole, footprint.shard);
                let outer = Cut { held, stride, step };
                footprint.dims.push(std::mem::replace(&mut inner, outer));
                inner_size = size;
            }
            footprint.whole *= size;
            footprint.shard *= count;
        }
        footprint.dims.push(inner);
        footprint.dims.reverse();
        Some(footprint)
    }

    /// Number of positions of the shard.
    pub fn len(&self) -> u64 {
        self.shard
    }

    pub fn is_empty(&self) -> bool {
        self.shard == 0
    }

    /// Number of the shard's positions before `position` of the whole: the start in the shard of a
    /// range that begins there.
    pub fn before(&self, position: u64) -> u64 {
        if self.shard == 0 || position >= self.whole {
            return self.shard;
        }
        let (mut rest, mut before) = (position, 0);
        for cut in &self.dims {
            let index = rest / cut.stride;
            rest %= cut.stride;
            let (below, is_held) = cut.below(index);
            before += below * cut.step;
            if !is_held {
                break;
            }
        }
        before
    }

    /// Positions in the whole of the shard's positions `from..to`, in order.
    pub fn ranges(&self, from: u64, to: u64) -> impl Iterator<Item = StridedPositions> + '_ {
        let (mut at, to) = (from, to.min(self.shard));
        std::iter::from_fn(move || {
            let range = (at < to).then(|| self.range(at, to - at))?;
            at += range.len();
            Some(range)
        })
    }

    /// The longest range that begins at `at`, with at most `most` positions.
    fn range(&self, at: u64, most: u64) -> StridedPositions {
        let (mut rest, mut start) = (at, 0);
        let mut left = (1, 1);
        for cut in &self.dims {
            let (index, until) = cut.nth(rest / cut.step);
            rest %= cut.step;
            start += index * cut.stride;
            left = (left.1, until - index);
        }
        // Positions left in the current intervals of the two innermost dimensions.
        let (outer_left, inner_left) = left;
        if let [.., outer, inner] = self.dims.as_slice()
            && let [(first, end)] = *inner.held.as_slice()
            && inner_left == end - first
            && most >= inner_left
        {
            let count = outer_left.min(most / inner_left);
            return StridedPositions { start, run: inner_left, stride: outer.stride, count };
        }
        let run = inner_left.min(most);
        StridedPositions { start, run, stride: run, count: 1 }
    }
}

impl Cut {
    /// Number of held indices below this one, and whether this one is held.
    fn below(&self, index: u64) -> (u64, bool) {
        let mut below = 0;
        for &(start, end) in &self.held {
            if index < end {
                return (below + index.saturating_sub(start), index >= start);
            }
            below += end - start;
        }
        (below, false)
    }

    /// The `k`-th held index, and the end of its interval.
    fn nth(&self, k: u64) -> (u64, u64) {
        let mut left = k;
        for &(start, end) in &self.held {
            if left < end - start {
                return (start + left, end);
            }
            left -= end - start;
        }
        (0, 0)
    }
}

/// Bounds of an interval; `None` if it is empty.
fn bounds(interval: Interval) -> Option<(u64, u64)> {
    let Interval { start, end } = interval;
    let (start, end) = (u64::try_from(start).ok()?, u64::try_from(end).ok()?);
    (start < end).then_some((start, end))
}
