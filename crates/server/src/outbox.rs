//! The core's outputs on their way to rings and sockets. Nothing here waits: words without room
//! stay in a buffer, and the caller checks the room before it feeds the core.

mod sink;
#[cfg(test)]
mod tests;

use crate::journal::{Journal, PLACES, Party};
use crate::outbound::{Outbound, RingMismatch};
use crate::policy::Priority;
use crate::trace::Trace;
use crate::turns::Turns;
use gt_dispatcher::{LINEAGE_WORDS, Replacements, SessionId, Sink, WorkerIndex};
use gt_protocol::Op;
use gt_protocol::integer::to_usize;
use gt_protocol::message::{self, ToClient, ToWorker};
use gt_protocol::wire::EncodeError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of waiting words (128 MiB beside its ring) at which a worker is given up. Only endings of
/// sessions, and words that make a dead worker's values again, get near it: clients are held back
/// much earlier.
const WORKER_WAITING_WORDS_MAX: usize = 2 * LINEAGE_WORDS;
/// Words of answers that a client leaves unread (1 GiB) before its session is closed.
const SESSION_WAITING_WORDS_MAX: usize = 256 << 20;
/// Words of answers that a client leaves unread (4 MiB) before its next instruction waits.
const SESSION_BUSY_WORDS: usize = 1 << 20;
/// Words kept free in a worker's ring when a client is admitted: a chunk of an upload and its
/// header, twice.
const RESERVE_WORDS: usize = 16 * 1024;
/// Minimum of words allowed in a worker's ring while several clients are active: about 75
/// instructions. Without a bound another user's read took 4.5 ms beside a flooding client, with it
/// 81 us (`hot_path.md`, section 6).
const SHARED_WORDS: usize = 512;
/// Fraction (one in this many) of the time since the last read that determines the words allowed in a
/// worker's ring: as many as it drains in that fraction, so that the next read is delayed by no larger
/// fraction.
const QUIET_PART: u32 = 8;
/// Limit of that time. It covers a time slice of each client where they share the dispatcher's
/// core.
const FLOOD: Duration = Duration::from_millis(2);
/// Limit of the allowed words: half a ring.
const SHARED_WORDS_MAX: usize = 32 * 1024;
/// Number of words at which instructions for a worker leave the buffer, so that it starts while the
/// rest is planned.
const FLUSH_WORDS: usize = 256;

/// Number of clients that use the workers at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    One,
    /// Several, with the time since one of them last asked for a value.
    Several(Duration),
}

/// Peer that has to be dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LostPeer {
    Worker(WorkerIndex, String),
    Session(SessionId, String),
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    workers: Vec<Option<Outbound>>,
    sessions: BTreeMap<SessionId, Outbound>,
    /// Workers whose buffers are not empty.
    listed_workers: Vec<WorkerIndex>,
    listed_sessions: Vec<SessionId>,
    /// Workers that got words since [`Self::admit`].
    touched: Vec<WorkerIndex>,
    /// Workers that got words of the instruction that is being planned.
    reached: Vec<WorkerIndex>,
    /// True if one of them has used up its credit.
    tight: bool,
    turns: Turns,
    /// Log of what the workers were sent, and what they must not be sent while a dead one's values
    /// are not there.
    pub replacements: Replacements,
    scratch: Vec<u32>,
    lost: Vec<LostPeer>,
    trace: Option<Trace>,
    /// A session of the dispatcher's own, whose answers are kept here.
    listened: Option<SessionId>,
    answer: Option<bool>,
    /// Log for a standby, if there may be one.
    journal: Option<Arc<Journal>>,
    /// The place in the journal that was given last.
    last_place: usize,
    /// True while nothing is published: the state has a change that the journal lacks.
    is_held: bool,
}

impl Outbox {
    pub fn new(trace: Option<Trace>) -> Self {
        Self { trace, ..Self::default() }
    }

    /// Notes outputs in a journal from now on; there are no peers yet.
    pub fn note_in(&mut self, journal: &Arc<Journal>) {
        self.journal = Some(Arc::clone(journal));
    }

    /// Publishes nothing until [`Self::release`], if there is a journal: the state is about to change
    /// in ways that it does not have, so a standby must have the new state first.
    pub fn hold(&mut self) {
        self.is_held = self.journal.is_some();
    }

