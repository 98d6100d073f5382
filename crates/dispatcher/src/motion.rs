//! Moving pieces between workers: cutting, sending, gathering, folding. Only instructions pass here; bytes go worker to
//! worker.
//!
//! A [`Mover`] emits for one session. What it is given it never frees; what it returns is either a new value's slots or,
//! where nothing had to move, the slots it was given.

mod collective;
mod cut;
mod fetch;
mod line;
mod redistribute;
mod together;

pub(crate) use fetch::settled;
pub(crate) use together::Reduction;

use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::handle::{Shards, Slots};
use crate::note::Traffic;
use gt_protocol::placement::Layout;
use gt_protocol::{Attr, Id, Instruction, Meta, Op, Operand};

/// Emits instructions of the plan's own for a session.
pub(crate) struct Mover<'m> {
    pub core: &'m mut Dispatcher,
    pub session: SessionId,
    pub sink: &'m mut dyn Sink,
}

/// Pieces where they are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Brought {
    pub slots: Slots,
    /// They were made for this purpose: whoever asked frees them.
    pub owned: bool,
}

impl Brought {
    fn lent(slots: &[u32]) -> Self {
        Self { slots: slots.into(), owned: false }
    }

    fn owned(slots: Slots) -> Self {
        Self { slots, owned: true }
    }
}

impl Mover<'_> {
    pub fn new<'m>(
        core: &'m mut Dispatcher,
        session: SessionId,
        sink: &'m mut dyn Sink,
    ) -> Mover<'m> {
        Mover { core, session, sink }
    }

    pub fn send(&mut self, worker: u32, instruction: &Instruction<'_>) {
        self.core.send(self.session, worker, instruction, self.sink);
    }

    pub fn free(&mut self, worker: u32, slot: u32) {
        self.core.free_slots(worker, &[slot], self.sink);
    }

    pub fn free_shards(&mut self, shards: &Shards) {
        for (worker, slot) in shards.held() {
            self.free(worker, slot);
        }
    }

    /// Frees pieces that were made for one purpose.
    pub fn discard(&mut self, layout: &Layout, brought: &Brought) {
        if brought.owned {
            for (&worker, &slot) in layout.mesh().members().iter().zip(&brought.slots) {
                self.free(worker, slot);
            }
        }
    }

    /// Slots of `brought` that can be kept: lent ones are given a name of their own.
    pub fn own(&mut self, meta: Meta, layout: &Layout, brought: Brought) -> Slots {
        if brought.owned {
            return brought.slots;
        }
        let mut own = Slots::new();
        for (place, (&worker, &slot)) in
            layout.mesh().members().iter().zip(&brought.slots).enumerate()
        {
            let piece = Meta::new(meta.dtype, layout.local_dims(&meta.dims, place));
            own.push(self.alias(worker, slot, piece));
        }
        own
    }

    /// An instruction with one operand (or none) and one result on `worker`; the result's slot.
    pub fn emit(
        &mut self,
        worker: u32,
        op: Op,
        operands: &[u32],
        attrs: impl IntoIterator<Item = Attr>,
    ) -> u32 {
        let result = self.core.take_slot(worker);
        let mut word = self.core.word(op);
        word.outputs.push(Id::slot(result));
        word.operands.extend(operands.iter().map(|&slot| Operand::Value(Id::slot(slot))));
        word.attrs.extend(attrs);
        self.send(worker, &word);
        result
    }

    /// The same memory under another slot, so that each can be freed.
    pub fn alias(&mut self, worker: u32, slot: u32, meta: Meta) -> u32 {
        self.emit(worker, Op::Reshape, &[slot], [Attr::Ints(meta.dims)])
    }

    /// Sends one worker's value to another; the slot there.
    pub fn transfer(&mut self, source: u32, slot: u32, target: u32, meta: Meta) -> u32 {
        let tag = self.core.take_tag();
        let way = self.core.way(&[source, target]);
        let mut word = self.core.word(Op::Send);
        word.operands.push(Operand::Value(Id::slot(slot)));
        word.attrs.extend([Attr::Int(i64::from(target)), Attr::Int(tag), way.clone()]);
        self.send(source, &word);
        self.core.count_moved(self.session, Traffic::Transfer, meta.bytes());
        let attrs = [
            Attr::Int(i64::from(source)),
            Attr::Int(tag),
            Attr::Ints(meta.dims),
            Attr::Dtype(meta.dtype),
            way,
        ];
        self.emit(target, Op::Receive, &[], attrs)
    }
}
