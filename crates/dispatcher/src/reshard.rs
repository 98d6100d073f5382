//! Redistributing shards between workers: cutting, sending, gathering, reducing. This file only
//! emits instructions; the bytes go from worker to worker.
//!
//! Functions never free their input shards; they return either new slots or, where nothing had to
//! move, the input slots.

mod coalesced;
mod collective;
mod cut;
mod fetch;
mod line;
mod redistribute;

pub(crate) use fetch::without_partial;

use crate::planner::Planner;
use crate::session::provenance::Traffic;
use crate::session::value::{Slots, slot_at};
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Id, Meta, Op, Operand, Scalar};

/// Slots of a value in the requested layout.
#[derive(Clone, Debug)]
pub(crate) struct Resharded {
    pub slots: Slots,
    /// True if the slots are temporary: the caller frees them.
    pub owned: bool,
}

impl Resharded {
    pub fn borrowed(slots: &[u32]) -> Self {
        Self { slots: slots.into(), owned: false }
    }

    pub fn owned(slots: Slots) -> Self {
        Self { slots, owned: true }
    }
}

impl Planner<'_> {
    /// Frees temporary shards.
    pub fn discard(&mut self, layout: &Layout, resharded: &Resharded) {
        if resharded.owned {
            let members = layout.mesh().members().iter().copied();
            self.core.workers.free_all(members.zip(resharded.slots.iter().copied()), self.sink);
        }
    }

    /// Slots that can be kept: borrowed ones get aliases.
    pub fn own(&mut self, meta: Meta, layout: &Layout, resharded: Resharded) -> Slots {
        if resharded.owned {
            return resharded.slots;
        }
        let members = layout.mesh().members().iter().enumerate();
        members
            .map(|(place, &worker)| {
                let shard = Meta::new(meta.dtype, layout.local_dims(&meta.dims, place));
                self.alias(worker, slot_at(&resharded.slots, place), shard)
            })
            .collect()
    }

    /// Alias of a slot: the same memory under another slot, so that each can be freed.
    pub fn alias(&mut self, worker: u32, slot: u32, meta: Meta) -> u32 {
        self.emit(worker, Op::Reshape, &[slot], [Attr::Ints(meta.dims)])
    }

    /// A shard filled with one number.
    fn filled(&mut self, worker: u32, meta: Meta, number: i64) -> u32 {
        let attrs =
            [Attr::Ints(meta.dims), Attr::Scalar(Scalar::Int(number)), Attr::Dtype(meta.dtype)];
        self.emit(worker, Op::Full, &[], attrs)
    }

    /// Sends one worker's value to another; returns the slot there.
    pub fn transfer(&mut self, source: u32, slot: u32, target: u32, meta: Meta) -> u32 {
        let tag = self.take_tag();
        let backend = self.core.workers.backend(&[source, target]);
        let mut word = self.word(Op::Send);
        word.operands.push(Operand::Value(Id::slot(slot)));
        word.attrs.extend([Attr::Int(i64::from(target)), tag.clone(), backend.clone()]);
        self.send(source, &word);
        self.count_moved(Traffic::Transfer, meta.bytes());
        let attrs = [
            Attr::Int(i64::from(source)),
            tag,
            Attr::Ints(meta.dims),
            Attr::Dtype(meta.dtype),
            backend,
        ];
        self.emit(target, Op::Receive, &[], attrs)
    }
}