    /// Returns true while nothing is published.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Publishes what waits for one session, held or not: its last words, before it is dropped.
    pub fn flush_session(&mut self, session: SessionId) {
        if let Some(outbound) = self.sessions.get_mut(&session) {
            outbound.flush();
        }
    }

    /// Begins a turn of a peer.
    pub fn begin_run(&self, party: Party, is_cancelled: bool) {
        if let Some(journal) = &self.journal {
            journal.begin_run(party, is_cancelled);
        }
    }

    /// Notes that a message is about to be taken in.
    pub fn begin_message(&self) {
        if let Some(journal) = &self.journal {
            journal.frame();
        }
    }

    /// Sends a mark again that the process before this one has sent.
    pub fn replay_mark(&mut self, index: WorkerIndex, request: u64) {
        self.worker_message(index, &ToWorker::Mark { request });
    }

    /// Sends a frame again that the process before this one has sent to the peer at this place. A
    /// session that lacks it is lost; so is everything if a worker does.
    pub fn replay_frame(
        &mut self,
        place: usize,
        words: usize,
        sum: u32,
    ) -> Result<(), (WorkerIndex, RingMismatch)> {
        let peer = self.outbounds().find(|(_, outbound)| outbound.place() == Some(place));
        // A peer that is not there has been given up, and got nothing after that.
        let Some((party, outbound)) = peer else { return Ok(()) };
        match (outbound.replay_frame(words, sum), party) {
            (Ok(()), _) => Ok(()),
            (Err(why), Party::Worker(index)) => Err((index, why)),
            (Err(why), Party::Session(session)) => {
                outbound.abandon();
                self.lost.push(LostPeer::Session(session, why.to_string()));
                Ok(())
            }
        }
    }

    /// All connections.
    pub fn outbounds(&mut self) -> impl Iterator<Item = (Party, &mut Outbound)> {
        let workers = self.workers.iter_mut().enumerate().filter_map(|(index, worker)| {
            Some((Party::Worker(WorkerIndex::try_from(index).ok()?), worker.as_mut()?))
        });
        let sessions = self.sessions.iter_mut();
        workers.chain(sessions.map(|(&session, out)| (Party::Session(session), out)))
    }

    /// Goes on where the process before this one was. A session whose ring does not fit is lost; so
    /// is everything if a worker's does not.
    pub fn resume(&mut self) -> Result<(), (WorkerIndex, RingMismatch)> {
        self.turns.restart();
        let mut lost = Vec::new();
        for (party, outbound) in self.outbounds() {
            match (outbound.resume(), party) {
                (Ok(()), _) => {}
                (Err(why), Party::Worker(index)) => return Err((index, why)),
                (Err(why), Party::Session(session)) => {
                    outbound.abandon();
                    lost.push(LostPeer::Session(session, why.to_string()));
                }
            }
        }
        self.lost.append(&mut lost);
        Ok(())
    }

    /// Gives a new peer its place in the journal: none that was used lately, since the standby
    /// before may still have the peer that had it.
    fn give_place(&mut self, outbound: &mut Outbound) {
        let Some(journal) = self.journal.clone() else { return };
        let used: Vec<usize> = self.outbounds().filter_map(|(_, out)| out.place()).collect();
        // The loop ends: there are more places than peers.
        loop {
            self.last_place = (self.last_place + 1) % PLACES;
            if !used.contains(&self.last_place) {
                break outbound.note_in(&journal, self.last_place);
            }
        }
    }

    pub fn add_worker(&mut self, index: WorkerIndex, mut outbound: Outbound) {
        self.give_place(&mut outbound);
        let place = place(index);
        if place >= self.workers.len() {
            self.workers.resize_with(place + 1, || None);
        }
        if let Some(worker) = self.workers.get_mut(place) {
            *worker = Some(outbound);
        }
    }

    pub fn remove_worker(&mut self, index: WorkerIndex) -> Option<Outbound> {
        self.listed_workers.retain(|&listed| listed != index);
        self.turns.forget_worker(index);
        self.workers.get_mut(place(index))?.take()
    }

    pub fn add_session(&mut self, session: SessionId, mut outbound: Outbound) {
        self.give_place(&mut outbound);
        self.sessions.insert(session, outbound);
    }

