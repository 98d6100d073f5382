//! Point-to-point transfer from one mesh to another: every member fetches the parts of its shard
//! from their holders.

use super::Resharded;
use super::cut::{ShardBox, dims_of};
use super::redistribute::shard_box;
use crate::number::signed;
use crate::planner::Planner;
use crate::session::value::{Shards, Slots};
use gt_protocol::Meta;
use gt_protocol::placement::{Interval, Intervals, Layout, Placement};
use smallvec::SmallVec;

/// A part of a member's shard, and its sender.
struct FetchedPart {
    place: usize,
    part: ShardBox,
}

impl Planner<'_> {
    /// Fetches a value. `from` must not be partial, and at most one mesh dimension of it may shard
    /// (or it matches `to` shard by shard).
    pub(super) fn fetch(&mut self, meta: Meta, from: &Shards, to: &Layout) -> Resharded {
        let reduced = without_partial(to);
        let members = reduced.mesh().members();
        let mut slots = Slots::from_elem(u32::MAX, members.len());
        // A sent value becomes row-major, on its sender too; a member that keeps it is handled
        // last. A copy that is not sent is made row-major too, so that all copies have the same
        // strides.
        let mut senders: SmallVec<[usize; 4]> = SmallVec::new();
        for keeps in [false, true] {
            for ((place, &worker), slot) in members.iter().enumerate().zip(&mut slots) {
                let own = from.layout.mesh().place(worker);
                if own.is_some() != keeps {
                    continue;
                }
                let target = shard_box(&reduced, &meta.dims, place);
                let parts = parts(meta, from, worker, place, &target);
                *slot = self.fetch_one(meta, from, worker, &parts, &target);
                let Some(own) = own else {
                    senders.extend(parts.iter().map(|part| part.place));
                    continue;
                };
                let is_unchanged = shard_box(&from.layout, &meta.dims, own) == target;
                let has_copies = || {
                    let mut others = (0..members.len()).filter(|&other| other != place);
                    others.any(|other| shard_box(&reduced, &meta.dims, other) == target)
                };
                if is_unchanged && !senders.is_empty() && !senders.contains(&own) && has_copies() {
                    *slot = self.compact(worker, *slot, Meta::new(meta.dtype, dims_of(&target)));
                }
            }
        }
        if reduced == *to {
            return Resharded::owned(slots);
        }
        let source = Shards { layout: reduced, slots };
        let resharded = self.redistribute(meta, &source, to);
        self.free_shards(&source);
        resharded
    }

    /// Fetches one member's shard.
    fn fetch_one(
        &mut self,
        meta: Meta,
        from: &Shards,
        worker: u32,
        parts: &[FetchedPart],
        target: &ShardBox,
    ) -> u32 {
        let mut arrived: SmallVec<[u32; 4]> = SmallVec::new();
        for part in parts {
            arrived.push(self.send_part(meta, from, worker, part));
        }
        match arrived.as_slice() {
            [] => self.filled(worker, Meta::new(meta.dtype, dims_of(target)), 0),
            [only] => *only,
            several => {
                let dim = cut_dim(&from.layout)
                    .expect("a shard of several parts comes from a sharded value");
                self.join(worker, several, signed(dim))
            }
        }
    }

    /// Sends one part from its holder to `worker`; returns its slot there.
    fn send_part(&mut self, meta: Meta, from: &Shards, worker: u32, part: &FetchedPart) -> u32 {
        let source = from.layout.mesh().members()[part.place];
        let slot = from.slots[part.place];
        let have = shard_box(&from.layout, &meta.dims, part.place);
        let shard = Meta::new(meta.dtype, dims_of(&part.part));
        let view = self.cut(source, slot, &have, &part.part);
        if source == worker {
            return match view {
                Some(view) => self.compact(worker, view, shard),
                None => self.alias(worker, slot, shard),
            };
        }
        let arrived = self.transfer(source, view.unwrap_or(slot), worker, shard);
        if let Some(view) = view {
            self.free(source, view);
        }
        arrived
    }
}

/// The layout without partial placements: those are derived from whole values afterwards.
pub(crate) fn without_partial(to: &Layout) -> Layout {
    let placements = to.placements().iter().map(|placement| match placement {
        Placement::Partial(_) => Placement::Replicate,
        Placement::Replicate | Placement::Shard { .. } => placement.clone(),
    });
    Layout::new(to.mesh().clone(), placements.collect())
}

/// The dimension that the source shards.
fn cut_dim(layout: &Layout) -> Option<usize> {
    layout.placements().iter().find_map(Placement::cut)
}

/// Parts with their senders, in the order of the shard.
fn parts(
    meta: Meta,
    from: &Shards,
    worker: u32,
    place: usize,
    target: &ShardBox,
) -> Vec<FetchedPart> {
    let mesh = from.layout.mesh();
    let own = mesh.place(worker);
    if let Some(at) = holder(meta, from, own, place, target) {
        return vec![FetchedPart { place: at, part: target.clone() }];
    }
    let Some(dim) = cut_dim(&from.layout) else { return Vec::new() };
    let mut parts = Vec::new();
    for want in target.get(dim).into_iter().flatten() {
        let mut along: Vec<(Interval, usize)> = Vec::new();
        for at in 0..mesh.len() {
            let size = meta.dims[dim];
            for have in from.layout.held(at, dim, size) {
                let Some(both) = have.meet(*want) else { continue };
                let known = along.iter().position(|(interval, _)| *interval == both);
                match known.and_then(|position| along.get_mut(position)) {
                    // Among copies of a shard the worker's own is taken, else the first.
                    Some(other) if own == Some(at) => other.1 = at,
                    Some(_) => {}
                    None => along.push((both, at)),
                }
            }
        }
        along.sort_unstable_by_key(|(interval, _)| interval.start);
        for (interval, at) in along {
            let mut part = target.clone();
            if let Some(list) = part.get_mut(dim) {
                *list = Intervals::from(interval);
            }
            parts.push(FetchedPart { place: at, part });
        }
    }
    parts
}

/// A member that holds all of `target`: the worker itself, the member with the same index, or the
/// first one.
fn holder(
    meta: Meta,
    from: &Shards,
    own: Option<usize>,
    place: usize,
    target: &ShardBox,
) -> Option<usize> {
    let holds = |at: usize| {
        shard_box(&from.layout, &meta.dims, at).iter().zip(target).all(|(have, want)| {
            have == want
                || want.iter().all(|one| {
                    one.is_empty() || have.iter().any(|other| other.meet(*one) == Some(*one))
                })
        })
    };
    let count = from.layout.mesh().len();
    let first = own.into_iter().chain([place]).filter(|&at| at < count);
    first.chain(0..count).find(|&at| holds(at))
}
