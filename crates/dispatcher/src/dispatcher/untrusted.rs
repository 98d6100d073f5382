//! Words of an untrusted client, passed on without being decoded: they are checked and the results'
//! metadata is inferred in place, then they take the fast path of an embedded client's. Words that
//! it refuses are decoded and go the general way, with the same result.

use super::Dispatcher;
use crate::event::{ClientFault, SessionId, Sink};
use crate::session::Session;
use crate::session::value::Value;
use gt_protocol::Meta;
use gt_protocol::rules::{Outputs, RuleArg, infer, keeps_metadata};
use gt_protocol::wire::{self, InstructionView};
use smallvec::SmallVec;

impl Dispatcher {
    /// [`Dispatcher::instruction`] for the words of one instruction, which may be written to.
    ///
    /// # Errors
    /// As there, and words that are no instruction.
    pub fn instruction_words(
        &mut self,
        session: SessionId,
        words: &mut [u32],
        sink: &mut dyn Sink,
    ) -> Result<(), ClientFault> {
        if !self.core.tracing
            && let Some(slots) = wire::freed(words)
        {
            self.core.touched_bytes = 0;
            return self.release(session, slots, sink);
        }
        self.core.touched_bytes = u64::MAX;
        let view = InstructionView::new(words)?.filter(|view| self.core.is_fast(view.op));
        if let Some(view) = view
            && let Some(outputs) = self.results_of(session, &view)
        {
            return self.inferred_words(session, view.op, words, &outputs, sink);
        }
        let (instruction, _) = wire::decode(words)?;
        self.instruction(session, &instruction, sink)
    }

    /// The metadata of its results, where all its operands are values: that of all operands where
    /// the rule keeps metadata, else by the rule. A mistake is found again, and reported, by the
    /// general way.
    fn results_of(&self, session: SessionId, view: &InstructionView<'_>) -> Option<Outputs> {
        let state = self.sessions.get(&session)?;
        if keeps_metadata(view.op)
            && let Some(meta) = common_meta(state, view.operands)
        {
            return Some(Outputs::from_slice(std::slice::from_ref(meta)));
        }
        let mut scalars = view.scalars.iter();
        let mut operands: SmallVec<[RuleArg<'_>; 4]> = SmallVec::new();
        for &word in view.operands {
            operands.push(if word == wire::IMMEDIATE {
                RuleArg::Scalar(
                    *scalars.next().expect("the view has a scalar for each immediate operand"),
                )
            } else {
                RuleArg::Value(state.value(word)?.meta())
            });
        }
        infer(view.op, &operands, &view.attrs).ok()
    }
}

/// The metadata that all operands share, if it has a float dtype and none of them is a number.
fn common_meta<'s>(state: &'s Session, operands: &[u32]) -> Option<&'s Meta> {
    let mut metas = operands.iter().map(|&slot| state.value(slot).map(Value::meta));
    let first = metas.next()??;
    (first.dtype.is_float() && metas.all(|meta| meta == Some(first))).then_some(first)
}
