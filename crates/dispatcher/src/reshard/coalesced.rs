//! Reduction of several partial values of one mesh along the same lines, by one message between
//! every two members.

use super::collective::group;
use crate::planner::Planner;
use crate::session::provenance::Traffic;
use crate::session::reductions::Reduction;
use crate::session::value::{Shards, slot_at};
use crate::workers::MeshLine;
use gt_protocol::{Attr, Id, Meta, Op, Operand};

impl Planner<'_> {
    /// Reduces values in their slots.
    pub fn all_reduce_coalesced(&mut self, reduction: &Reduction, values: &[(Meta, Shards)]) {
        let Reduction { mesh, axis, op } = reduction;
        for places in mesh.lines(*axis) {
            let workers = mesh.workers(&places);
            let first = *places.first().expect("a line has members");
            let bytes = |(meta, shards): &(Meta, Shards)| {
                let whole = reduction.reduced(&shards.layout);
                Meta::new(meta.dtype, whole.local_dims(&meta.dims, first)).bytes()
            };
            let total = values.iter().map(bytes).sum::<u64>();
            let lengths = values.iter().map(|value| bytes(value).cast_signed()).collect();
            let line: MeshLine = workers.iter().map(|&worker| (worker, 0)).collect();
            let tag = self.take_tag();
            let attrs = [group(&line), Attr::Choice(op.choice()), Attr::List(lengths), tag];
            self.count(&line, Traffic::AllReduce, total.saturating_mul(2));
            for (&place, &worker) in places.iter().zip(&workers) {
                let mut word = self.word(Op::AllReduceCoalesced);
                let slots = values.iter().map(|(_, shards)| slot_at(&shards.slots, place));
                word.operands.extend(slots.map(|slot| Operand::Value(Id::slot(slot))));
                word.attrs.extend(attrs.iter().cloned());
                self.send(worker, &word);
            }
        }
    }
}
