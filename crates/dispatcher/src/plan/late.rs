//! Large tensors that are made of nothing (zeros, random numbers) wait for their first use, which may say how they lie:
//! what is to be cut then never exists whole, on no worker.
//!
//! Until then such a value has a recipe and no slots; its layout is the one that it gets if its first use says nothing.

use super::spread::Run;
use crate::Dispatcher;
use crate::event::{SessionId, Sink};
use crate::failure::{Cause, Failure};
use crate::handle::{Handle, Recipe, Shards, Slots};
use crate::motion::Mover;
use gt_protocol::message::{FailureClass, Message};
use gt_protocol::placement::Layout;
use gt_protocol::{Family, Id, Instruction, Meta, Op};

/// Smaller ones are made at once: a megabyte more on a worker hurts nobody, and work that starts earlier ends earlier.
pub(crate) const LATE_BYTES_MIN: u64 = 1 << 20;

impl Dispatcher {
    /// Makes tensors without operands at their first use from so many bytes on. For tests, whose tensors are small.
    pub fn set_late_bytes_min(&mut self, bytes: u64) {
        self.late_bytes_min = bytes;
    }

    /// Enters the result of an instruction that can wait for its first use; whether it did.
    pub(super) fn put_off(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        number: u64,
        outputs: &[Meta],
        layout: &Layout,
    ) -> bool {
        let of_nothing = matches!(instruction.op.info().family, Family::Create | Family::Random)
            && instruction.op != Op::Upload
            && instruction.operands.is_empty();
        let [meta] = outputs else { return false };
        if !of_nothing || meta.bytes() < self.late_bytes_min {
            return false;
        }
        let shards = Shards { layout: layout.clone(), slots: Slots::new() };
        self.define_values(session, instruction, number, [(*meta, shards)]);
        let slot = instruction.outputs.first().copied().and_then(Id::as_slot);
        let recipe = Recipe { op: instruction.op, attrs: instruction.attrs.clone() };
        if let Some(value) = slot.and_then(|slot| self.value_mut(session, slot)) {
            value.recipe = Some(Box::new(recipe));
        }
        true
    }

    /// Makes those operands that have waited, as they were to lie; what that failed with, if it did.
    pub(super) fn make_operands(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Option<Failure> {
        for slot in instruction.values().filter_map(Id::as_slot) {
            self.make(session, slot, None, sink);
        }
        let state = self.sessions.get(&session)?;
        let mut operands = instruction.values().filter_map(Id::as_slot);
        operands.find_map(|slot| match state.handle(slot) {
            Handle::Failed(failure) => Some(failure.clone()),
            Handle::Live(_) | Handle::Free => None,
        })
    }

    /// Makes a value that has waited: as `asked` says, else as it was to lie.
    pub(crate) fn make(
        &mut self,
        session: SessionId,
        slot: u32,
        asked: Option<&Layout>,
        sink: &mut dyn Sink,
    ) {
        let Some(value) = self.value_mut(session, slot) else { return };
        let Some(recipe) = value.recipe.take() else { return };
        let (meta, number) = (value.meta, value.number);
        // A partial value is made whole first: only one member would have to contribute.
        let layout = asked.filter(|asked| !asked.is_partial()).unwrap_or(&value.shards.layout);
        let layout = layout.clone();
        let Some(layout) = self.among_the_living(session, layout) else {
            let text = "every worker is gone, and this value was not made yet".to_owned();
            return self.fail_value(session, slot, recipe.op, FailureClass::WorkerLost, text, sink);
        };
        let run = Run {
            op: recipe.op,
            attrs: &recipe.attrs,
            outputs: &[meta],
            payload: &[],
            consumes: 0,
        };
        let planning = std::mem::replace(&mut self.planning, number);
        let made = Mover::new(self, session, sink).create(run, &layout);
        self.planning = planning;
        match (made.map(|mut results| results.pop()), self.value_mut(session, slot)) {
            (Ok(Some((_, shards))), Some(value)) => value.shards = shards,
            (Err(error), _) => {
                self.fail_value(session, slot, recipe.op, error.class.into(), error.text, sink);
            }
            (Ok(_), _) => {}
        }
    }

    /// The layout, or where this session makes new tensors if one of the layout's workers has left meanwhile.
    fn among_the_living(&mut self, session: SessionId, layout: Layout) -> Option<Layout> {
        let alive = self.alive();
        if layout.mesh().members().iter().all(|worker| alive.contains(worker)) {
            return Some(layout);
        }
        self.home(session).map(Layout::on)
    }

    fn fail_value(
        &mut self,
        session: SessionId,
        slot: u32,
        op: Op,
        class: FailureClass,
        text: String,
        sink: &mut dyn Sink,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let Some(number) = state.value(slot).map(|value| value.number) else { return };
        let site = state.site_of(number);
        let failure = state.remember(Failure::new(Cause { number, class, op, site, text }));
        sink.session(session, &Message::Failure(failure.message(session)));
        state.define_failed(Id::slot(slot), failure);
    }
}