    pub fn remove_session(&mut self, session: SessionId) -> Option<Outbound> {
        self.listed_sessions.retain(|&listed| listed != session);
        self.turns.forget_session(session);
        self.sessions.remove(&session)
    }

    /// Returns true if a client that used these workers last time may go on, until
    /// [`Self::is_tight`]. `held_back`: it was refused before, and waits for more than a few words,
    /// or it would wait at every instruction.
    pub fn admit(
        &mut self,
        session: SessionId,
        workers: &[WorkerIndex],
        now: Instant,
        load: Load,
        held_back: bool,
    ) -> bool {
        self.tight = false;
        self.touched.clear();
        if self.sessions.get(&session).is_some_and(|out| out.waiting() > SESSION_BUSY_WORDS) {
            return false;
        }
        if self.replacements.is_holding() {
            return false;
        }
        self.turns.share(load != Load::One);
        let mut free = true;
        for &index in workers {
            free &= self.replacements.sends_to(index);
            let Self { workers: all, turns, listed_workers, lost, journal, .. } = self;
            let Some(worker) = all.get_mut(place(index)).and_then(Option::as_mut) else {
                continue;
            };
            free &= turns.admits(session, index, now, |request| {
                note_mark(journal.as_ref(), index, request);
                send(index, worker, &ToWorker::Mark { request }, (listed_workers, lost));
            });
            let (credit, enough) = match load {
                Load::One => (worker.room().saturating_sub(RESERVE_WORDS), RESERVE_WORDS),
                Load::Several(quiet) => {
                    let bound = worker.drained_in(FLOOD.min(quiet / QUIET_PART), now);
                    let bound = bound.clamp(SHARED_WORDS, SHARED_WORDS_MAX);
                    (bound.saturating_sub(worker.in_flight()), bound / 2)
                }
            };
            worker.credit = credit;
            free &= credit >= if held_back { enough } else { 1 };
        }
        free
    }

    /// Notes that an instruction is about to be planned.
    pub fn begin_instruction(&mut self) {
        self.reached.clear();
        self.begin_message();
    }

    /// Charges a session for the planned instruction, on all workers that got words of it.
    pub fn charge(&mut self, session: SessionId, estimate: (Op, f64)) {
        let now = Instant::now();
        let Self { workers, turns, listed_workers, reached, tight, lost, journal, .. } = self;
        for &index in &*reached {
            let Some(worker) = workers.get_mut(place(index)).and_then(Option::as_mut) else {
                continue;
            };
            *tight |= turns.charge(session, index, estimate, now, |request| {
                note_mark(journal.as_ref(), index, request);
                send(index, worker, &ToWorker::Mark { request }, (listed_workers, lost));
            });
        }
    }

    /// Sets the weights and classes of the active sessions.
    pub fn set_weights(
        &mut self,
        weights: BTreeMap<SessionId, f64>,
        priorities: BTreeMap<SessionId, Priority>,
    ) {
        self.turns.set_weights(weights);
        self.turns.set_priorities(priorities);
    }

    /// By how much a session is ahead of the others on these workers.
    pub fn lead(&self, session: SessionId, workers: &[WorkerIndex]) -> f64 {
        self.turns.lead(session, workers)
    }

    /// Takes the seconds that workers have spent on each session.
    pub fn take_device_seconds(&mut self) -> impl Iterator<Item = (SessionId, f64)> + use<> {
        self.turns.take_used()
    }

    /// Takes a worker's answer, if it is one to a mark.
    pub fn passed(&mut self, index: WorkerIndex, request: u64) -> bool {
        self.turns.passed(index, request, Instant::now())
    }

    /// Sends the words that make values again, which are in the log already.
    pub fn send_remade(&mut self, index: WorkerIndex, words: &[u32]) {
        if let Some(worker) = self.workers.get_mut(place(index)).and_then(Option::as_mut) {
            worker.buffer().extend_from_slice(words);
            self.sent(index, words.len());
        }
    }

