//! Redistribution of a value from one layout to another.

use super::Resharded;
use super::cut::{ShardBox, dims_of};
use super::line::are_exchanged;
use crate::planner::Planner;
use crate::session::value::{Shards, Slots, slot_at};
use crate::workers::MeshLine;
use gt_protocol::placement::{Layout, Placement, ReduceOp};
use gt_protocol::{Dims, Meta};

/// Intervals that a member of a layout holds, for each dimension.
pub(crate) fn shard_box(layout: &Layout, dims: &Dims, place: usize) -> ShardBox {
    dims.iter().enumerate().map(|(dim, &size)| layout.held(place, dim, size)).collect()
}

impl Planner<'_> {
    /// Redistributes the value of `from` to the layout `to`.
    pub fn redistribute(&mut self, meta: Meta, from: &Shards, to: &Layout) -> Resharded {
        if from.layout == *to {
            return Resharded::borrowed(&from.slots);
        }
        if from.layout.mesh() == to.mesh() {
            return self.along_axes(meta, from, to);
        }
        if let Some(slots) = members_of(from, to) {
            return Resharded::borrowed(&slots);
        }
        if from.layout.is_partial() || cuts(&from.layout) > 1 && !is_matched(from, to) {
            let whole = Layout::replicated(from.layout.mesh().clone());
            let gathered = self.along_axes(meta, from, &whole);
            let source = Shards { layout: whole, slots: gathered.slots.clone() };
            let resharded = self.redistribute(meta, &source, to);
            return self.own_result(meta, &source, &gathered, to, resharded);
        }
        self.fetch(meta, from, to)
    }

    /// Result of resharding a temporary source: frees that source, unless the result borrows it.
    fn own_result(
        &mut self,
        meta: Meta,
        source: &Shards,
        gathered: &Resharded,
        to: &Layout,
        resharded: Resharded,
    ) -> Resharded {
        if !gathered.owned {
            return resharded;
        }
        let resharded = Resharded::owned(self.own(meta, to, resharded));
        self.discard(&source.layout, gathered);
        resharded
    }

    /// Redistributes on the same mesh, dimension by dimension: first cuts, which make reductions
    /// and gathers smaller, then reductions, gathers, and cuts of dimensions that another mesh
    /// dimension sharded before.
    fn along_axes(&mut self, meta: Meta, from: &Shards, to: &Layout) -> Resharded {
        let mut layout = from.layout.clone();
        let mut resharded = Resharded::borrowed(&from.slots);
        let axes = to.mesh().rank();
        for pass in [
            ReshardPass::Narrow,
            ReshardPass::Reduce,
            ReshardPass::Widen,
            ReshardPass::Cut,
            ReshardPass::Split,
        ] {
            for axis in 0..axes {
                let (have, want) = (placement(&layout, axis), placement(to, axis));
                if have == want {
                    continue;
                }
                if let Some(next) = pass.step(&layout, to, axis) {
                    let slots = self.step(meta, &layout, &resharded.slots, axis, &next);
                    self.discard(&layout, &resharded);
                    resharded = Resharded::owned(slots);
                    layout = layout.with(axis, next);
                }
            }
        }
        resharded
    }

    /// Changes the placement along one mesh dimension; returns new slots.
    fn step(
        &mut self,
        meta: Meta,
        layout: &Layout,
        slots: &[u32],
        axis: usize,
        next: &Placement,
    ) -> Slots {
        let mesh = layout.mesh().clone();
        let mut results = Slots::from_elem(u32::MAX, slots.len());
        for places in mesh.lines(axis) {
            let line = places
                .iter()
                .zip(mesh.workers(&places))
                .map(|(&place, worker)| (worker, slot_at(slots, place)))
                .collect();
            let new_slots = self.step_of_line(meta, layout, (&places, &line), axis, next);
            for (place, slot) in places.iter().zip(new_slots) {
                if let Some(result) = results.get_mut(*place) {
                    *result = slot;
                }
            }
        }
        results
    }

    /// Changes the placement of one line of members, given by their indices in the mesh and their
    /// slots.
    fn step_of_line(
        &mut self,
        meta: Meta,
        layout: &Layout,
        (places, line): (&[usize], &MeshLine),
        axis: usize,
        next: &Placement,
    ) -> Slots {
        // All members of a line hold the same part of the other dimensions.
        let first = *places.first().expect("a line has members");
        let gathered = layout.with(axis, Placement::Replicate);
        let whole = Meta::new(meta.dtype, gathered.local_dims(&meta.dims, first));
        match (&placement(layout, axis), next) {
            (Placement::Partial(op), Placement::Shard { dim, ranges }) => {
                self.reduce_to_shards(line, *op, (*dim, ranges), whole)
            }
            (Placement::Partial(op), _) => self.all_reduce(line, *op, whole),
            (Placement::Shard { dim, ranges }, Placement::Shard { dim: to, ranges: target }) => {
                self.exchange_shards(line, (*dim, ranges), (*to, target), whole)
            }
            (Placement::Shard { dim, ranges }, _) => {
                self.gather_shards(line, (*dim, ranges), whole)
            }
            (Placement::Replicate, Placement::Shard { .. }) => {
                let target = layout.with(axis, next.clone());
                let members = places.iter().zip(line);
                members
                    .map(|(&place, &(worker, slot))| {
                        let have = shard_box(layout, &meta.dims, place);
                        let want = shard_box(&target, &meta.dims, place);
                        let shard = Meta::new(meta.dtype, dims_of(&want));
                        match self.cut(worker, slot, &have, &want) {
                            Some(part) => part,
                            None => self.alias(worker, slot, shard),
                        }
                    })
                    .collect()
            }
            (Placement::Replicate, Placement::Partial(op)) => line
                .iter()
                .enumerate()
                .map(|(coordinate, &(worker, slot))| {
                    self.contribution(worker, slot, coordinate, *op, whole)
                })
                .collect(),
            (Placement::Replicate, Placement::Replicate) => {
                line.iter().map(|&(_, slot)| slot).collect()
            }
        }
    }

    /// Contribution of a member to a reduction that gives the value: the whole value, or the
    /// neutral element.
    fn contribution(
        &mut self,
        worker: u32,
        slot: u32,
        coordinate: usize,
        op: ReduceOp,
        meta: Meta,
    ) -> u32 {
        let nothing = match op {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            // The maximum of equal values is that value.
            ReduceOp::Max | ReduceOp::Min => return self.alias(worker, slot, meta),
        };
        if coordinate == 0 {
            return self.alias(worker, slot, meta);
        }
        self.filled(worker, meta, nothing)
    }
}

