//! The dispatcher: its sessions, their shared state, and its entry points.

mod answers;
mod borrowing;
mod cancel;
mod departure;
mod estimate;
mod fast_path;
mod named;
pub(crate) mod probe;
mod quota;
mod recovery;
mod untrusted;

use crate::control::release;
use crate::cost::CostModel;
use crate::event::{ClientFault, Event, SessionId, Sink, Statistics};
use crate::planner::{Config, Core, Planner};
use crate::session::Session;
use crate::session::value::{Shards, Value};
use borrowing::{BorrowedValue, refuse_grant};
use gt_protocol::{Instruction, Kind, Meta, Op};
use named::Named;
use recovery::{Recovery, Suspects};
use std::collections::BTreeMap;

pub use named::{NamedSummary, SessionRefusal};
pub use quota::UserHolding;

/// All state of one dispatcher.
pub struct Dispatcher {
    sessions: BTreeMap<SessionId, Session>,
    /// Sessions that outlive their clients, by name.
    named: BTreeMap<Box<str>, Named>,
    /// Bytes that users may hold; users without an entry may hold any number.
    quotas: BTreeMap<Box<str>, u64>,
    /// Bytes that sessions may hold; those without an entry may hold what their user may.
    session_quotas: BTreeMap<SessionId, u64>,
    shared: Vec<BorrowedValue>,
    next_session: u32,
    /// Instructions that were running when their worker died.
    suspects: Suspects,
    /// The recovery that has begun, if one has.
    recovery: Option<Recovery>,
    /// Number of questions for lost values so far.
    questions: u64,
    core: Core,
}

impl Default for Dispatcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Dispatcher {
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    pub fn with(config: Config) -> Self {
        Self {
            sessions: BTreeMap::new(),
            named: BTreeMap::new(),
            quotas: BTreeMap::new(),
            session_quotas: BTreeMap::new(),
            shared: Vec::new(),
            next_session: 1,
            suspects: Suspects::default(),
            recovery: None,
            questions: 0,
            core: Core::new(config),
        }
    }

    /// Sets if [`Sink::trace`] is called for each instruction.
    pub fn set_tracing(&mut self, tracing: bool) {
        self.core.tracing = tracing;
    }

    /// Sets if [`TraceNotes::reason`](crate::TraceNotes::reason) is filled.
    pub fn set_reasoning(&mut self, reasoning: bool) {
        self.core.reasoning = reasoning;
    }

    /// Sets the cost model, with which the planner compares layouts.
    pub fn set_cost_model(&mut self, cost_model: CostModel) {
        self.core.cost_model = cost_model;
        self.core.plans.forget();
        self.core.replays.forget();
    }

    /// Cost model that [`Self::set_cost_model`] has set.
    pub fn cost_model(&self) -> &CostModel {
        &self.core.cost_model
    }

    /// Opens a session. Its first tensors are created on the worker with the fewest sessions.
    pub fn open_session(&mut self) -> SessionId {
        let session = SessionId(self.next_session);
        self.next_session = self.next_session.wrapping_add(1).max(1);
        self.sessions.insert(session, Session::new());
        session
    }

    fn planner<'p>(&'p mut self, id: SessionId, sink: &'p mut dyn Sink) -> Option<Planner<'p>> {
        let session = self.sessions.get_mut(&id)?;
        Some(Planner::new(&mut self.core, session, id, sink))
    }

    /// Plans one instruction of a client and passes the workers' instructions to `sink`.
    ///
    /// # Errors
    /// A [`ClientFault`] is a breach of the protocol by the client; the caller closes the
    /// session. Mistakes in the data are not faults: they mark the results as failed.
    pub fn instruction(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), ClientFault> {
        if self.fast(session, instruction, None, sink).is_some()
            || self.replay(session, instruction, None, sink).is_some()
        {
            return Ok(());
        }
        self.general(session, instruction, None, sink)
    }

