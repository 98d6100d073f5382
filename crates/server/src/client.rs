//! A client's stream on its way into the core: a quantum at a time.

use crate::link::{Inbound, Lent};
use crate::outbox::{Crowd, Outbox};
use gt_dispatcher::{Dispatcher, Event, Fault, SessionId, WorkerIndex};
use gt_protocol::message::{self, FromClient};
use gt_protocol::wire::{self, WireError, cut};
use gt_protocol::{Attr, Instruction, Op};
use std::time::{Duration, Instant};

/// Instructions of one client before the next one's turn: 5 to 10 us of planning.
const QUANTUM_INSTRUCTIONS: usize = 64;
/// Words of one client before the next one's turn: a piece of an upload, or the quantum of anything else.
const QUANTUM_WORDS: usize = 8 * 1024;
/// A client counts as active for this long after its last instruction; a read every millisecond is active.
const ACTIVE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Client {
    pub session: SessionId,
    pub name: String,
    pub inbound: Inbound,
    pub active_until: Instant,
    /// When it last asked for an answer.
    pub asked_at: Instant,
    /// It came when no worker was there: its stream waits for the first one.
    pub waits_for_worker: bool,
    /// It had something to say, but a worker's ring was full.
    pub held_back: bool,
    /// Workers that its last instructions went to.
    workers: Vec<WorkerIndex>,
}

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Breach {
    #[error("{0}")]
    Fault(#[from] Fault),
    #[error("broken stream: {0}")]
    Wire(#[from] WireError),
    #[error("impossible counters in its ring")]
    Ring,
    #[error("a payload did not come with the words that name it")]
    Payload,
    #[error("said goodbye: {0}")]
    Goodbye(String),
}

impl Client {
    pub fn new(session: SessionId, name: String, inbound: Inbound, now: Instant) -> Self {
        Self {
            session,
            name,
            inbound,
            active_until: now,
            asked_at: now,
            waits_for_worker: false,
            held_back: false,
            workers: Vec::new(),
        }
    }

    /// Its words are there, but not wanted yet: no bell for them.
    pub fn is_on_hold(&self) -> bool {
        self.waits_for_worker || self.held_back
    }

    /// Gives the core the client's next instructions; says whether there were any.
    pub fn quantum(
        &mut self,
        now: Instant,
        crowd: Crowd,
        dispatcher: &mut Dispatcher,
        outbox: &mut Outbox,
    ) -> Result<bool, Breach> {
        if self.waits_for_worker {
            return Ok(false);
        }
        if !self.inbound.fill()? {
            self.held_back = false;
            return if self.inbound.is_corrupt() { Err(Breach::Ring) } else { Ok(false) };
        }
        self.active_until = now + ACTIVE;
        self.held_back = !outbox.admit(self.session, &self.workers, now, crowd, self.held_back);
        if self.held_back {
            return Ok(false);
        }
        let (words, lent) = self.inbound.unread_and_lent();
        if names_lent(words) && !outbox.can_lend(&self.workers) {
            self.held_back = true;
            return Ok(false);
        }
        let Ran { words: used, asked, outcome } =
            run(words, lent, self.session, dispatcher, outbox);
        if asked {
            self.asked_at = now;
        }
        self.inbound.consume(used);
        outbox.swap_touched(&mut self.workers);
        outcome.map(|()| true)
    }
}

/// What became of a quantum.
struct Ran {
    /// Of the frames that were run.
    words: usize,
    /// Somebody waits for an answer to one of them.
    asked: bool,
    outcome: Result<(), Breach>,
}

/// Runs the frames at the front of `words`, up to a quantum.
fn run(
    words: &[u32],
    mut lent: Option<&mut Lent>,
    session: SessionId,
    dispatcher: &mut Dispatcher,
    outbox: &mut Outbox,
) -> Ran {
    let mut instruction = Instruction::new(Op::Free);
    let mut ran = Ran { words: 0, asked: false, outcome: Ok(()) };
    for _ in 0..QUANTUM_INSTRUCTIONS {
        let frame = match cut::first(words.get(ran.words..).unwrap_or_default()) {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(error) => return Ran { outcome: Err(error.into()), ..ran },
        };
        ran.words += frame.len();
        ran.outcome = if frame.first().is_some_and(|&first| cut::is_message(first)) {
            ran.asked = true;
            said(frame, session, dispatcher, outbox)
        } else {
            wire::decode_into(frame, &mut instruction).map_err(Breach::from).and_then(|_| {
                ran.asked |= matches!(instruction.op, Op::Read | Op::Synchronize);
                let is_lent = instruction.op == Op::Chunk && instruction.payload.is_empty();
                if let Some(lent) = lent.as_mut().filter(|_| is_lent) {
                    let payload = its_own(&instruction, lent.take())?;
                    let whole = Instruction { payload, ..instruction.clone() };
                    return Ok(dispatcher.instruction(session, &whole, outbox)?);
                }
                Ok(dispatcher.instruction(session, &instruction, outbox)?)
            })
        };
        if ran.outcome.is_err() || ran.words >= QUANTUM_WORDS || outbox.is_tight() {
            break;
        }
    }
    ran
}

/// Whether the first frame is a chunk without bytes: they came beside it.
fn names_lent(words: &[u32]) -> bool {
    let Some(&first) = words.first() else { return false };
    let (code, length) = (first & 0xffff, usize::try_from(first >> 16).unwrap_or(0));
    code == u32::from(Op::Chunk.info().code)
        && length.checked_sub(1).and_then(|last| words.get(last)) == Some(&0)
}

/// The payload, if it is what the instruction asks for.
fn its_own<'l>(
    instruction: &Instruction<'_>,
    lent: Option<(u64, &'l [u8])>,
) -> Result<&'l [u8], Breach> {
    let (sent_for, bytes) = lent.ok_or(Breach::Payload)?;
    let is_it = matches!(instruction.attr("offset"),
        Attr::Int(offset) if u64::try_from(*offset) == Ok(sent_for));
    if is_it { Ok(bytes) } else { Err(Breach::Payload) }
}

#[cold]
fn said(
    frame: &[u32],
    session: SessionId,
    dispatcher: &mut Dispatcher,
    outbox: &mut Outbox,
) -> Result<(), Breach> {
    let (message, _) = message::decode(frame)?;
    match message {
        FromClient::StatsRequest { request } => {
            dispatcher.handle(Event::StatsRequest { session, request }, outbox);
            Ok(())
        }
        FromClient::Goodbye { reason } => Err(Breach::Goodbye(reason.to_owned())),
    }
}
