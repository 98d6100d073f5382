//! The dispatcher's core: handles, planning, placement, failures. A pure state machine.
//!
//! It has two doors. [`Dispatcher::instruction`] is the hot one: an instruction of a client in, instructions for
//! workers out through a [`Sink`]. [`Dispatcher::handle`] takes everything else: peers that come and go, and what
//! workers say. Both are called by whoever owns the sockets and rings; the simulator drives them just the same.
//!
//! **Architecture invariant:** no I/O, clock, thread, randomness or hash-map iteration here. The same calls in the same
//! order give the same outputs. The core never looks inside tensor bytes.

mod answers;
mod control;
mod departure;
mod event;
mod explain;
mod failure;
mod handle;
mod motion;
mod note;
mod plan;
mod planted;
mod prices;
mod probe;
mod reading;
mod request;
mod scope;
mod session;
mod uploads;
mod worker;

pub use event::{Event, Fault, SessionId, Sink, Statistics, TraceNotes, WorkerIndex};
pub use note::Motion;
pub use prices::{Link, Links, Prices, PricesError};
pub use probe::{Measured, Probe};

use event::number_of;
use failure::Failure;
use gt_protocol::{Family, Id, Instruction, Meta};
use session::Session;
use std::collections::BTreeMap;
use worker::Worker;

/// All state of one dispatcher.
#[derive(Default)]
pub struct Dispatcher {
    sessions: BTreeMap<SessionId, Session>,
    workers: Vec<Worker>,
    next_session: u32,
    /// Next request number on the worker side.
    next_request: i64,
    /// Next tag of a transfer between workers.
    next_tag: i64,
    requests: BTreeMap<i64, request::Request>,
    /// Number that is being planned for. What the plan adds carries it too: what fails there is the user's instruction.
    planning: u64,
    tracing: bool,
    /// Words of the instruction that is being planned.
    scratch: Vec<u32>,
    /// Bytes of a payload that go to one worker.
    cut: Vec<u8>,
    moved_bytes: u64,
    prices: Prices,
    plans: plan::Plans,
    /// Tensors without operands of so many bytes wait for their first use.
    late_bytes_min: u64,
    /// Whatever is partial is folded soon, seen before or not.
    folds_soon: bool,
    /// What the plan that is being made brought elsewhere.
    brought: note::BroughtList,
    /// What was folded together since the last line of the trace.
    together: Vec<Id>,
}

impl Dispatcher {
    pub fn new() -> Self {
        let late_bytes_min = plan::LATE_BYTES_MIN;
        Self { next_session: 1, next_request: 1, next_tag: 1, late_bytes_min, ..Self::default() }
    }

    /// Whether [`Sink::trace`] is called for each instruction.
    pub fn set_tracing(&mut self, tracing: bool) {
        self.tracing = tracing;
    }

    /// What work and traffic cost: the planner weighs layouts by it.
    pub fn set_prices(&mut self, prices: Prices) {
        self.prices = prices;
        self.plans.forget();
    }

    /// What [`Self::set_prices`] has set.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// Opens a session. Its first tensors live on the worker with the fewest sessions.
    pub fn open_session(&mut self) -> SessionId {
        let session = SessionId(self.next_session);
        self.next_session = self.next_session.wrapping_add(1).max(1);
        self.sessions.insert(session, Session::new());
        session
    }

    /// One instruction of a client: plans it and gives the workers' instructions to `sink`.
    ///
    /// # Errors
    /// A [`Fault`] is a breach of the protocol by the client; the caller closes the session. Mistakes in the data are not
    /// faults: they mark the results as failed.
    pub fn instruction(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        if !self.sessions.contains_key(&session) {
            return Err(Fault::NoSession { session });
        }
        match instruction.op.info().family {
            Family::Control => self.control(session, instruction, sink),
            Family::Collective => Err(Fault::NotForClients { op: instruction.op }),
            Family::Create
            | Family::Random
            | Family::Elementwise
            | Family::Contract
            | Family::Reduce
            | Family::Normalize
            | Family::View
            | Family::Index
            | Family::Loss
            | Family::Update => self.define_noted(session, instruction, None, sink),
        }
    }

