//! The shortest way: an instruction that is encoded already, whose operands are on one worker. Its words are rewritten
//! where they stand and go on; nothing is built or copied. Whatever is out of the ordinary takes the other ways.

use crate::Dispatcher;
use crate::event::{Fault, SessionId, Sink, low_half};
use crate::handle::{Handle, Shards, Value};
use crate::session::Session;
use gt_protocol::placement::Layout;
use gt_protocol::{Meta, Op, wire};
use smallvec::smallvec;

impl Dispatcher {
    /// [`Dispatcher::inferred`] for an instruction without a list operand, as words that may be written to.
    ///
    /// # Errors
    /// As [`Dispatcher::instruction`], and words that are no instruction.
    pub fn inferred_words(
        &mut self,
        session: SessionId,
        op: Op,
        words: &mut [u32],
        outputs: &[Meta],
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        if !self.tracing && self.short_way(session, op, words, outputs, sink).is_some() {
            return Ok(());
        }
        let (instruction, _) = wire::decode(words).map_err(|_| Fault::Malformed { op })?;
        self.inferred(session, &instruction, outputs, sink)
    }

    /// Plans where it can, having changed nothing where it cannot (`None`).
    fn short_way(
        &mut self,
        session: SessionId,
        op: Op,
        words: &mut [u32],
        outputs: &[Meta],
        sink: &mut dyn Sink,
    ) -> Option<()> {
        let Self { sessions, workers, .. } = self;
        let state = sessions.get_mut(&session)?;
        if state.scopes.is_any() {
            return None;
        }
        let [_, tag, flags, rest @ ..] = &mut *words else { return None };
        let (defined, rest) = rest.split_at_mut_checked(outputs.len())?;
        let operands = rest.get_mut(..op.info().operands.len())?;
        let (index, layout) = common(state, operands)?;
        let worker = workers.get_mut(usize::try_from(index).ok()?)?;
        // One result, so that no two of them can name the same slot.
        let ([slot], [meta]) = (defined, outputs) else { return None };
        if worker.session != Some(session) || !worker.alive || !state.definable(*slot) {
            return None;
        }
        for word in operands {
            if *word < wire::SLOT_LIMIT {
                *word = *state.value(*word)?.shards.slots.first()?;
            }
        }
        let number = state.number(*tag);
        (*tag, *flags) = (low_half(number), *flags & 0xffff);
        let held = worker.take_slot();
        let shards = Shards { layout, slots: smallvec![held] };
        state.define(*slot, Value::new(*meta, number, 0, shards));
        *slot = held;
        sink.words(index, words);
        Some(())
    }
}

/// The one worker that holds all the operands whole, and the layout there.
fn common(state: &Session, operands: &[u32]) -> Option<(u32, Layout)> {
    let mut found: Option<(u32, &Layout)> = None;
    for &word in operands.iter().filter(|&&word| word < wire::SLOT_LIMIT) {
        let Handle::Live(value) = state.handle(word) else { return None };
        let worker = value.single()?;
        match found {
            Some((other, _)) if other != worker => return None,
            Some(_) => {}
            None => found = Some((worker, &value.shards.layout)),
        }
    }
    found.map(|(worker, layout)| (worker, layout.clone()))
}
