//! Where a shard is in the whole, both row-major: what a range of the whole is in the shard, and the other way.
//!
//! An index of a dimension stands for as many positions as the dimensions after it have elements. Dimensions that a
//! shard holds all of are merged with the one before them, so that as much as possible is one run.

use super::{Interval, Layout, Placement};
use crate::value::Dims;
use smallvec::SmallVec;

/// The positions of one member's shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// From the outermost on; every one but the first is cut.
    dims: SmallVec<[Cut; 3]>,
    whole: u64,
    shard: u64,
}

/// One dimension, or several that are cut as one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    /// What is held of it, in ascending order.
    held: SmallVec<[(u64, u64); 1]>,
    /// Positions of the whole, and of the shard, from one index to the next.
    stride: u64,
    step: u64,
}

/// Positions that are adjacent in the shard and evenly spaced in the whole: `count` runs of `run`, each `stride` after the
/// beginning of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedPositions {
    pub start: u64,
    pub run: u64,
    pub stride: u64,
    pub count: u64,
}

impl StridedPositions {
    /// Positions in all runs.
    pub fn len(&self) -> u64 {
        self.run * self.count
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where each run begins.
    pub fn starts(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { start, stride, count, .. } = *self;
        (0..count).map(move |run| start + run * stride)
    }
}

impl Footprint {
    /// What the member at `place` holds of a tensor of shape `dims`, in positions of which an element has `unit` (its
    /// bytes, or 1). Nothing where a range of the whole is no range of the shard: a member holds intervals in another
    /// order than the dimension's, or contributions.
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
        // From the innermost on: what one element takes is held whole.
        let mut inner = Cut { held: SmallVec::from_elem((0, unit), 1), stride: 1, step: 1 };
        let mut inner_size = unit;
        for (dim, (&size, &signed)) in sizes.iter().zip(dims.iter()).enumerate().rev() {
            let held: SmallVec<[(u64, u64); 1]> =
                layout.held(place, dim, signed).iter().filter_map(|&one| bounds(one)).collect();
            let count: u64 = held.iter().map(|(start, end)| end - start).sum();
            if inner.held.as_slice() == [(0, inner_size)] {
                // All of what is inside is held: one index of this dimension is one run.
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

    /// Positions of the shard.
    pub fn len(&self) -> u64 {
        self.shard
    }

    pub fn is_empty(&self) -> bool {
        self.shard == 0
    }

    /// How many positions of the shard stand before `position` of the whole: where a range that begins there begins.
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

    /// What positions `from..to` of the shard are in the whole, in order.
    pub fn ranges(&self, from: u64, to: u64) -> impl Iterator<Item = StridedPositions> + '_ {
        let (mut at, to) = (from, to.min(self.shard));
        std::iter::from_fn(move || {
            let range = (at < to).then(|| self.range(at, to - at))?;
            at += range.len();
            Some(range)
        })
    }

    /// The longest range from `at` on, of at most `most` positions.
    fn range(&self, at: u64, most: u64) -> StridedPositions {
        let (mut rest, mut start) = (at, 0);
        let mut left = (1, 1);
        for cut in &self.dims {
            let (index, until) = cut.nth(rest / cut.step);
            rest %= cut.step;
            start += index * cut.stride;
            left = (left.1, until - index);
        }
        // How much is left of the two innermost dimensions' intervals.
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
    /// How many indexes below this one are held, and whether it is.
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

    /// The `k`-th index that is held, and where its interval ends.
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

/// An interval that is not empty.
fn bounds(interval: Interval) -> Option<(u64, u64)> {
    let Interval { start, end } = interval;
    let (start, end) = (u64::try_from(start).ok()?, u64::try_from(end).ok()?);
    (start < end).then_some((start, end))
}
