//! The fast path: `plan` specialised for operands that are whole on one worker with nothing
//! pending. The words of such an instruction are rewritten in place and passed on; nothing is built
//! or copied. Any other instruction goes the general way; a property test holds both equal.

use super::Dispatcher;
use crate::event::{ClientFault, SessionId, Sink, low_half};
use crate::number::slot_of;
use crate::plan::infer_outputs;
use crate::planner::Core;
use crate::session::Session;
use crate::session::value::Value;
use gt_protocol::{Family, Id, Instruction, Meta, Op, wire};
use smallvec::SmallVec;
use std::sync::Arc;

impl Dispatcher {
    /// [`Dispatcher::inferred`] for an instruction without a list operand, given as words that may
    /// be written to.
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
    ) -> Result<(), ClientFault> {
        if self.rewrite(session, op, words, outputs, sink).is_some()
            || self.replay_words(session, op, words, Some(outputs), sink).is_some()
        {
            return Ok(());
        }
        let (instruction, _) = wire::decode(words).map_err(|_| ClientFault::Malformed { op })?;
        self.general(session, &instruction, Some(outputs), sink)
    }

    /// Plans words on the fast path; returns `None`, with nothing changed, where it cannot.
    fn rewrite(
        &mut self,
        id: SessionId,
        op: Op,
        words: &mut [u32],
        outputs: &[Meta],
        sink: &mut dyn Sink,
    ) -> Option<()> {
        let Self { sessions, core, .. } = self;
        let session = sessions.get_mut(&id).filter(|_| core.is_fast(op))?;
        let [_, tag, flags, rest @ ..] = &mut *words else { return None };
        let (defined, rest) = rest.split_at_mut_checked(outputs.len())?;
        let operands = rest.get_mut(..op.info().operands.len())?;
        let slots = || operands.iter().copied().filter(|&word| word < wire::SLOT_LIMIT);
        let signal = u16::try_from(*flags >> 16).ok()?;
        let plain = Plain::of(session, core, id, (op, signal), slots(), &defined.iter().copied())?;
        let result_bytes = bytes(outputs);
        if session.exceeds(result_bytes) {
            return None;
        }
        core.touched_bytes = plain.bytes.saturating_add(result_bytes);
        for word in operands {
            if *word < wire::SLOT_LIMIT {
                *word = plain_slot(session, *word);
            }
        }
        let site = *tag;
        let number = session.number(site);
        (*tag, *flags) = (low_half(number), *flags & 0xffff);
        for (output, (word, meta)) in (0..).zip(defined.iter_mut().zip(outputs)) {
            let result_slot = core.workers.take_slot(plain.worker);
            plain.define(session, *word, result_slot, meta, (site, number, output));
            *word = result_slot;
        }
        sink.words(plain.worker, words);
        Some(())
    }

    /// Sends the words of an instruction to several workers, if the same instruction was planned
    /// before.
    pub(super) fn replay_words(
        &mut self,
        id: SessionId,
        op: Op,
        words: &mut [u32],
        known: Option<&[Meta]>,
        sink: &mut dyn Sink,
    ) -> Option<()> {
        let mut planner = self.planner(id, sink).filter(|planner| planner.core.is_fast(op))?;
        planner.replay(op, words, known)
    }

    /// [`Self::replay_words`] for an instruction that is not encoded yet.
    pub(super) fn replay(
        &mut self,
        id: SessionId,
        instruction: &Instruction<'_>,
        known: Option<&[Meta]>,
        sink: &mut dyn Sink,
    ) -> Option<()> {
        if !self.core.is_fast(instruction.op) {
            return None;
        }
        let mut words = std::mem::take(&mut self.core.words);
        words.clear();
        let encoded = wire::encode(instruction, &mut words).ok();
        let op = instruction.op;
        let planned = encoded.and_then(|()| self.replay_words(id, op, &mut words, known, sink));
        self.core.words = words;
        planned
    }

    /// [`Self::rewrite`] for an instruction that is not encoded yet.
    pub(super) fn fast(
        &mut self,
        id: SessionId,
        instruction: &Instruction<'_>,
        known: Option<&[Meta]>,
        sink: &mut dyn Sink,
    ) -> Option<()> {
        let Self { sessions, core, .. } = self;
        let op = instruction.op;
        let session = sessions.get_mut(&id).filter(|_| core.is_fast(op))?;
        let slots = instruction.values().map(slot_of);
        let defined = instruction.outputs.iter().copied().map(slot_of);
        let is_complete = op.info().fits_outputs(instruction.outputs.len());
        let plain = Plain::of(session, core, id, (op, instruction.signal), slots, &defined)
            .filter(|_| is_complete)?;
        let inferred;
        let outputs = if let Some(known) = known {
            known
        } else {
            inferred = infer_outputs(session, instruction).ok()?;
            &inferred
        };
        if session.exceeds(bytes(outputs)) {
            return None;
        }
        let mut words = std::mem::take(&mut core.words);
        words.clear();
        let encoded = wire::encode(instruction, &mut words);
        if encoded.is_ok() {
            let number = session.number(instruction.tag);
            let result_slots: SmallVec<[u32; 4]> =
                outputs.iter().map(|_| core.workers.take_slot(plain.worker)).collect();
            let operand = |slot| plain_slot(session, slot);
            let results = result_slots.iter().copied();
            wire::rebind(&mut words, instruction, low_half(number), results, operand);
            for (output, ((slot, result_slot), meta)) in
                (0..).zip(defined.zip(result_slots).zip(outputs))
            {
                let place = (instruction.tag, number, output);
                plain.define(session, slot, result_slot, meta, place);
            }
            sink.words(plain.worker, &words);
        }
        core.words = words;
        encoded.ok()
    }
}