    /// [`Dispatcher::instruction`] for a trusted caller that has inferred the results' metadata by
    /// the same rules: an embedded client, which infers it to raise errors at the user's line.
    ///
    /// # Errors
    /// As above.
    pub fn inferred(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        outputs: &[Meta],
        sink: &mut dyn Sink,
    ) -> Result<(), ClientFault> {
        if self.fast(session, instruction, Some(outputs), sink).is_some()
            || self.replay(session, instruction, Some(outputs), sink).is_some()
        {
            return Ok(());
        }
        self.general(session, instruction, Some(outputs), sink)
    }

    /// The general way, which every instruction can take.
    fn general(
        &mut self,
        session: SessionId,
        instruction: &Instruction<'_>,
        known: Option<&[Meta]>,
        sink: &mut dyn Sink,
    ) -> Result<(), ClientFault> {
        if instruction.op == Op::Borrow {
            return self.borrow(session, instruction, sink);
        }
        if instruction.op == Op::Grant && !self.is_named(session) {
            return refuse_grant(session, instruction, sink);
        }
        let kind = instruction.op.info().kind();
        let refusal = match kind {
            Kind::Compute => self.over_quota(session, instruction, known),
            Kind::Control | Kind::Collective => None,
        };
        let mut planner = self.planner(session, sink).ok_or(ClientFault::NoSession { session })?;
        match kind {
            Kind::Control => planner.control(instruction),
            Kind::Collective => Err(ClientFault::NotForClients { op: instruction.op }),
            Kind::Compute => match refusal {
                Some(text) => planner.refuse(instruction, text),
                None => planner.define(instruction, known),
            },
        }
    }

    /// Frees values of a session, as the instruction `free` does, for a caller that has the slots.
    ///
    /// # Errors
    /// A slot that holds no value.
    pub fn release(
        &mut self,
        session: SessionId,
        slots: &[u32],
        sink: &mut dyn Sink,
    ) -> Result<(), ClientFault> {
        let Self { sessions, core, .. } = self;
        let state = sessions.get_mut(&session).ok_or(ClientFault::NoSession { session })?;
        slots.iter().try_for_each(|&slot| release(state, &mut core.workers, slot, sink))
    }

    /// Handles an event, which is anything except an instruction.
    pub fn handle(&mut self, event: Event<'_>, sink: &mut dyn Sink) {
        match event {
            Event::WorkerJoined { index } => self.core.workers.join(index),
            Event::WorkerProcess { index, process } => {
                self.core.workers.set_process(index, process);
            }
            Event::WorkerLeft { index, reason } => self.worker_left(index, reason, sink),
            Event::SessionDetached { session } => self.detach_session(session, sink),
            Event::SessionClosed { session } => self.close_session(session, sink),
            Event::StatsRequest { session, request } => self.ask_stats(session, request, sink),
            Event::FromWorker { index, message } => self.message_of_worker(index, &message, sink),
        }
    }

    /// Counts of the dispatcher's objects, for counters and the simulator's invariants.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            sessions: self.sessions.len(),
            workers: self.core.workers.alive().len(),
            values: self.sessions.values().map(Session::live_values).sum(),
            bytes: self.sessions.values().map(Session::live_bytes).sum(),
            requests: self.core.requests.open.len(),
            moved_bytes: self.core.moved_bytes,
            worker_slots: self.core.workers.used_slots(),
        }
    }

    /// Returns true if a session has layouts over workers: one that joins later is in none of them.
    pub fn has_layouts(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.has_layouts)
    }

    fn value(&self, session: SessionId, slot: u32) -> Option<&Value> {
        self.sessions.get(&session)?.value(slot)
    }

    /// The layout of a client's value, as the trace prints it; `None` for an unknown slot.
    pub fn layout_of(&self, session: SessionId, slot: u32) -> Option<String> {
        self.value(session, slot).map(|value| value.layout().to_string())
    }

    /// Returns true if no worker holds the value before its first use.
    pub fn is_deferred(&self, session: SessionId, slot: u32) -> bool {
        self.value(session, slot).is_some_and(|value| value.deferred().is_some())
    }

    /// The layouts of the copies of a client's value, without its own.
    pub fn copies_of(&self, session: SessionId, slot: u32) -> Vec<String> {
        let copies = self.value(session, slot).map(Value::copies).unwrap_or_default();
        copies.iter().map(|Shards { layout, .. }| layout.to_string()).collect()
    }
}