    /// Sends a message to all sessions.
    pub fn tell_all(&mut self, message: &ToClient<'_>) {
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.session(session, message);
        }
    }

    /// Returns true if these workers have free slots for payloads.
    pub fn has_free_slot(&mut self, workers: &[WorkerIndex]) -> bool {
        workers.iter().all(|&index| {
            let worker = self.workers.get_mut(place(index)).and_then(Option::as_mut);
            worker.is_none_or(|worker| !worker.is_full())
        })
    }

    /// Returns true if a worker has got as much as it should for now.
    pub fn is_tight(&self) -> bool {
        self.tight
    }

    /// Moves the workers that got words since [`Self::admit`] to `workers`, for next time.
    pub fn swap_touched(&mut self, workers: &mut Vec<WorkerIndex>) {
        std::mem::swap(&mut self.touched, workers);
    }

    /// Sends as far as rings and channels have room; returns true if anything moved.
    pub fn flush(&mut self) -> bool {
        if self.is_held {
            return false;
        }
        let Self { workers, sessions, listed_workers, listed_sessions, lost, .. } = self;
        let mut moved = false;
        listed_workers.retain(|&index| {
            let Some(worker) = workers.get_mut(place(index)).and_then(Option::as_mut) else {
                return false;
            };
            moved |= worker.flush();
            if let Some(why) = why_lost(worker, WORKER_WAITING_WORDS_MAX) {
                lost.push(LostPeer::Worker(index, why.to_owned()));
            }
            worker.listed = worker.waiting() > 0;
            worker.listed
        });
        listed_sessions.retain(|&id| {
            let Some(session) = sessions.get_mut(&id) else { return false };
            moved |= session.flush();
            if let Some(why) = why_lost(session, SESSION_WAITING_WORDS_MAX) {
                lost.push(LostPeer::Session(id, why.to_owned()));
            }
            session.listed = session.waiting() > 0;
            session.listed
        });
        moved
    }

    /// Peers that broke, fell behind too far, or missed an output that has no binary form; to be
    /// called after [`Self::flush`].
    pub fn take_lost(&mut self) -> Vec<LostPeer> {
        std::mem::take(&mut self.lost)
    }

    /// Session whose answers are kept for [`Self::take_answer`] instead of sent.
    pub fn listen_to(&mut self, session: Option<SessionId>) {
        self.listened = session;
    }

    /// Takes the kept answer, if one has come: true if it was a failure.
    pub fn take_answer(&mut self) -> Option<bool> {
        self.answer.take()
    }

    /// Returns true if a worker took its last words on the CPU of the calling thread.
    pub fn shares_cpu(&self) -> bool {
        self.workers.iter().flatten().any(Outbound::shares_cpu)
    }

    /// Returns true if words wait for room.
    pub fn is_waiting(&self) -> bool {
        !self.listed_workers.is_empty() || !self.listed_sessions.is_empty()
    }

    /// Writes the trace to its file, before a sleep.
    pub fn flush_trace(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.flush();
            tell_notice(trace);
        }
    }

    /// Writes the trace to its file for the last time.
    pub fn end_trace(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.end();
            tell_notice(trace);
        }
    }
}

/// Appends a message to the words for a worker.
fn send(
    index: WorkerIndex,
    worker: &mut Outbound,
    message: &ToWorker<'_>,
    (listed, lost): (&mut Vec<WorkerIndex>, &mut Vec<LostPeer>),
) {
    if let Err(error) = message::encode(message, worker.buffer()) {
        let reason = unsent(&error);
        tracing::error!("worker {index} is given up: {reason}");
        lost.push(LostPeer::Worker(index, reason));
    }
    if !worker.listed {
        worker.listed = true;
        listed.push(index);
    }
}

/// Notes a mark in the journal: when it is sent depends on the clock.
fn note_mark(journal: Option<&Arc<Journal>>, index: WorkerIndex, request: u64) {
    if let Some(journal) = journal {
        journal.mark(index, request);
    }
}

/// Reason why a peer is given up that misses an output: our own mistake, since the core plans only
/// what can be sent.
fn unsent(error: &EncodeError) -> String {
    format!("an output of the dispatcher has no binary form: {error}")
}

/// Logs that the trace loses lines, once, and at its end how many were lost.
fn tell_notice(trace: &mut Trace) {
    for line in trace.take_notice().iter().flat_map(|notice| notice.lines()) {
        tracing::error!("{line}");
    }
}

fn why_lost(outbound: &Outbound, waiting_max: usize) -> Option<&'static str> {
    if outbound.is_broken() {
        return Some("its ring is corrupt or its socket closed");
    }
    (outbound.waiting() > waiting_max).then_some("it does not read what it is sent")
}

fn place(index: WorkerIndex) -> usize {
    to_usize(index)
}
