//! From one layout to another.

use super::collective::Line;
use super::cut::{Extent, dims_of};
use super::line::are_exchanged;
use super::{Brought, Mover};
use crate::handle::{Shards, Slots};
use gt_protocol::placement::{Fold, Layout, Placement};
use gt_protocol::{Attr, Dims, Meta, Op, Scalar};

/// What each member of a layout holds.
pub(crate) fn held(layout: &Layout, dims: &Dims, place: usize) -> Extent {
    dims.iter().enumerate().map(|(dim, &size)| layout.held(place, dim, size)).collect()
}

impl Mover<'_> {
    /// The value of `from` as `to` says.
    pub fn redistribute(&mut self, meta: Meta, from: &Shards, to: &Layout) -> Brought {
        if from.layout == *to {
            return Brought::lent(&from.slots);
        }
        if from.layout.mesh() == to.mesh() {
            return self.along_axes(meta, from, to);
        }
        if let Some(slots) = members_of(from, to) {
            return Brought::lent(&slots);
        }
        if from.layout.is_partial() || cuts(&from.layout) > 1 && !is_matched(from, to) {
            let whole = Layout::replicated(from.layout.mesh().clone());
            let gathered = self.along_axes(meta, from, &whole);
            let source = Shards { layout: whole, slots: gathered.slots.clone() };
            let brought = self.redistribute(meta, &source, to);
            return self.kept(meta, &source, &gathered, to, brought);
        }
        self.fetch(meta, from, to)
    }

    /// What was brought from a temporary source: that source goes, unless it is what was brought.
    fn kept(
        &mut self,
        meta: Meta,
        source: &Shards,
        gathered: &Brought,
        to: &Layout,
        brought: Brought,
    ) -> Brought {
        if !gathered.owned {
            return brought;
        }
        let brought = Brought::owned(self.own(meta, to, brought));
        self.discard(&source.layout, gathered);
        brought
    }

    /// On the same mesh, dimension by dimension: cuts first, which make folds and gathers smaller, then folds, gathers, and
    /// the cuts of dimensions that something else has cut before.
    fn along_axes(&mut self, meta: Meta, from: &Shards, to: &Layout) -> Brought {
        let mut layout = from.layout.clone();
        let mut brought = Brought::lent(&from.slots);
        let axes = to.mesh().rank();
        for pass in [Pass::Narrow, Pass::Fold, Pass::Widen, Pass::Cut, Pass::Split] {
            for axis in 0..axes {
                let (have, want) = (placement(&layout, axis), placement(to, axis));
                if have == want {
                    continue;
                }
                if let Some(next) = pass.step(&layout, to, axis) {
                    let slots = self.step(meta, &layout, &brought.slots, axis, &next);
                    self.discard(&layout, &brought);
                    brought = Brought::owned(slots);
                    layout = layout.with(axis, next);
                }
            }
        }
        brought
    }

    /// One mesh dimension takes another placement; new slots.
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
                .map(|(&place, worker)| (worker, slots.get(place).copied().unwrap_or(u32::MAX)))
                .collect();
            let made = self.step_of_line(meta, layout, (&places, &line), axis, next);
            for (place, slot) in places.iter().zip(made) {
                if let Some(result) = results.get_mut(*place) {
                    *result = slot;
                }
            }
        }
        results
    }

    /// The same for one line of members, by their places in the mesh and their slots.
    fn step_of_line(
        &mut self,
        meta: Meta,
        layout: &Layout,
        (places, line): (&[usize], &Line),
        axis: usize,
        next: &Placement,
    ) -> Slots {
        // All members of a line hold alike of the other dimensions.
        let first = places.first().copied().unwrap_or(0);
        let gathered = layout.with(axis, Placement::Replicate);
        let whole = Meta::new(meta.dtype, gathered.local_dims(&meta.dims, first));
        match (&placement(layout, axis), next) {
            (Placement::Partial(fold), Placement::Shard { dim, pieces }) => {
                self.fold_pieces(line, *fold, (*dim, pieces), whole)
            }
            (Placement::Partial(fold), _) => self.all_reduce(line, *fold, whole),
            (Placement::Shard { dim, pieces }, Placement::Shard { dim: to, pieces: wanted }) => {
                self.recut(line, (*dim, pieces), (*to, wanted), whole)
            }
            (Placement::Shard { dim, pieces }, _) => {
                self.gather_pieces(line, (*dim, pieces), whole)
            }
            (Placement::Replicate, Placement::Shard { .. }) => {
                let target = layout.with(axis, next.clone());
                let members = places.iter().zip(line);
                members
                    .map(|(&place, &(worker, slot))| {
                        let have = held(layout, &meta.dims, place);
                        let want = held(&target, &meta.dims, place);
                        let piece = Meta::new(meta.dtype, dims_of(&want));
                        match self.cut(worker, slot, &have, &want) {
                            Some(part) => part,
                            None => self.alias(worker, slot, piece),
                        }
                    })
                    .collect()
            }
            (Placement::Replicate, Placement::Partial(fold)) => line
                .iter()
                .enumerate()
                .map(|(coordinate, &(worker, slot))| {
                    self.contribution(worker, slot, coordinate, *fold, whole)
                })
                .collect(),
            (Placement::Replicate, Placement::Replicate) => {
                line.iter().map(|&(_, slot)| slot).collect()
            }
        }
    }

    /// What a member contributes to a fold that yields the value: all of it, or nothing.
    fn contribution(
        &mut self,
        worker: u32,
        slot: u32,
        coordinate: usize,
        fold: Fold,
        meta: Meta,
    ) -> u32 {
        let nothing = match fold {
            Fold::Sum => Scalar::Int(0),
            Fold::Prod => Scalar::Int(1),
            // The largest of equal values is that value.
            Fold::Max | Fold::Min => return self.alias(worker, slot, meta),
        };
        if coordinate == 0 {
            return self.alias(worker, slot, meta);
        }
        let attrs = [Attr::Ints(meta.dims), Attr::Scalar(nothing), Attr::Dtype(meta.dtype)];
        self.emit(worker, Op::Full, &[], attrs)
    }
}

