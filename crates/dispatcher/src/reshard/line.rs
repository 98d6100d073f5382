//! Changes of placement among the members of one line of a mesh.

use super::cut::ShardBox;
use crate::planner::Planner;
use crate::session::value::{Shards, Slots};
use crate::workers::MeshLine;
use gt_protocol::Meta;
use gt_protocol::placement::{Interval, Intervals, Layout, Mesh, Placement, ReduceOp, ShardRanges};
use smallvec::SmallVec;

/// Maximum number of intervals for each member up to which shards are exchanged interval by
/// interval; beyond it, a gather is cheaper.
const INTERVALS_A_MEMBER: usize = 4;

/// Returns true if the members can exchange parts of these shards of one dimension, so that no
/// member holds it whole.
pub(super) fn are_exchanged(current: &ShardRanges, target: &ShardRanges) -> bool {
    let few = |ranges: &ShardRanges| {
        let count: usize = ranges.iter().map(<[Interval]>::len).sum();
        count <= INTERVALS_A_MEMBER * ranges.len()
    };
    few(current) && few(target)
}

impl Planner<'_> {
    /// From contributions to shards of their reduction.
    pub(super) fn reduce_to_shards(
        &mut self,
        line: &MeshLine,
        op: ReduceOp,
        (dim, ranges): (usize, &ShardRanges),
        whole: Meta,
    ) -> Slots {
        let arranged = self.arranged(line, (dim, ranges));
        let from = arranged.as_ref().unwrap_or(line);
        let slots = self.reduce_scatter(from, op, dim, ranges, whole);
        self.free_line(arranged);
        slots
    }

    /// From shards to the whole value.
    pub(super) fn gather_shards(
        &mut self,
        line: &MeshLine,
        (dim, ranges): (usize, &ShardRanges),
        whole: Meta,
    ) -> Slots {
        let slots = self.all_gather(line, dim, ranges, whole);
        self.in_order(line, slots, (dim, ranges))
    }

    /// From shards of one dimension to shards of another, or to other shards of the same.
    pub(super) fn exchange_shards(
        &mut self,
        line: &MeshLine,
        (from, current): (usize, &ShardRanges),
        (to, target): (usize, &ShardRanges),
        whole: Meta,
    ) -> Slots {
        if from == to && !(current.in_order() && target.in_order()) {
            return self.exchange(line, from, (current, target), whole);
        }
        let arranged = if from == to { None } else { self.arranged(line, (to, target)) };
        let source = arranged.as_ref().unwrap_or(line);
        let slots = self.all_to_all(source, (from, current), (to, target), whole);
        self.free_line(arranged);
        if from == to { slots } else { self.in_order(line, slots, (from, current)) }
    }

    /// Point to point: each member fetches its intervals from their holders.
    fn exchange(
        &mut self,
        line: &MeshLine,
        dim: usize,
        (current, target): (&ShardRanges, &ShardRanges),
        whole: Meta,
    ) -> Slots {
        let workers: SmallVec<[u32; 8]> = line.iter().map(|&(worker, _)| worker).collect();
        let cut_by = |ranges: &ShardRanges| {
            let cut = Placement::Shard { dim, ranges: ranges.clone() };
            Layout::new(Mesh::line(&workers), SmallVec::from_elem(cut, 1))
        };
        let slots = line.iter().map(|&(_, slot)| slot).collect();
        let from = Shards { layout: cut_by(current), slots };
        self.fetch(whole, &from, &cut_by(target)).slots
    }

    /// Reorders `dim` of each member's value to the order of the shards' intervals; `None` if it
    /// already is.
    fn arranged(
        &mut self,
        line: &MeshLine,
        (dim, ranges): (usize, &ShardRanges),
    ) -> Option<MeshLine> {
        if ranges.in_order() {
            return None;
        }
        let have = along(dim, Interval { start: 0, end: ranges.total() }.into());
        let want = along(dim, ranges.iter().flatten().copied().collect());
        let all = line.iter().map(|&(worker, slot)| {
            let part = self.cut(worker, slot, &have, &want);
            (worker, part.unwrap_or(slot))
        });
        Some(all.collect())
    }

    /// Reorders gathered shards to the order of the dimension.
    fn in_order(
        &mut self,
        line: &MeshLine,
        slots: Slots,
        (dim, ranges): (usize, &ShardRanges),
    ) -> Slots {
        if ranges.in_order() {
            return slots;
        }
        let gathered: Intervals = ranges.iter().flatten().copied().collect();
        let mut sorted = gathered.clone();
        sorted.sort_unstable_by_key(|interval| interval.start);
        let (have, want) = (along(dim, gathered), along(dim, sorted));
        let workers = line.iter().map(|&(worker, _)| worker);
        workers
            .zip(slots)
            .map(|(worker, slot)| match self.cut(worker, slot, &have, &want) {
                Some(ordered) => {
                    self.free(worker, slot);
                    ordered
                }
                None => slot,
            })
            .collect()
    }

    fn free_line(&mut self, line: Option<MeshLine>) {
        for (worker, slot) in line.into_iter().flatten() {
            self.free(worker, slot);
        }
    }
}

/// The box of these indices of `dim`; the dimensions before it are unrestricted.
fn along(dim: usize, intervals: Intervals) -> ShardBox {
    let mut all = ShardBox::from_elem(Intervals::new(), dim);
    all.push(intervals);
    all
}
