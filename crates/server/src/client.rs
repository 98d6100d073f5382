//! A client's stream on its way into the core, one quantum at a time.

use crate::journal::Party;
use crate::leases::SessionRequest;
use crate::link::{Inbound, SlabPayloads};
use crate::outbox::{Load, Outbox};
use gt_dispatcher::{ClientFault, Dispatcher, Event, SessionId, WorkerIndex};
use gt_protocol::message::{self, FromClient};
use gt_protocol::wire::{self, WireError, cut};
use gt_protocol::{Attr, Instruction, Op};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// Instructions of one client before the next one's turn: 5 to 10 us of planning.
const QUANTUM_INSTRUCTIONS: usize = 64;
/// Words of one client before the next one's turn: a chunk of an upload, or the quantum of anything
/// else.
const QUANTUM_WORDS: usize = 8 * 1024;
/// Number of words of an instruction's head, up to its operands.
const HEAD_WORDS: usize = 16;
/// Time after which a client that is held back goes first, whatever the classes of the others are.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// A client counts as active for this long after its last instruction; a read every millisecond is active.
const ACTIVE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct ServedClient {
    pub session: SessionId,
    pub name: String,
    /// User that the client is; empty where the dispatcher knows no users.
    pub user: String,
    /// Its request that concerns other sessions, which is answered after its quantum.
    pub asked: Option<SessionRequest>,
    pub inbound: Inbound,
    pub active_until: Instant,
    /// Time of its last request for an answer.
    pub asked_at: Instant,
    /// True if it connected when there was no worker: its stream waits for the first one.
    pub waits_for_worker: bool,
    /// True if it had instructions to run, but a worker's ring was full.
    pub held_back: bool,
    /// Time since which it is held back.
    held_since: Option<Instant>,
    /// Workers that its last instructions went to.
    workers: Vec<WorkerIndex>,
    /// Breach that was found in a replay: the session ends at its next turn.
    breach: Option<Breach>,
}