fn placement(layout: &Layout, axis: usize) -> Placement {
    layout.placements().get(axis).cloned().unwrap_or_default()
}

/// How many mesh dimensions cut.
fn cuts(layout: &Layout) -> usize {
    layout.placements().iter().filter(|placement| placement.cut().is_some()).count()
}

/// Slots of `to`'s members where each of them holds its piece already.
fn members_of(from: &Shards, to: &Layout) -> Option<Slots> {
    let whole = from.layout.is_whole() && to.is_whole();
    let slots = || to.mesh().members().iter().map(|&worker| from.on(worker)).collect();
    if whole { slots() } else { None }
}

/// Whether pieces go over one to one: both meshes have the same shape, and the placements agree.
fn is_matched(from: &Shards, to: &Layout) -> bool {
    from.layout.mesh().shape() == to.mesh().shape() && from.layout.placements() == to.placements()
}

/// The order in which mesh dimensions change their placements.
#[derive(Clone, Copy)]
enum Pass {
    /// What is whole is cut, where nothing else cuts that dimension of the tensor.
    Narrow,
    /// What is partial is folded: into pieces where it can be, else into the whole.
    Fold,
    /// What is cut is exchanged for other pieces where it can be, else gathered.
    Widen,
    /// What is whole is cut, also where something else has cut that dimension until now.
    Cut,
    /// What is whole becomes partial.
    Split,
}

impl Pass {
    /// What the placement along `axis` becomes in this pass; `None` where this pass leaves it.
    fn step(self, layout: &Layout, to: &Layout, axis: usize) -> Option<Placement> {
        let (have, want) = (placement(layout, axis), placement(to, axis));
        let cut_elsewhere = |dim: usize| layout.cut_of(dim).is_some_and(|(other, _)| other != axis);
        match (self, &have, &want) {
            (Self::Fold, Placement::Partial(_), Placement::Shard { dim, .. })
            | (Self::Narrow, Placement::Replicate, Placement::Shard { dim, .. })
                if !cut_elsewhere(*dim) =>
            {
                Some(want)
            }
            (
                Self::Widen,
                Placement::Shard { dim: from, pieces: held },
                Placement::Shard { dim, pieces },
            ) if are_exchanged(held, pieces) && !cut_elsewhere(*dim) => Some(want),
            (Self::Fold, Placement::Partial(_), _) | (Self::Widen, Placement::Shard { .. }, _) => {
                Some(Placement::Replicate)
            }
            (Self::Cut, Placement::Replicate, Placement::Shard { .. })
            | (Self::Split, Placement::Replicate, Placement::Partial(_)) => Some(want),
            _ => None,
        }
    }
}
