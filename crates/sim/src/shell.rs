//! A server's work around the core: it passes words in, sends words out, and closes sessions that
//! break the protocol.

use crate::mistake::{Mistake, Occasion, Planted};
use crate::shadow::ShadowAccounts;
use gt_dispatcher::{
    ClientFault, Dispatcher, Event, Replacements, SessionId, Sink, TraceNotes, WorkerIndex,
};
use gt_protocol::message::{self, FromClient, FromWorker, Peer, Reach, ToClient, ToWorker};
use gt_protocol::text::{self, NoNames, PayloadText};
use gt_protocol::wire::{self, MESSAGE_CODE_FIRST, cut};
use gt_protocol::{Family, Id, Instruction, Meta, Op};
use gt_worker::PeerId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Level of detail of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    Nothing,
    /// Each instruction of a client, and faults.
    Clients,
    /// Each instruction of a worker and each message as well.
    Everything,
}

pub struct Shell {
    pub dispatcher: Dispatcher,
    pub accounts: ShadowAccounts,
    pub outputs: CoreOutputs,
    planted: Option<Planted>,
    connections: BTreeMap<SessionId, SimConnection>,
    /// The number of workers, where one client has them to itself: it cancels on the workers, and
    /// not in front of the dispatcher.
    pub alone: Option<u32>,
    /// True once a worker has left without a successor.
    has_lost_a_worker: bool,
    pub instructions: u64,
}

struct SimConnection {
    client: usize,
    inbox: Vec<u32>,
    /// True for a client in the same process: it infers before it emits and frees without an
    /// instruction.
    embedded: bool,
    /// True once the client has closed its end: when its words are processed, the session ends.
    closing: bool,
}

/// Metadata that an embedded client infers before it emits; `None` where it would have raised an
/// error.
pub type InferredMeta<'a> = &'a dyn Fn(Id) -> Option<Meta>;

/// Outcome of processing a client's words.
pub enum Intake {
    /// Everything complete was taken.
    Drained,
    /// One frame was taken; there may be more.
    Taken,
    /// The session is over: the client closed it.
    Closed,
    /// The session is over: the client broke the protocol.
    Breach(String),
}

/// The core's outputs in order, and the trace.
pub struct CoreOutputs {
    pub to_workers: Vec<(WorkerIndex, Vec<u32>)>,
    pub to_sessions: Vec<(SessionId, Vec<u32>)>,
    pub detail: Detail,
    pub lines: Vec<String>,
    /// Number of cancels that the workers are told of before they reach them.
    pub cancels: u32,
    /// Error of an output that has no binary form.
    pub error: Option<String>,
    pub collectives: u64,
    /// Words that the workers were sent.
    pub replacements: Replacements,
}

/// Words that are kept: more than most simulations have, so some lose the oldest.
const LINEAGE_WORDS: usize = 1 << 20;

impl Shell {
    pub fn new(detail: Detail, config: gt_dispatcher::Config, mistake: Option<Mistake>) -> Self {
        let mut dispatcher = Dispatcher::with(config);
        dispatcher.set_tracing(detail > Detail::Nothing);
        let outputs = CoreOutputs {
            to_workers: Vec::new(),
            to_sessions: Vec::new(),
            detail,
            lines: Vec::new(),
            cancels: 0,
            error: None,
            collectives: 0,
            replacements: Replacements::new(LINEAGE_WORDS),
        };
        let connections = BTreeMap::new();
        Self {
            dispatcher,
            accounts: ShadowAccounts::default(),
            outputs,
            planted: mistake.map(Planted::new),
            connections,
            alone: None,
            has_lost_a_worker: false,
            instructions: 0,
        }
    }

    pub fn open(&mut self, client: usize, embedded: bool) -> SessionId {
        let session = self.dispatcher.open_session();
        self.accounts.open(session);
        let inbox = Vec::new();
        self.connections.insert(session, SimConnection { client, inbox, embedded, closing: false });
        session
    }

    pub fn client_of(&self, session: SessionId) -> Option<usize> {
        self.connections.get(&session).map(|connection| connection.client)
    }

    pub fn sessions(&self) -> Vec<SessionId> {
        self.connections.keys().copied().collect()
    }

    pub fn receive(&mut self, session: SessionId, words: &[u32]) {
        if let Some(connection) = self.connections.get_mut(&session) {
            connection.inbox.extend_from_slice(words);
        }
    }

    pub fn client_closed(&mut self, session: SessionId) {
        if let Some(connection) = self.connections.get_mut(&session) {
            connection.closing = true;
        }
    }

