//! Cutting a part out of a shard on one worker.

use crate::number::signed;
use crate::planner::Planner;
use gt_protocol::placement::{Interval, Intervals};
use gt_protocol::{Attr, Dims, Meta, Op};
use smallvec::SmallVec;

/// Intervals of each dimension of the whole that a shard holds.
pub(crate) type ShardBox = SmallVec<[Intervals; 4]>;

/// Shape of a shard.
pub(crate) fn dims_of(current: &ShardBox) -> Dims {
    let sizes: SmallVec<[i64; 8]> = current.iter().map(length).collect();
    Dims::new(&sizes).expect("a shard has as many dimensions as its tensor")
}

fn length(intervals: &Intervals) -> i64 {
    intervals.iter().map(|interval| interval.len()).sum()
}

/// Positions of `target`'s indices in a shard that holds `current`: ranges in the shard, adjacent
/// ones joined.
fn places(current: &Intervals, target: &Intervals) -> Intervals {
    let mut places = Intervals::new();
    for want in target {
        let mut offset = 0;
        for have in current {
            if let Some(both) = have.meet(*want) {
                let start = offset + both.start - have.start;
                let next = Interval { start, end: start + both.len() };
                match places.last_mut() {
                    Some(last) if last.end == next.start => last.end = next.end,
                    Some(_) | None => places.push(next),
                }
            }
            offset += have.len();
        }
    }
    places
}

impl Planner<'_> {
    /// The part `target` of a value on `worker` that holds `current`; `None` where that is all of
    /// it.
    pub fn cut(
        &mut self,
        worker: u32,
        slot: u32,
        current: &ShardBox,
        target: &ShardBox,
    ) -> Option<u32> {
        let mut view = None;
        for (dim, (have, want)) in current.iter().zip(target).enumerate() {
            if have == want {
                continue;
            }
            let source = view.unwrap_or(slot);
            let part = self.take(worker, source, dim, &places(have, want));
            if let Some(old) = view {
                self.free(worker, old);
            }
            view = Some(part);
        }
        view
    }

    /// Concatenates the ranges of one dimension.
    fn take(&mut self, worker: u32, slot: u32, dim: usize, ranges: &Intervals) -> u32 {
        let dim = signed(dim);
        let slice = |planner: &mut Self, Interval { start, end }: Interval| {
            planner.emit(worker, Op::Slice, &[slot], [dim, start, end, 1].map(Attr::Int))
        };
        match ranges.as_slice() {
            [] => slice(self, Interval { start: 0, end: 0 }),
            [only] => slice(self, *only),
            several => {
                let parts: SmallVec<[u32; 4]> =
                    several.iter().map(|&range| slice(self, range)).collect();
                self.join(worker, &parts, dim)
            }
        }
    }

    /// Concatenates parts along `dim` and frees them.
    pub fn join(&mut self, worker: u32, parts: &[u32], dim: i64) -> u32 {
        let joined = self.emit(worker, Op::Cat, parts, [Attr::Int(dim)]);
        for &part in parts {
            self.free(worker, part);
        }
        joined
    }

    /// Copies a view to memory of its own and frees it: a view keeps the whole value's memory.
    pub fn compact(&mut self, worker: u32, view: u32, meta: Meta) -> u32 {
        if meta.dims.is_empty() { view } else { self.join(worker, &[view], 0) }
    }
}
