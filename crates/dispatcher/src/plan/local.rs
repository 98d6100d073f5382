//! The short way: every operand is on one worker, and so are the results.

use crate::event::{SessionId, Sink};
use super::low_half;
use crate::Dispatcher;
use gt_protocol::placement::Layout;
use gt_protocol::{Id, Instruction, Meta, Operand};
use smallvec::{SmallVec, smallvec};

impl Dispatcher {
    pub(super) fn plan_local(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        worker: u32,
        sink: &mut dyn Sink,
    ) {
        let mut planned = instruction.clone();
        planned.tag = low_half(number);
        planned.signal = 0;
        let Some(state) = self.sessions.get(&session) else { return };
        let mut layout: Option<Layout> = None;
        for operand in &mut planned.operands {
            let Operand::Value(id) = operand else { continue };
            let value = id.as_slot().and_then(|slot| state.value(slot));
            let Some(slot) = value.and_then(|value| value.slots.first()) else { continue };
            *id = Id::slot(*slot);
            if layout.is_none() {
                layout = value.map(|value| value.layout.clone());
            }
        }
        let layout = layout.unwrap_or_else(|| self.layout_on(worker));
        let mut slots: SmallVec<[u32; 4]> = SmallVec::new();
        for output in &mut planned.outputs {
            let slot = self.take_slot(worker);
            slots.push(slot);
            *output = Id::slot(slot);
        }
        self.send(session, worker, &planned, sink);
        let results =
            outputs.iter().zip(slots).map(|(meta, slot)| (*meta, layout.clone(), smallvec![slot]));
        self.define_values(session, instruction, number, results);
    }

    fn layout_on(&self, worker: u32) -> Layout {
        super::on_one(worker)
    }
}