/// Reason why a session ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Breach {
    #[error("{0}")]
    Fault(#[from] ClientFault),
    #[error("broken stream: {0}")]
    Wire(#[from] WireError),
    #[error("impossible counters in its ring")]
    Ring,
    #[error("a payload did not come with the words that name it")]
    Payload,
    #[error("said goodbye: {0}")]
    Goodbye(String),
}

impl ServedClient {
    pub fn new(session: SessionId, name: String, inbound: Inbound, now: Instant) -> Self {
        Self {
            session,
            name,
            user: String::new(),
            asked: None,
            inbound,
            active_until: now,
            asked_at: now,
            waits_for_worker: false,
            held_back: false,
            held_since: None,
            workers: Vec::new(),
            breach: None,
        }
    }

    /// Returns true if its words are there but not served yet: it needs no waker.
    pub fn is_on_hold(&self) -> bool {
        self.waits_for_worker || self.held_back
    }

    /// Notes after its turn whether it is held back.
    pub fn note_wait(&mut self, now: Instant) {
        self.held_since = if self.held_back { self.held_since.or(Some(now)) } else { None };
    }

    /// Returns true if it has been held back for so long that it goes first.
    pub fn has_waited(&self, now: Instant) -> bool {
        self.held_since.is_some_and(|since| now.saturating_duration_since(since) >= WAIT_MAX)
    }

    /// Workers that its last instructions went to.
    pub fn workers(&self) -> &[WorkerIndex] {
        &self.workers
    }

    /// Passes the client's next instructions to the core; returns true if there were any.
    pub fn quantum(
        &mut self,
        now: Instant,
        load: Load,
        dispatcher: &mut Dispatcher,
        outbox: &mut Outbox,
    ) -> Result<bool, Breach> {
        if let Some(breach) = self.breach.take() {
            return Err(breach);
        }
        if self.waits_for_worker {
            return Ok(false);
        }
        if !self.inbound.fill()? {
            self.held_back = false;
            return if self.inbound.is_corrupt() { Err(Breach::Ring) } else { Ok(false) };
        }
        self.active_until = now + ACTIVE;
        let admitted = outbox.admit(self.session, &self.workers, now, load, self.held_back);
        // A cancelled instruction needs no room.
        let is_cancelled = self.inbound.is_cancelled(!admitted);
        self.held_back = !admitted && !is_cancelled;
        if self.held_back {
            return Ok(false);
        }
        dispatcher.begin_turn(self.session);
        let (words, slab) = self.inbound.unread_and_slab();
        if names_slab(words) && !outbox.has_free_slot(&self.workers) {
            self.held_back = true;
            return Ok(false);
        }
        outbox.begin_run(Party::Session(self.session), is_cancelled);
        let turn = ClientTurn { session: self.session, is_cancelled, replayed: None };
        let quantum = run((words, slab), turn, dispatcher, outbox);
        if quantum.has_request {
            self.asked_at = now;
        }
        let outcome = self.end_turn(quantum);
        outbox.swap_touched(&mut self.workers);
        outcome.map(|()| true)
    }

    /// Takes a turn again that the process before this one has taken; returns false if its
    /// instructions are not there.
    pub fn replay(
        &mut self,
        (is_cancelled, is_continued, frames): (bool, bool, usize),
        dispatcher: &mut Dispatcher,
        outbox: &mut Outbox,
    ) -> bool {
        if !is_continued {
            dispatcher.begin_turn(self.session);
        }
        let (words, slab) = self.inbound.unread_and_slab();
        let turn = ClientTurn { session: self.session, is_cancelled, replayed: Some(frames) };
        let quantum = run((words, slab), turn, dispatcher, outbox);
        let is_whole = quantum.frames == frames || quantum.outcome.is_err();
        self.breach = self.end_turn(quantum).err();
        is_whole
    }

    fn end_turn(&mut self, quantum: Quantum) -> Result<(), Breach> {
        if quantum.cancels {
            self.inbound.cancel_consumed();
        }
        self.asked = quantum.asked;
        self.inbound.consume(quantum.words);
        quantum.outcome
    }
}

/// A client's turn.
#[derive(Clone, Copy)]
struct ClientTurn {
    session: SessionId,
    is_cancelled: bool,
    /// Number of its instructions and messages, if it was taken before: then that alone ends it.
    replayed: Option<usize>,
}

/// Result of a quantum.
struct Quantum {
    /// Number of words of the frames that were run, and of frames.
    words: usize,
    frames: usize,
    /// True if an answer to one of them is awaited.
    has_request: bool,
    /// Request that concerns other sessions: the last message of the quantum.
    asked: Option<SessionRequest>,
    /// True if the last message of the quantum is a `cancel`.
    cancels: bool,
    outcome: Result<(), Breach>,
}

/// Runs the instructions and messages at the front of `words`, up to a quantum. Of cancelled ones
/// nothing is computed.
fn run(
    (words, mut slab): (&mut [u32], Option<&mut SlabPayloads>),
    turn: ClientTurn,
    dispatcher: &mut Dispatcher,
    outbox: &mut Outbox,
) -> Quantum {
    let ClientTurn { session, is_cancelled, replayed } = turn;
    let mut quantum = Quantum {
        words: 0,
        frames: 0,
        has_request: false,
        asked: None,
        cancels: false,
        outcome: Ok(()),
    };
    for _ in 0..replayed.unwrap_or(QUANTUM_INSTRUCTIONS) {
        let unread = words.get_mut(quantum.words..).unwrap_or_default();
        let length = match cut::first(unread) {
            Ok(Some(frame)) => frame.len(),
            Ok(None) => break,
            Err(error) => return Quantum { outcome: Err(error.into()), ..quantum },
        };
        let frame = unread.get_mut(..length).unwrap_or_default();
        quantum.words += length;
        quantum.frames += 1;
        quantum.has_request |= asks(frame);
        // A copy, because planning overwrites the client's slots with the workers'.
        let head = frame.get(..HEAD_WORDS).unwrap_or(frame);
        let head: SmallVec<[u32; HEAD_WORDS]> = SmallVec::from_slice(head);
        outbox.begin_instruction();
        quantum.outcome = if frame.first().is_some_and(|&first| cut::is_message(first)) {
            run_message(frame, session, dispatcher, outbox, &mut quantum)
        } else if let Some(slab) = slab.as_deref_mut().filter(|_| names_slab(frame)) {
            chunk(frame, slab, session, dispatcher, outbox)
        } else if is_cancelled {
            dispatcher.cancel_words(session, frame, outbox).map_err(Breach::from)
        } else {
            dispatcher.instruction_words(session, frame, outbox).map_err(Breach::from)
        };
        if replayed.is_none()
            && let Some(estimate) = dispatcher.estimate(session, &head)
        {
            outbox.charge(session, estimate);
        }
        let is_over = quantum.outcome.is_err() || quantum.asked.is_some() || quantum.cancels;
        let is_tight = outbox.is_tight() && !is_cancelled;
        let is_spent = quantum.words >= QUANTUM_WORDS || is_tight;
        if is_over || is_spent && replayed.is_none() {
            break;
        }
    }
    quantum
}

/// Returns true if an answer to this frame is awaited.
fn asks(frame: &[u32]) -> bool {
    let Some(&first) = frame.first() else { return false };
    let (code, _) = wire::halves(first);
    cut::is_message(first) || [Op::Read, Op::Synchronize].iter().any(|op| op.info().code == code)
}

/// Handles a chunk of an upload: its bytes are beside the words, or at their end.
#[cold]
fn chunk(
    frame: &[u32],
    slab: &mut SlabPayloads,
    session: SessionId,
    dispatcher: &mut Dispatcher,
    outbox: &mut Outbox,
) -> Result<(), Breach> {
    let (mut instruction, _) = wire::decode(frame)?;
    if instruction.payload.is_empty() {
        instruction.payload = its_own(&instruction, slab.take())?;
    }
    Ok(dispatcher.instruction(session, &instruction, outbox)?)
}

/// Returns true if the first frame may be a chunk without bytes: its last word, the bytes' count,
/// is zero.
fn names_slab(words: &[u32]) -> bool {
    let Some(&first) = words.first() else { return false };
    let (code, length) = (first & 0xffff, usize::try_from(first >> 16).unwrap_or(0));
    code == u32::from(Op::Chunk.info().code)
        && length.checked_sub(1).and_then(|last| words.get(last)) == Some(&0)
}

/// The payload, if it is the one that the instruction names.
fn its_own<'l>(
    instruction: &Instruction<'_>,
    slab: Option<(u64, &'l [u8])>,
) -> Result<&'l [u8], Breach> {
    let (sent_for, bytes) = slab.ok_or(Breach::Payload)?;
    let is_it = matches!(instruction.attr("offset"),
        Attr::Int(offset) if u64::try_from(*offset) == Ok(sent_for));
    if is_it { Ok(bytes) } else { Err(Breach::Payload) }
}

#[cold]
fn run_message(
    frame: &[u32],
    session: SessionId,
    dispatcher: &mut Dispatcher,
    outbox: &mut Outbox,
    quantum: &mut Quantum,
) -> Result<(), Breach> {
    let (message, _) = message::decode(frame)?;
    match message {
        FromClient::StatsRequest { request } => {
            dispatcher.handle(Event::StatsRequest { session, request }, outbox);
        }
        FromClient::Sessions { request, action, name } => {
            quantum.asked = Some(SessionRequest { request, action, name: name.to_owned() });
        }
        FromClient::Cancel => quantum.cancels = true,
        FromClient::Goodbye { reason } => return Err(Breach::Goodbye(reason.to_owned())),
    }
    Ok(())
}
