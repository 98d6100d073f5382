//! Supervised workers that die: their values wait for a successor, and are made again with it. Why a
//! worker by hand is not waited for: nobody would bring another one, so its programs would stand
//! still for nothing.
//!
//! Until the successor has joined, clients of other workers go on; those of the dead one are held
//! back. Then everybody is, until the other workers have said what they have lost.

use super::EventLoop;
use crate::death::LastInstruction;
use crate::link::{PeerLink, WordTarget};
use crate::net_event::Introduction;
use crate::outbox::Outbox;
use gt_dispatcher::{Dispatcher, Event, LINEAGE_WORDS, WorkerIndex};
use gt_protocol::Kind;
use gt_protocol::message::{self, FailureClass, FromWorker, ToClient};
use gt_protocol::wire::cut;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time within which the end of a worker by TCP is known here: a broken link may be resumed for half
/// a second.
const DOUBT: Duration = Duration::from_secs(2);

/// Supervised workers, and dead ones among them whose successors are awaited.
#[derive(Debug)]
pub(super) struct WorkerSuccession {
    wait: Duration,
    /// The moment from which times of deaths count.
    began: Instant,
    supervised: BTreeSet<WorkerIndex>,
    awaited: BTreeMap<WorkerIndex, Death>,
    /// Introductions of successors that have joined, in the order of their joining. They go to the
    /// workers when nothing else is sent: before, their indices mean those that are gone.
    introductions: Vec<Introduction>,
    /// True once a supervised worker was connected by TCP: others may notice its end first.
    has_remote: bool,
    /// Workers that told of another one's end before that was known, with the time.
    doubted: BTreeMap<WorkerIndex, Instant>,
}

/// Worker that is gone.
#[derive(Debug)]
struct Death {
    reason: String,
    last: Option<LastInstruction>,
    /// End of the wait; `None` once the successor has joined.
    until: Option<Instant>,
}

impl Default for WorkerSuccession {
    fn default() -> Self {
        Self::new(Duration::ZERO)
    }
}

impl WorkerSuccession {
    pub fn new(wait: Duration) -> Self {
        Self {
            wait,
            began: Instant::now(),
            supervised: BTreeSet::new(),
            awaited: BTreeMap::new(),
            introductions: Vec::new(),
            has_remote: false,
            doubted: BTreeMap::new(),
        }
    }

    pub fn is_supervised(&self, index: WorkerIndex) -> bool {
        self.supervised.contains(&index)
    }

    /// Returns true if the worker is gone, and its successor may still come.
    pub fn awaits(&self, index: WorkerIndex) -> bool {
        self.awaited.get(&index).is_some_and(|death| death.until.is_some())
    }

    /// Returns true if all successors have joined.
    fn is_complete(&self) -> bool {
        self.awaited.values().all(|death| death.until.is_none())
    }

    /// Keeps the introductions of successors that have joined; returns the others.
    pub fn keep_those_of_successors(&mut self, all: Vec<Introduction>) -> Vec<Introduction> {
        let awaited = &self.awaited;
        let is_kept =
            |one: &Introduction| [one.to, one.peer].iter().any(|i| awaited.contains_key(i));
        let (mut kept, others) = all.into_iter().partition(is_kept);
        self.introductions.append(&mut kept);
        others
    }

    /// Notes a supervised worker that is connected by TCP.
    pub fn note_reach(&mut self, link: &PeerLink) {
        let is_remote = matches!(link.target, WordTarget::Socket(_));
        self.has_remote |= is_remote && !self.supervised.is_empty();
    }

    /// Returns true if a worker may have died of which the core does not know, and that would be
    /// waited for.
    pub fn expects_deaths(&self, core: &Dispatcher) -> bool {
        !self.supervised.is_empty() && !core.is_recovering()
    }

    /// Returns true if the news of another worker's end, which this one tells, are to wait: its
    /// link may have broken some time before the dispatcher's own did.
    pub fn doubts(&mut self, index: WorkerIndex) -> bool {
        self.has_remote && self.doubted.entry(index).or_insert_with(Instant::now).elapsed() < DOUBT
    }

    /// Time until the first wait is over.
    pub fn next_end(&self, now: Instant) -> Option<Duration> {
        let doubts = self.doubted.values().map(|&since| since + DOUBT);
        let doubts = doubts.filter(|&end| end > now);
        let end = self.awaited.values().filter_map(|death| death.until).chain(doubts).min()?;
        Some(end.saturating_duration_since(now))
    }
}

impl EventLoop {
    /// Notes whether another worker would take the place of this one.
    pub(super) fn supervise(&mut self, index: WorkerIndex, is_supervised: bool) {
        if !is_supervised || self.succession.wait.is_zero() {
            self.succession.supervised.remove(&index);
            return;
        }
        self.succession.supervised.insert(index);
        self.outbox.replacements.begin(LINEAGE_WORDS);
    }