    /// Takes the next frame of a session.
    pub fn take_frame(&mut self, session: SessionId, inferred: InferredMeta<'_>) -> Intake {
        if self.outputs.replacements.is_holding() {
            return Intake::Drained;
        }
        let Some(connection) = self.connections.get_mut(&session) else { return Intake::Drained };
        let length = match cut::first(&connection.inbox) {
            Ok(Some(frame)) => frame.len(),
            Ok(None) if connection.closing => {
                self.close(session);
                return Intake::Closed;
            }
            Ok(None) => return Intake::Drained,
            Err(error) => {
                self.close(session);
                return Intake::Breach(error.to_string());
            }
        };
        let is_cancelled = message::count_cancels(&connection.inbox) > 0;
        let frame: Vec<u32> = connection.inbox.drain(..length).collect();
        match self.frame(session, &frame, is_cancelled, inferred) {
            Ok(()) => Intake::Taken,
            Err(text) => {
                self.close(session);
                Intake::Breach(text)
            }
        }
    }

    fn frame(
        &mut self,
        session: SessionId,
        frame: &[u32],
        is_cancelled: bool,
        inferred: InferredMeta<'_>,
    ) -> Result<(), String> {
        let (code, _) = wire::halves(frame[0]);
        if code >= MESSAGE_CODE_FIRST {
            let (message, _) = message::decode(frame).map_err(|error| error.to_string())?;
            let event = match message {
                FromClient::StatsRequest { request } => Event::StatsRequest { session, request },
                FromClient::Sessions { .. } => return Err("asked for sessions".to_owned()),
                FromClient::Cancel => {
                    self.cancel_on_workers();
                    return Ok(());
                }
                FromClient::Goodbye { reason } => return Err(format!("said goodbye: {reason}")),
            };
            self.handle(event);
            return Ok(());
        }
        let (instruction, _) = wire::decode(frame).map_err(|error| error.to_string())?;
        self.instructions += 1;
        if let Some(planted) = &mut self.planted {
            planted.note(session, &instruction, &self.accounts, &self.dispatcher);
        }
        let planned = if is_cancelled && self.alone.is_none() {
            self.dispatcher.cancel(session, &instruction, &mut self.outputs)
        } else {
            self.plan(session, (&instruction, frame), inferred)
        };
        planned.map_err(|fault| fault.to_string())?;
        self.plant(Occasion::Instruction);
        self.accounts.enter(session, &instruction, &self.dispatcher);
        Ok(())
    }

    /// Cancels what the only session has sent to workers, as an embedded client does.
    fn cancel_on_workers(&mut self) {
        if let Some(workers) = self.alone {
            self.outputs.cancels += 1;
            for worker in 0..workers {
                self.outputs.worker_message(worker, &ToWorker::Cancel);
            }
        }
    }

