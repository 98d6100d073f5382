//! Indices of a sharded dimension that each member holds.

use smallvec::SmallVec;
use std::sync::Arc;

/// A half-open range of indices along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    pub start: i64,
    pub end: i64,
}

impl Interval {
    pub fn len(self) -> i64 {
        (self.end - self.start).max(0)
    }

    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Intersection of both.
    pub fn meet(self, other: Self) -> Option<Self> {
        let both = Self { start: self.start.max(other.start), end: self.end.min(other.end) };
        (!both.is_empty()).then_some(both)
    }
}

/// The intervals of one member, in the order of its shard.
pub type Intervals = SmallVec<[Interval; 1]>;

impl From<Interval> for Intervals {
    fn from(interval: Interval) -> Self {
        SmallVec::from_elem(interval, 1)
    }
}

/// Indices of the sharded dimension that each member holds. A member may hold none, or several
/// intervals.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardRanges(Arc<[Intervals]>);

impl ShardRanges {
    pub fn new(intervals: impl IntoIterator<Item = Intervals>) -> Self {
        Self(intervals.into_iter().collect())
    }

    /// `size` indices over `members`, in order; the first `size % members` members hold one more
    /// than the others.
    pub fn even(size: i64, members: usize) -> Self {
        Self::blocked(size, 1, members)
    }

    /// Returns true if they equal [`Self::even`]'s.
    pub fn is_even(&self) -> bool {
        *self == Self::even(self.total(), self.len())
    }

    /// `size` indices in `blocks` equal blocks, each sharded over the members: a fused projection
    /// of query, key and value is sharded by heads inside each of the three. One block where
    /// `blocks` does not divide the size.
    pub fn blocked(size: i64, blocks: i64, members: usize) -> Self {
        let blocks = if blocks > 0 && size % blocks == 0 { blocks } else { 1 };
        let count = i64::try_from(members).unwrap_or(1).max(1);
        let block = size / blocks;
        let (base, extra) = (block / count, block % count);
        let shard = |member: i64| {
            let start = member * base + member.min(extra);
            let end = start + base + i64::from(member < extra);
            let at = |of: i64| Interval { start: of * block + start, end: of * block + end };
            joined((0..blocks).map(at))
        };
        Self((0..count).map(shard).collect())
    }

    /// Number of indices that the member holds.
    pub fn size(&self, member: usize) -> i64 {
        length(self.intervals(member))
    }

    /// Number of indices that each member holds.
    pub fn sizes(&self) -> impl Iterator<Item = i64> + '_ {
        self.0.iter().map(|intervals| length(intervals))
    }

    /// The intervals of one member.
    pub fn of(&self, member: usize) -> Intervals {
        self.intervals(member).clone()
    }

    fn intervals(&self, member: usize) -> &Intervals {
        let Some(intervals) = self.0.get(member) else {
            unreachable!("member {member} of {self:?}")
        };
        intervals
    }

    /// The intervals of each member.
    pub fn iter(&self) -> impl Iterator<Item = &[Interval]> + '_ {
        self.0.iter().map(SmallVec::as_slice)
    }

    /// Number of indices of all members together.
    pub fn total(&self) -> i64 {
        self.sizes().sum()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the concatenated shards are the dimension: each member holds at most one
    /// interval, in order.
    pub fn in_order(&self) -> bool {
        let mut next = 0;
        self.0.iter().all(|intervals| match intervals.as_slice() {
            [] => true,
            [only] => {
                let follows = only.is_empty() || only.start == next;
                next = if only.is_empty() { next } else { only.end };
                follows
            }
            _ => false,
        })
    }

    /// Returns true if each member's indices are in the order of the dimension, so that a range of
    /// it is a range of each shard.
    pub fn ascending(&self) -> bool {
        self.0.iter().all(|intervals| {
            intervals.windows(2).all(|pair| matches!(pair, [one, next] if one.end <= next.start))
        })
    }

    /// Returns true if every index of a dimension of `size` is held exactly once.
    pub fn cover(&self, size: i64) -> bool {
        let mut all: Vec<Interval> =
            self.0.iter().flatten().copied().filter(|one| !one.is_empty()).collect();
        all.sort_unstable_by_key(|interval| interval.start);
        let mut next = 0;
        all.iter().all(|interval| {
            let follows = interval.start == next;
            next = interval.end;
            follows
        }) && next == size
    }

    /// The ranges after a merge of the dimension with those after it: every index becomes `factor`
    /// indices.
    #[must_use]
    pub fn scaled(&self, factor: i64) -> Self {
        self.mapped(|interval| {
            Some(Interval { start: interval.start * factor, end: interval.end * factor })
        })
        .unwrap_or_else(|| self.clone())
    }

    /// The ranges in units of `divisor` indices; `None` where a shard ends inside a unit.
    pub fn divided(&self, divisor: i64) -> Option<Self> {
        if divisor <= 0 {
            return None;
        }
        self.mapped(|Interval { start, end }| {
            let whole = start % divisor == 0 && end % divisor == 0;
            whole.then_some(Interval { start: start / divisor, end: end / divisor })
        })
    }

    /// The ranges of a dimension of `size` that is repeated `count` times: each member holds its
    /// shard of every copy.
    #[must_use]
    pub fn repeated(&self, size: i64, count: i64) -> Self {
        let moved = |one: &Interval, by: i64| Interval { start: one.start + by, end: one.end + by };
        let again = |intervals: &Intervals| {
            let copy = |turn: i64| intervals.iter().map(move |one| moved(one, turn * size));
            joined((0..count).flat_map(copy))
        };
        Self(self.0.iter().map(again).collect())
    }

    /// Part of `start..end` that each member holds, shifted to `0..end - start`.
    #[must_use]
    pub fn window(&self, window: Interval) -> Self {
        let part = |intervals: &Intervals| {
            let parts = intervals.iter().filter_map(|interval| interval.meet(window));
            joined(parts.map(|part| Interval {
                start: part.start - window.start,
                end: part.end - window.start,
            }))
        };
        Self(self.0.iter().map(part).collect())
    }

    fn mapped(&self, change: impl Fn(Interval) -> Option<Interval>) -> Option<Self> {
        let changed: Option<Arc<[Intervals]>> = self
            .0
            .iter()
            .map(|intervals| intervals.iter().map(|&one| change(one)).collect())
            .collect();
        changed.map(Self)
    }
}

fn length(intervals: &[Interval]) -> i64 {
    intervals.iter().map(|interval| interval.len()).sum()
}

/// Merges adjacent intervals and drops empty ones, so that equal shards are equal values.
fn joined(intervals: impl Iterator<Item = Interval>) -> Intervals {
    let mut joined = Intervals::new();
    for interval in intervals.filter(|interval| !interval.is_empty()) {
        match joined.last_mut() {
            Some(last) if last.end == interval.start => last.end = interval.end,
            Some(_) | None => joined.push(interval),
        }
    }
    joined
}