fn placement(layout: &Layout, axis: usize) -> Placement {
    let Some(placement) = layout.placements().get(axis) else {
        unreachable!("dimension {axis} of the mesh of {layout}")
    };
    placement.clone()
}

/// Number of mesh dimensions that shard.
fn cuts(layout: &Layout) -> usize {
    layout.placements().iter().filter(|placement| placement.cut().is_some()).count()
}

/// Slots of `to`'s members if each of them already holds its shard.
fn members_of(from: &Shards, to: &Layout) -> Option<Slots> {
    let whole = from.layout.is_whole() && to.is_whole();
    let slots = || to.mesh().members().iter().map(|&worker| from.on(worker)).collect();
    if whole { slots() } else { None }
}

/// Returns true if shards match one to one: both meshes have the same shape, and the placements are
/// equal.
fn is_matched(from: &Shards, to: &Layout) -> bool {
    from.layout.mesh().shape() == to.mesh().shape() && from.layout.placements() == to.placements()
}

/// Passes over the mesh dimensions, in the order in which they change placements.
#[derive(Clone, Copy)]
enum ReshardPass {
    /// Shards a replicated value where no other mesh dimension shards that tensor dimension.
    Narrow,
    /// Reduces a partial value: to shards if possible, else to the whole.
    Reduce,
    /// Exchanges shards for other shards if possible, else gathers them.
    Widen,
    /// Shards a replicated value, also where another mesh dimension sharded that tensor dimension
    /// before.
    Cut,
    /// Makes a replicated value partial.
    Split,
}

impl ReshardPass {
    /// Placement along `axis` after this pass; `None` if this pass leaves it unchanged.
    fn step(self, layout: &Layout, to: &Layout, axis: usize) -> Option<Placement> {
        let (have, want) = (placement(layout, axis), placement(to, axis));
        let cut_elsewhere = |dim: usize| layout.cut_of(dim).is_some_and(|(other, _)| other != axis);
        match (self, &have, &want) {
            (Self::Reduce, Placement::Partial(_), Placement::Shard { dim, .. })
            | (Self::Narrow, Placement::Replicate, Placement::Shard { dim, .. })
                if !cut_elsewhere(*dim) =>
            {
                Some(want)
            }
            (
                Self::Widen,
                Placement::Shard { dim: from, ranges: current },
                Placement::Shard { dim, ranges },
            ) if are_exchanged(current, ranges) && !cut_elsewhere(*dim) => Some(want),
            (Self::Reduce, Placement::Partial(_), _)
            | (Self::Widen, Placement::Shard { .. }, _) => Some(Placement::Replicate),
            (Self::Cut, Placement::Replicate, Placement::Shard { .. })
            | (Self::Split, Placement::Replicate, Placement::Partial(_)) => Some(want),
            _ => None,
        }
    }
}
