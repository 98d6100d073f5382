//! Replay: `plan` specialised for an instruction on several workers that was planned before and
//! moved nothing. The words are rewritten in place, once for each member; nothing is decoded,
//! inferred or chosen. Any other instruction goes the general way; a property test holds both
//! equal.

use super::run::Run;
use crate::event::low_half;
use crate::planner::{Core, Planner};
use crate::session::Session;
use crate::session::failure::{ClientOperand, ClientOperands};
use crate::session::provenance::Decider;
use crate::session::scopes::PlacingScope;
use crate::session::spec::ValueSpec;
use crate::session::value::{Slots, Value, ValueState, slot_at};
use crate::strategy::choose::Choice;
use crate::strategy::replay::{Parts, ReplayQuery};
use gt_protocol::placement::{Layout, Mesh};
use gt_protocol::wire::{self, HEADER_WORDS};
use gt_protocol::{Id, Meta, Op, Operand};
use smallvec::SmallVec;
use std::sync::Arc;

/// Metadata and layouts of results.
type ResultSpecs = SmallVec<[Arc<ValueSpec>; 1]>;

/// Key of a replay; `None` where an operand is deferred, pending or failed.
fn query<'q>(
    session: &'q Session,
    parts: Parts<'q>,
    mesh: Option<&'q Mesh>,
    known: Option<&'q [Meta]>,
) -> Option<ReplayQuery<'q>> {
    let mut query = ReplayQuery { parts, mesh, operands: SmallVec::new(), twins: 0, known };
    for (position, &word) in parts.operands.iter().enumerate() {
        if word >= wire::SLOT_LIMIT {
            query.operands.push(None);
            continue;
        }
        let value = session.value(word)?;
        if !value.is_materialized() {
            return None;
        }
        query.operands.push(Some(value.spec()));
        let earlier = parts.operands.get(..position)?;
        query.twins |=
            u16::from(earlier.contains(&word)).checked_shl(u32::try_from(position).ok()?)?;
    }
    Some(query)
}

/// Checks that the slots of all results are free.
fn check_outputs(session: &Session, parts: Parts<'_>) -> Option<()> {
    for (position, &slot) in parts.outputs.iter().enumerate() {
        session.check_definable(parts.op, Id::slot(slot)).ok()?;
        if parts.outputs.iter().take(position).any(|&earlier| earlier == slot) {
            return None;
        }
    }
    Some(())
}

/// The operands in the form that a failure's text shows.
fn client_operands(session: &Session, parts: Parts<'_>) -> ClientOperands {
    let mut scalars = parts.scalars.as_chunks().0.iter();
    let mut operand = |&word: &u32| match word {
        wire::IMMEDIATE => {
            let words = scalars.next().expect("three words for each immediate operand");
            ClientOperand::Scalar(wire::scalar(words).expect("the words were checked"))
        }
        wire::NONE => ClientOperand::Absent,
        slot => {
            let value = session.value(slot).expect("the operand was looked up before");
            ClientOperand::Value(Arc::clone(value.spec()))
        }
    };
    let mut operands = ClientOperands::new();
    for word in parts.operands {
        operands.push(operand(word));
    }
    operands
}

