//! The short way: every operand is on one worker, and so are the results.

use crate::Dispatcher;
use crate::event::{SessionId, Sink, low_half};
use crate::handle::Shards;
use gt_protocol::placement::Layout;
use gt_protocol::rules::{ErrorClass, RuleError};
use gt_protocol::{Id, Instruction, Meta, wire};
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
        let mut words = std::mem::take(&mut self.scratch);
        words.clear();
        if let Err(error) = wire::encode(instruction, &mut words) {
            let error = RuleError { class: ErrorClass::Runtime, text: error.to_string() };
            self.scratch = words;
            return self.fail(session, instruction, number, &error, sink);
        }
        let slots: SmallVec<[u32; 4]> = outputs.iter().map(|_| self.take_slot(worker)).collect();
        let Some(state) = self.sessions.get(&session) else { return };
        let held = |slot: u32| state.value(slot).and_then(|value| value.shards.slots.first());
        wire::rebind(&mut words, instruction, low_half(number), slots.iter().copied(), |slot| {
            held(slot).copied().unwrap_or(u32::MAX)
        });
        let first = instruction.values().next().and_then(Id::as_slot);
        let layout = first
            .and_then(|slot| state.value(slot))
            .map_or_else(|| Layout::on(worker), |value| value.shards.layout.clone());
        self.send_words(session, worker, &words, sink);
        self.scratch = words;
        let results = outputs
            .iter()
            .zip(slots)
            .map(|(meta, slot)| (*meta, Shards { layout: layout.clone(), slots: smallvec![slot] }));
        self.define_values(session, instruction, number, results);
    }
}
