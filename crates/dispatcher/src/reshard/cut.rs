//! Taking a part of a shard on one worker.

use crate::number::signed;
use crate::planner::Planner;
use gt_protocol::placement::{Interval, Intervals};
use gt_protocol::{Attr, Dims, Meta, Op};
use smallvec::SmallVec;

/// What a shard holds of each dimension of the whole.
pub(crate) type ShardBox = SmallVec<[Intervals; 4]>;

/// Shape of a shard.
pub(crate) fn dims_of(current: &ShardBox) -> Dims {
    let sizes: SmallVec<[i64; 8]> = current.iter().map(length).collect();
    Dims::new(&sizes).expect("a shard has as many dimensions as its tensor")
}

fn length(intervals: &Intervals) -> i64 {
    intervals.iter().map(|interval| interval.len()).sum()
}

/// Where the indexes of `target` stand in a shard that holds `view`: ranges in the shard, neighbours joined.
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
    /// The part `target` of a value on `worker` that holds `view`; `None` where that is all of it.
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

    /// The ranges of one dimension, one after the other.
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

    /// One after the other along `dim`; the parts are freed.
    pub fn join(&mut self, worker: u32, parts: &[u32], dim: i64) -> u32 {
        let joined = self.emit(worker, Op::Cat, parts, [Attr::Int(dim)]);
        for &part in parts {
            self.free(worker, part);
        }
        joined
    }

    /// A copy in memory of its own: a view keeps all that it is a part of. The view is freed.
    pub fn compact(&mut self, worker: u32, view: u32, meta: Meta) -> u32 {
        if meta.dims.is_empty() { view } else { self.join(worker, &[view], 0) }
    }
}