impl Planner<'_> {
    /// Plans words by a replay; returns `None`, with nothing changed, where there is none. The
    /// operator must be one of the fast path. `known` as in [`Planner::define`].
    pub fn replay(&mut self, op: Op, words: &mut [u32], known: Option<&[Meta]>) -> Option<()> {
        let parts = Parts::of(op, words)?;
        check_outputs(self.session, parts)?;
        let scope = self.placing_scope(parts.signal);
        let mesh = scope.as_ref().map(|scope| &scope.mesh);
        let replay = self.core.replays.get(&query(self.session, parts, mesh, known)?)?;
        if parts.slots().any(|slot| self.session.reductions.waits(slot)) {
            return None;
        }
        let specs: ResultSpecs = replay.outputs.clone();
        let bytes = specs.iter().map(|spec| spec.bytes).fold(0, u64::saturating_add);
        if self.session.exceeds(bytes) {
            return None;
        }
        self.number = self.session.number(parts.tag);
        let outputs: SmallVec<[u32; 2]> = SmallVec::from_slice(parts.outputs);
        let operands = client_operands(self.session, parts);
        let before = self.session.traffic;
        let by = (op, parts.signal, Decider::Strategy);
        let provenance = self.provenance(by, parts.slots(), &before);
        let slots = self.send_replay(op, words, &specs);
        let results = outputs.iter().zip(specs.into_iter().zip(slots));
        for (output, (&slot, (spec, slots))) in (0..).zip(results) {
            let mut value = Value::new(spec, self.number, output, ValueState::Ready(slots));
            value.set_provenance(Arc::clone(&provenance));
            self.session.define(slot, value);
        }
        self.expect_reductions(outputs.iter().copied());
        self.session.note_operands(op, operands);
        Some(())
    }

    /// Sends the words to each member of the mesh of the results; returns the results' slots.
    fn send_replay(
        &mut self,
        op: Op,
        words: &mut [u32],
        specs: &ResultSpecs,
    ) -> SmallVec<[Slots; 1]> {
        let Self { core: Core { workers, .. }, session, sink, .. } = self;
        let [_, tag, flags, rest @ ..] = &mut *words else { unreachable!("words have a header") };
        (*tag, *flags) = (low_half(self.number), *flags & 0xffff);
        let (outputs, operands_at) = (HEADER_WORDS.., HEADER_WORDS + specs.len());
        let operands = rest.iter().skip(specs.len()).take(op.info().operands.len());
        let mut values: SmallVec<[(usize, &[u32]); 4]> = SmallVec::new();
        for (at, &slot) in (operands_at..).zip(operands) {
            if let Some(value) = session.value(slot) {
                values.push((at, value.slots()));
            }
        }
        let mut results: SmallVec<[Slots; 1]> = SmallVec::new();
        results.resize(specs.len(), Slots::new());
        let first = specs.first().expect("a replay has a result");
        for (place, &worker) in first.layout.mesh().members().iter().enumerate() {
            for (at, slots) in outputs.clone().zip(&mut results) {
                let slot = workers.take_slot(worker);
                slots.push(slot);
                words[at] = slot;
            }
            for &(at, slots) in &values {
                words[at] = slot_at(slots, place);
            }
            if workers.address(self.id, worker, *sink) {
                sink.words(worker, words);
            }
        }
        results
    }

    /// Keeps the plan of an instruction for replays, if the same words on the same operands would
    /// always be planned so: its operands must be unchanged by it.
    pub(super) fn keep_replay(
        &mut self,
        run: Run<'_>,
        choice: &Choice,
        (scope, mesh): (Option<&PlacingScope>, &Mesh),
    ) {
        let Run { instruction, outputs } = run;
        let op = instruction.op;
        if !self.core.is_fast(op) || mesh.len() == 1 || !choice.local.is_empty() {
            return;
        }
        let stays = |(operand, need): (&Operand, &Layout)| match operand {
            Operand::Absent | Operand::Scalar(_) => true,
            Operand::Value(id) => {
                let layout =
                    id.as_slot().and_then(|slot| self.session.value(slot)).map(Value::layout);
                layout == Some(need) && !need.is_partial()
            }
        };
        if !instruction.operands.iter().zip(&choice.inputs).all(stays) {
            return;
        }
        let mut words = Vec::new();
        if wire::encode(instruction, &mut words).is_err() {
            return;
        }
        let specs = outputs.iter().zip(&choice.outputs);
        let specs: ResultSpecs =
            specs.map(|(meta, layout)| self.session.specs.of(meta, layout)).collect();
        let mesh = scope.map(|scope| &scope.mesh);
        let query =
            Parts::of(op, &words).and_then(|parts| query(self.session, parts, mesh, Some(outputs)));
        if let Some(query) = query {
            self.core.replays.keep(&query, specs);
        }
    }
}