    /// [`Dispatcher::instruction`] for a trusted caller that has inferred the results' metadata by the same rules: an
    /// embedded client, which did so to answer at the user's line.
    ///
    /// # Errors
    /// As above.
    pub fn inferred(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        outputs: &[Meta],
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        match instruction.op.info().family {
            Family::Control | Family::Collective => self.instruction(session, instruction, sink),
            Family::Create
            | Family::Random
            | Family::Elementwise
            | Family::Contract
            | Family::Reduce
            | Family::Normalize
            | Family::View
            | Family::Index
            | Family::Loss
            | Family::Update => self.define_noted(session, instruction, Some(outputs), sink),
        }
    }

    /// Defines an instruction's results, and keeps what the text of its failure needs.
    fn define_noted(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        known: Option<&[Meta]>,
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        self.define(session, instruction, known, sink)?;
        if let Some(state) = self.sessions.get_mut(&session) {
            state.note_operands(instruction);
        }
        Ok(())
    }

    /// Frees values of a session: what a `free` instruction does, for a caller that has the slots at hand.
    ///
    /// # Errors
    /// A slot that holds nothing.
    pub fn release(
        &mut self,
        session: SessionId,
        slots: &[u32],
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        for &slot in slots {
            self.release_one(session, slot, sink)?;
        }
        Ok(())
    }

    /// Everything that is not an instruction.
    pub fn handle(&mut self, event: Event<'_>, sink: &mut dyn Sink) {
        match event {
            Event::WorkerJoined { index } => self.worker_joined(index),
            Event::WorkerLeft { index, reason } => self.worker_left(index, reason, sink),
            Event::SessionClosed { session } => self.close_session(session, sink),
            Event::StatsRequest { session, request } => self.ask_stats(session, request, sink),
            Event::FromWorker { index, message } => self.worker_says(index, &message, sink),
        }
    }

    /// What the dispatcher holds, for counters and the simulator's invariants.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            sessions: self.sessions.len(),
            workers: self.workers.iter().filter(|worker| worker.alive).count(),
            values: self.sessions.values().map(Session::live_values).sum(),
            bytes: self.sessions.values().map(Session::live_bytes).sum(),
            requests: self.requests.len(),
            moved_bytes: self.moved_bytes,
            worker_slots: self.workers.iter().map(Worker::used_slots).sum(),
        }
    }

    /// Where a client's value lies, as the trace prints it; `None` for an unknown slot.
    pub fn layout_of(&self, session: SessionId, slot: u32) -> Option<String> {
        self.sessions.get(&session)?.value(slot).map(|value| value.shards.layout.to_string())
    }

    /// Whether workers hold it, or will once they get there: what waits for its first use is held by none.
    pub fn is_made(&self, session: SessionId, slot: u32) -> bool {
        let value = self.sessions.get(&session).and_then(|state| state.value(slot));
        value.is_some_and(|value| value.recipe.is_none())
    }

    /// How the remembered copies of a client's value lie, beside the value itself.
    pub fn copies_of(&self, session: SessionId, slot: u32) -> Vec<String> {
        let value = self.sessions.get(&session).and_then(|state| state.value(slot));
        let copies = value.map(|value| value.copies.as_slice()).unwrap_or_default();
        copies.iter().map(|copy| copy.layout.to_string()).collect()
    }

    /// What a session's instructions moved, and what its plans over several workers needed.
    pub fn motion_of(&self, session: SessionId) -> Option<Motion> {
        self.sessions.get(&session).map(|state| state.motion)
    }

    fn mark_failed(&mut self, session: SessionId, instruction: &Instruction<'_>, failure: Failure) {
        if let Some(state) = self.sessions.get_mut(&session) {
            let failure = state.remember(failure);
            for output in &instruction.outputs {
                state.define_failed(*output, failure.clone());
            }
        }
    }

    fn session_number(&self, session: SessionId, low: u32) -> u64 {
        self.sessions.get(&session).map_or(0, |state| number_of(state.next_number(), low))
    }
}