    /// Handles the end of a supervised worker: its values wait.
    pub(super) fn await_successor(
        &mut self,
        index: WorkerIndex,
        reason: String,
        last: Option<LastInstruction>,
    ) {
        if !self.drop_worker_link(index, &reason) {
            return;
        }
        let (now, succession) = (Instant::now(), &mut self.succession);
        let age = now.saturating_duration_since(succession.began);
        self.outbox.replacements.died(&mut self.dispatcher, index, age);
        let until = Some(now + succession.wait);
        succession.doubted.clear();
        succession.awaited.insert(index, Death { reason, last, until });
    }

    /// Adds the successor of a worker that is gone.
    pub(super) fn add_successor(
        &mut self,
        index: WorkerIndex,
        link: PeerLink,
        mut introductions: Vec<Introduction>,
    ) {
        let process = link.process;
        self.add_worker_link(index, link);
        tracing::info!("worker {index} takes the place of the one that is gone");
        self.dispatcher.successor_joined(index);
        if let Some(process) = process {
            self.dispatcher.handle(Event::WorkerProcess { index, process }, &mut self.outbox);
        }
        if let Some(death) = self.succession.awaited.get_mut(&index) {
            death.until = None;
        }
        self.succession.introductions.append(&mut introductions);
        self.recover_if_complete();
    }

    /// Ends the waits that were too long; returns true if there was one.
    pub(super) fn end_waits(&mut self, now: Instant) -> bool {
        let is_over = |death: &Death| death.until.is_some_and(|until| until <= now);
        let awaited = self.succession.awaited.iter();
        let over: Vec<WorkerIndex> =
            awaited.filter(|(_, death)| is_over(death)).map(|(&index, _)| index).collect();
        for &index in &over {
            self.end_wait(index);
        }
        !over.is_empty()
    }

    /// Gives up the values that wait for a worker's successor, if any do.
    pub(super) fn end_wait(&mut self, index: WorkerIndex) {
        let Some(Death { reason, .. }) = self.succession.awaited.get_mut(&index) else { return };
        let reason = std::mem::take(reason);
        self.outbox.hold();
        tracing::warn!("no successor of worker {index} came in time: its values are lost");
        self.give_up_worker(index, &reason);
    }

    /// Gives up what a worker that is gone had, also where its successor has joined and is gone.
    pub(super) fn give_up_worker(&mut self, index: WorkerIndex, reason: &str) {
        self.supervise(index, false);
        let was_awaited = self.succession.awaited.remove(&index).is_some();
        if self.succession.awaited.is_empty() {
            self.succession.introductions.clear();
        }
        if was_awaited && self.succession.is_complete() {
            self.outbox.replacements.hold();
        }
        self.dispatcher.handle(Event::WorkerLeft { index, reason }, &mut self.outbox);
        self.outbox.replacements.left(index);
        self.recover_if_complete();
        finish(&mut self.dispatcher, &mut self.outbox);
    }

    /// Begins to make values again if all successors have joined.
    fn recover_if_complete(&mut self) {
        if self.succession.awaited.is_empty() || !self.succession.is_complete() {
            return;
        }
        self.outbox.replacements.hold();
        let introductions = std::mem::take(&mut self.succession.introductions);
        self.introduce(&introductions);
        for (index, Death { reason, last, .. }) in std::mem::take(&mut self.succession.awaited) {
            self.outbox.replacements.succeed(index);
            // A member that waits in a collective has not brought itself down.
            let last = last.filter(|last| last.op.info().kind() != Kind::Collective);
            let last = last.map(|last| (last.session, last.tag));
            self.dispatcher.worker_replaced((index, &reason), last, &mut self.outbox);
        }
        finish(&mut self.dispatcher, &mut self.outbox);
    }
}

/// Returns true if the first message of a worker tells of another one's end.
pub(super) fn tells_of_loss(words: &[u32]) -> bool {
    let Ok(Some(frame)) = cut::first(words) else { return false };
    match message::decode(frame) {
        Ok((FromWorker::Failure(failure) | FromWorker::FailedReply { failure, .. }, _)) => {
            failure.class == FailureClass::WorkerLost
        }
        Ok(_) | Err(_) => false,
    }
}

/// Makes the values of dead workers again if all others have said what they have lost. It follows
/// from the messages alone, so a standby does it at the same one.
pub(super) fn finish(dispatcher: &mut Dispatcher, outbox: &mut Outbox) {
    if !dispatcher.knows_losses() {
        return;
    }
    let mut replacements = std::mem::take(&mut outbox.replacements);
    let remade = replacements.finish(dispatcher, outbox);
    outbox.replacements = replacements;
    let Some(remade) = remade else { return };
    for (index, words) in remade.words {
        outbox.send_remade(index, &words);
    }
    for index in remade.successors {
        tracing::info!("worker {index} is at work");
        outbox.tell_all(&ToClient::WorkerJoined { index, is_late: false });
    }
}