    /// Plans through the entry point that this kind of client uses.
    fn plan(
        &mut self,
        session: SessionId,
        (instruction, words): (&Instruction<'_>, &[u32]),
        inferred: InferredMeta<'_>,
    ) -> Result<(), ClientFault> {
        let embedded = self.connections.get(&session).is_some_and(|connection| connection.embedded);
        if embedded && instruction.op == Op::Free {
            let slots: Vec<u32> = instruction.values().filter_map(Id::as_slot).collect();
            return self.dispatcher.release(session, &slots, &mut self.outputs);
        }
        let number = self.accounts.next_number(session);
        let outputs = (0..).zip(&instruction.outputs).map(|(output, _)| Id::number(number, output));
        let metas: Option<Vec<Meta>> = outputs.map(inferred).collect();
        match metas {
            Some(metas) if embedded => {
                self.dispatcher.inferred(session, instruction, &metas, &mut self.outputs)
            }
            Some(_) | None => {
                let mut words = words.to_vec();
                self.dispatcher.instruction_words(session, &mut words, &mut self.outputs)
            }
        }
    }

    fn close(&mut self, session: SessionId) {
        self.connections.remove(&session);
        self.accounts.close(session);
        self.handle(Event::SessionClosed { session });
    }

    /// Adds a worker: it and the others are introduced to each other before any instruction that
    /// means one of them.
    pub fn worker_joined(&mut self, id: PeerId, others: &[PeerId]) {
        let index = id.index;
        self.introduce(id, others);
        self.accounts.worker_joined(index);
        self.handle(Event::WorkerJoined { index });
    }

    /// Adds a worker in the place of one that is gone. Its values are made again when the others
    /// have said what they have lost.
    pub fn worker_replaced(&mut self, id: PeerId, others: &[PeerId]) {
        let index = id.index;
        self.introduce(id, others);
        self.outputs.replacements.hold();
        self.worker_vacant(index);
        self.dispatcher.successor_joined(index);
        self.outputs.replacements.succeed(index);
        self.dispatcher.worker_replaced((index, "connection reset"), None, &mut self.outputs);
    }

    /// Makes the values of dead workers again where all others have said what they have lost, and
    /// checks them; returns true if that was now.
    ///
    /// # Errors
    /// A value that the dispatcher gave up wrongly.
    pub fn finish_recovery(&mut self) -> Result<bool, String> {
        let outputs = &mut self.outputs;
        let mut replacements = std::mem::take(&mut outputs.replacements);
        let remade = replacements.finish(&mut self.dispatcher, outputs);
        outputs.replacements = replacements;
        let Some(remade) = remade else { return Ok(false) };
        outputs.to_workers.extend(remade.words);
        for index in remade.successors {
            let checked = self.accounts.worker_left(index, &self.dispatcher);
            self.accounts.worker_joined(index);
            // A copy may have been in flight from a worker that nobody followed.
            if !self.has_lost_a_worker {
                checked?;
            }
        }
        self.accounts.refresh_all(&self.dispatcher);
        Ok(true)
    }

    fn introduce(&mut self, id: PeerId, others: &[PeerId]) {
        let index = id.index;
        let peer = |id: PeerId| {
            let PeerId { index, incarnation } = id;
            ToWorker::Peer(Peer { index, incarnation, reach: Reach::Memory })
        };
        for &other in others {
            self.outputs.worker_message(other.index, &peer(id));
            self.outputs.worker_message(index, &peer(other));
        }
    }

    /// The worker is gone, and its successor comes later.
    pub fn worker_vacant(&mut self, index: u32) {
        self.outputs.replacements.died(&mut self.dispatcher, index, Duration::ZERO);
    }

    pub fn worker_left(&mut self, index: u32) -> Result<(), String> {
        self.outputs.replacements.left(index);
        self.has_lost_a_worker = true;
        self.handle(Event::WorkerLeft { index, reason: "connection reset" });
        self.accounts.worker_left(index, &self.dispatcher)
    }

    pub fn worker_says(&mut self, index: u32, message: FromWorker<'_>) {
        self.handle(Event::FromWorker { index, message });
    }

    fn handle(&mut self, event: Event<'_>) {
        let occasion = Occasion::of(&event);
        self.dispatcher.handle(event, &mut self.outputs);
        self.plant(occasion);
    }

    /// Alters the core's last outputs, if a mistake is planted.
    fn plant(&mut self, occasion: Occasion) {
        let oldest = self.connections.keys().next().copied();
        if let Some(planted) = &mut self.planted {
            let CoreOutputs { to_workers, to_sessions, .. } = &mut self.outputs;
            planted.spoil(occasion, to_workers, to_sessions, oldest);
        }
    }
}

impl CoreOutputs {
    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if self.detail > Detail::Nothing {
            self.lines.push(text());
        }
    }

    fn note_all(&mut self, text: impl FnOnce() -> String) {
        if self.detail == Detail::Everything {
            self.lines.push(text());
        }
    }
}

impl Sink for CoreOutputs {
    fn worker(&mut self, worker: WorkerIndex, instruction: &Instruction<'_>) {
        self.note_all(|| {
            let line = text::format(instruction, &NoNames, PayloadText::Reference);
            format!("#   to worker {worker}: {line}")
        });
        let together = instruction.op.info().family == Family::Collective;
        self.collectives += u64::from(together && instruction.op != Op::Send);
        let mut words = Vec::new();
        if let Err(error) = wire::encode(instruction, &mut words) {
            self.error = Some(format!("an instruction for worker {worker}: {error}"));
        }
        if self.replacements.note(worker, &words) {
            self.to_workers.push((worker, words));
        }
    }

    fn worker_message(&mut self, worker: WorkerIndex, message: &ToWorker<'_>) {
        self.note_all(|| format!("#   to worker {worker}: {message:?}"));
        let mut words = Vec::new();
        if let Err(error) = message::encode(message, &mut words) {
            self.error = Some(format!("a message for worker {worker}: {error}"));
        }
        self.to_workers.push((worker, words));
    }

    fn give_up(&mut self, worker: WorkerIndex, reason: &str) {
        self.error = Some(format!("worker {worker} is given up: {reason}"));
    }

    fn session(&mut self, session: SessionId, message: &ToClient<'_>) {
        self.note_all(|| format!("#   to session {}: {message:?}", session.0));
        let mut words = Vec::new();
        if let Err(error) = message::encode(message, &mut words) {
            self.error = Some(format!("a message for session {}: {error}", session.0));
        }
        self.to_sessions.push((session, words));
    }

    fn trace(&mut self, session: SessionId, instruction: &Instruction<'_>, notes: &TraceNotes<'_>) {
        self.note(|| {
            let line = text::format(instruction, &NoNames, PayloadText::Reference);
            let error =
                notes.error.as_ref().map(|error| format!(" failed: {error}")).unwrap_or_default();
            let moved = if notes.moved_bytes > 0 {
                format!(" moved {}", notes.moved_bytes)
            } else {
                String::new()
            };
            let results = &notes.results;
            let space = if results.is_empty() { "" } else { " " };
            let together = notes.together();
            format!("{line}   # session {}{space}{results}{moved}{together}{error}", session.0)
        });
    }
}