impl Core {
    /// Returns true if instructions of this operator may take the fast path. Creations depend on
    /// the metadata of an operand only.
    #[inline]
    pub(crate) fn is_fast(&self, op: Op) -> bool {
        self.config.fast_path
            && !self.tracing
            && !matches!(
                op.info().family,
                Family::Create | Family::Random | Family::Control | Family::Collective
            )
    }
}

/// The one worker that holds all of an instruction's operands.
struct Plain {
    worker: u32,
    /// The session's slot of the first operand: results have its layout, and often its metadata.
    first: u32,
    /// Bytes of all operands.
    bytes: u64,
}

impl Plain {
    /// `None` where the instruction has no operand, or does not qualify for the fast path.
    #[inline]
    fn of(
        session: &Session,
        core: &Core,
        id: SessionId,
        (op, signal): (Op, u16),
        operands: impl Iterator<Item = u32>,
        defined: &(impl Iterator<Item = u32> + Clone),
    ) -> Option<Self> {
        let (mut first, mut bytes) = (None, 0_u64);
        for slot in operands {
            let value = session.value(slot)?;
            let worker = value.plain()?;
            if first.get_or_insert((slot, worker)).1 != worker {
                return None;
            }
            bytes = bytes.saturating_add(value.spec().bytes);
        }
        let (first, worker) = first?;
        if !session.scopes.stays_on(signal, worker, core.workers.epoch())
            || !core.workers.is_addressed(worker, id)
        {
            return None;
        }
        for (position, slot) in defined.clone().enumerate() {
            session.check_definable(op, Id::slot(slot)).ok()?;
            if defined.clone().take(position).any(|earlier| earlier == slot) {
                return None;
            }
        }
        Some(Self { worker, first, bytes })
    }

    /// Enters a result in the worker's slot `result_slot`: its metadata, and its call site, number,
    /// and index among the outputs.
    #[inline]
    fn define(
        &self,
        session: &mut Session,
        slot: u32,
        result_slot: u32,
        meta: &Meta,
        (site, number, output): (u32, u64, u8),
    ) {
        let Some(first) = session.value(self.first) else {
            unreachable!("{} is plain", self.first)
        };
        let spec = if first.meta() == meta {
            Arc::clone(first.spec())
        } else {
            let layout = first.layout().clone();
            session.specs.of(meta, &layout)
        };
        let mut value = Value::on_one(spec, number, output, result_slot);
        value.site = site;
        session.enter(slot, value);
    }
}

#[inline]
fn bytes(outputs: &[Meta]) -> u64 {
    outputs.iter().map(Meta::bytes).fold(0, u64::saturating_add)
}

/// The worker's slot of an operand that is whole there.
#[inline]
fn plain_slot(session: &Session, slot: u32) -> u32 {
    let Some(value) = session.value(slot) else { unreachable!("slot {slot} is plain") };
    value.plain_slot()
}
