//! Several partial values of one mesh, folded along the same lines of it by one message between every two members.

use super::Mover;
use super::collective::{Line, group};
use crate::handle::Shards;
use crate::note::{Laid, Traffic};
use crate::planted;
use gt_protocol::placement::{Fold, Layout, Mesh, Placement};
use gt_protocol::{Attr, Id, Meta, Op, Operand};
use smallvec::SmallVec;

/// Values in one instruction. Far below what a frame holds, and many enough that an instruction's own cost is nothing.
const VALUES_MAX: usize = 512;

/// What partial values have in common that can be folded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reduction {
    mesh: Mesh,
    axis: usize,
    fold: Fold,
}

impl Reduction {
    /// The one that makes `to` of `from`, where that is all there is to do.
    pub fn between(from: &Layout, to: &Layout) -> Option<Self> {
        if from.mesh() != to.mesh() {
            return None;
        }
        let pairs = from.placements().iter().zip(to.placements()).enumerate();
        let mut changes = pairs.filter(|(_, (have, want))| have != want);
        let (axis, (have, want)) = changes.next()?;
        match (have, want) {
            (Placement::Partial(fold), Placement::Replicate) if changes.next().is_none() => {
                Some(Self { mesh: from.mesh().clone(), axis, fold: *fold })
            }
            _ => None,
        }
    }

    /// The workers of each line.
    pub fn lines(&self) -> impl Iterator<Item = SmallVec<[u32; 8]>> + '_ {
        self.mesh.lines(self.axis).map(|places| self.mesh.workers(&places))
    }

    fn folded(&self, layout: &Layout) -> Layout {
        layout.with(self.axis, Placement::Replicate)
    }

    /// Bytes of a value that a line's first member holds, the first line's.
    pub fn bytes(&self, meta: Meta, layout: &Layout) -> u64 {
        Meta::new(meta.dtype, self.folded(layout).local_dims(&meta.dims, 0)).bytes()
    }
}

/// A value that is to be folded: the session's slot, its metadata and its pieces.
type Part = (u32, Meta, Shards);

impl Mover<'_> {
    /// Folds values of the session, in their slots, by as few messages as the limit of bytes allows. They lie folded from
    /// now on.
    pub fn fold_together(&mut self, reduction: &Reduction, slots: &[u32]) {
        let limit = self.core.bundle_bytes();
        let mut parts: Vec<Part> = Vec::new();
        let mut bytes = 0_u64;
        for &slot in slots {
            let state = self.core.sessions.get(&self.session);
            let Some(value) = state.and_then(|state| state.value(slot)) else { continue };
            let part = (slot, value.meta, value.shards.clone());
            let more = reduction.bytes(part.1, &part.2.layout);
            bytes = bytes.saturating_add(more);
            if bytes > limit || parts.len() == VALUES_MAX {
                self.fold_parts(reduction, &std::mem::take(&mut parts));
                bytes = more;
            }
            parts.push(part);
        }
        self.fold_parts(reduction, &parts);
    }

    fn fold_parts(&mut self, reduction: &Reduction, parts: &[Part]) {
        match parts {
            [] => return,
            [(slot, meta, shards)] => {
                self.settle(*meta, shards, *slot, &reduction.folded(&shards.layout));
                return;
            }
            several => self.reduce_together(reduction, several),
        }
        let planning = self.core.planning;
        for (slot, _, shards) in parts {
            self.core.note_together(self.session, *slot);
            if let Some(value) = self.core.value_mut(self.session, *slot) {
                value.shards.layout = reduction.folded(&shards.layout);
                value.laid = Laid::For(planning);
            }
        }
    }

    fn reduce_together(&mut self, reduction: &Reduction, parts: &[Part]) {
        let Reduction { mesh, axis, fold } = reduction;
        for places in mesh.lines(*axis) {
            let workers = mesh.workers(&places);
            let first = places.first().copied().unwrap_or(0);
            let lengths: Box<[i64]> = parts
                .iter()
                .map(|(_, meta, shards)| {
                    let whole = reduction.folded(&shards.layout);
                    let piece = Meta::new(meta.dtype, whole.local_dims(&meta.dims, first));
                    i64::try_from(piece.bytes()).unwrap_or(i64::MAX)
                })
                .collect();
            let bytes = lengths.iter().fold(0, |sum: u64, &one| sum + one.unsigned_abs());
            if planted::DROPPED_FOLD {
                continue;
            }
            let line: Line = workers.iter().map(|&worker| (worker, 0)).collect();
            let tag = Attr::Int(self.core.take_tag());
            let attrs = [group(&line), Attr::Choice(fold.choice()), Attr::List(lengths), tag];
            self.count(&line, Traffic::AllReduce, bytes.saturating_mul(2));
            for (&place, &worker) in places.iter().zip(&workers) {
                let mut word = self.core.word(Op::AllReduceCoalesced);
                let slot = |shards: &Shards| shards.slots.get(place).copied().unwrap_or(u32::MAX);
                let operands = parts.iter().map(|(_, _, shards)| Id::slot(slot(shards)));
                word.operands = operands.map(Operand::Value).collect::<SmallVec<_>>();
                word.attrs = attrs.iter().cloned().collect();
                self.send(worker, &word);
            }
        }
    }
}
