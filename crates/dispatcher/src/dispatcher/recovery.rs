//! Workers that are gone and have successors: their values are made again from the lineage, with the
//! same layouts and so the same bits, and so are values of others that were to come from a dead one.
//! Values that cannot be made again fail, as those of a worker without a successor do.
//!
//! A successor may come later. Until then the dead worker counts as alive: what it would be sent is
//! in the lineage, and what fails at others by its loss is not told.
//!
//! Once all successors are there, the others say which of their slots hold the loss of a worker: only
//! they know what had arrived. Until all have answered, nothing is sent to any worker; the owner of
//! their rings writes it down in the lineage. A worker that dies meanwhile begins that again.

use super::Dispatcher;
use super::departure::{forget_worker, with_losses};
use crate::event::{SessionId, Sink, WorkerIndex, number_of};
use crate::lineage::{Lineage, Possible, Vacancies, WantedValues, WorkerLosses};
use crate::planner::Core;
use crate::session::Session;
use crate::session::failure::{RootCause, ValueFailure};
use crate::session::requests::{Request, RequestKind, answer_failed};
use crate::session::value::Value;
use gt_protocol::message::{self, FailureClass, ToClient, ToWorker};
use gt_protocol::{Id, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Number of suspects that are kept: workers that die are few.
const SUSPECTS_MAX: usize = 256;
/// Deaths after which an instruction is not run again.
const DEATHS_MAX: u32 = 2;

/// Instructions during which their worker died, by session and number, with the number of deaths.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<(SessionId, u64), u32>);

impl Suspects {
    /// Counts a death.
    fn accuse(&mut self, session: SessionId, number: u64) {
        if self.0.len() == SUSPECTS_MAX {
            self.0.pop_first();
        }
        *self.0.entry((session, number)).or_insert(0) += 1;
    }

    /// The instructions that have killed too often.
    fn convicted(&self) -> impl Iterator<Item = (SessionId, u64)> + '_ {
        let found = self.0.iter().filter(|(_, deaths)| **deaths >= DEATHS_MAX);
        found.map(|(&instruction, _)| instruction)
    }
}

/// Slots of workers.
type SlotSet = BTreeSet<(WorkerIndex, u32)>;

/// A recovery that has begun: workers that are gone, and what the others have said since.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Number of the question that the others are asked.
    question: u64,
    /// The workers that have successors, each with the reason of its end, in the order of their
    /// deaths.
    dead: Vec<(WorkerIndex, Box<str>)>,
    /// Workers whose successors are awaited: before they are there, nobody is asked.
    vacant: BTreeSet<WorkerIndex>,
    /// Workers that left without a successor while words were held back, each with the reason;
    /// another one may have joined in such a place.
    left: BTreeMap<WorkerIndex, Box<str>>,
    /// Slots in use since when words are held back; none before.
    held: Option<SlotSet>,
    /// Workers that have not answered.
    awaited: BTreeSet<WorkerIndex>,
    /// Slots that hold the loss of a worker.
    failed: SlotSet,
    /// Answers that have failed by the loss of a worker; the requests are still open.
    failed_requests: BTreeSet<(WorkerIndex, i64)>,
}

impl Recovery {
    fn is_dead(&self, index: WorkerIndex) -> bool {
        self.dead.iter().any(|(dead, _)| *dead == index)
    }
}

/// Takes slots that no worker uses: freed ones may be in use until the words that free them are
/// sent.
struct UnusedSlots<'a> {
    core: &'a mut Core,
    held: &'a SlotSet,
    passed_over: Vec<(WorkerIndex, u32)>,
}

impl Vacancies for UnusedSlots<'_> {
    fn slot(&mut self, worker: WorkerIndex) -> u32 {
        // The loop ends: as many slots as are in use are passed over at most.
        loop {
            let slot = self.core.workers.take_slot(worker);
            if !self.held.contains(&(worker, slot)) {
                return slot;
            }
            self.passed_over.push((worker, slot));
        }
    }

    fn tag(&mut self) -> i64 {
        self.core.take_tag()
    }
}

impl Dispatcher {
    /// Handles the end of a worker whose successor is awaited. From here on it is sent nothing; the
    /// owner of the rings writes down what it would be sent.
    pub fn worker_vacant(&mut self, index: WorkerIndex) {
        if self.core.workers.is_alive(index) {
            let recovery = self.recovery.get_or_insert_default();
            recovery.vacant.insert(index);
            recovery.awaited.remove(&index);
        }
    }

    /// Handles the arrival of a successor, which is not at work before the recovery has ended.
    pub fn successor_joined(&mut self, index: WorkerIndex) {
        self.core.workers.succeed(index);
    }

    /// Ends the wait for a successor that has joined; the owner of the rings holds back all words
    /// until [`Self::finish_recovery`]. `last` is what the dead one was at, by session and tag.
    pub fn worker_replaced(
        &mut self,
        (index, reason): (WorkerIndex, &str),
        last: Option<(u32, u32)>,
        sink: &mut dyn Sink,
    ) {
        if !self.core.workers.is_alive(index) {
            return;
        }
        self.note_suspect(last);
        let recovery = self.recovery.get_or_insert_default();
        recovery.vacant.remove(&index);
        if !recovery.is_dead(index) {
            recovery.dead.push((index, reason.into()));
        }
        self.ask_for_losses(sink);
    }

    /// Returns true between the death of a worker and the words that make its values again.
    pub const fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// Returns true if all workers have said what they have lost.
    pub fn knows_losses(&self) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| {
            recovery.vacant.is_empty() && recovery.held.is_some() && recovery.awaited.is_empty()
        })
    }

    /// Asks all workers that have values for those that they have lost, unless a successor is
    /// awaited.
    fn ask_for_losses(&mut self, sink: &mut dyn Sink) {
        let is_held = match &self.recovery {
            Some(recovery) if recovery.vacant.is_empty() => recovery.held.is_some(),
            Some(_) | None => return,
        };
        let held = (!is_held).then(|| self.slots_in_use());
        let Some(recovery) = &mut self.recovery else { return };
        recovery.held = recovery.held.take().or(held);
        self.questions += 1;
        recovery.question = self.questions;
        recovery.failed.clear();
        let alive = self.core.workers.alive().iter().copied();
        recovery.awaited =
            alive.filter(|index| !recovery.dead.iter().any(|(dead, _)| dead == index)).collect();
        for &index in &recovery.awaited {
            sink.worker_message(index, &ToWorker::LossesRequest { request: recovery.question });
        }
    }

    /// Handles a worker's answer: slots that hold the loss of another one.
    pub(super) fn losses(&mut self, index: WorkerIndex, losses: &message::Losses<'_>) {
        let Some(recovery) = &mut self.recovery else { return };
        if losses.request != recovery.question || !recovery.awaited.contains(&index) {
            return;
        }
        let failed = losses.slots.iter().map(|&slot| (index, slot));
        if let Recovery { held: Some(held), failed: known, .. } = recovery {
            known.extend(failed.filter(|one| held.contains(one)));
        }
        if losses.is_last {
            recovery.awaited.remove(&index);
        }
    }

    /// Returns true for a failure that is made good: the request stays open.
    pub(super) fn withholds(&mut self, index: WorkerIndex, key: i64) -> bool {
        let Some(recovery) = &mut self.recovery else { return false };
        let is_open = self.core.requests.open.contains_key(&key);
        is_open && {
            recovery.failed_requests.insert((index, key));
            true
        }
    }

    /// Handles the end of a worker without a successor while others are awaited.
    pub(super) fn left_in_recovery(
        &mut self,
        (index, reason): (WorkerIndex, &str),
        sink: &mut dyn Sink,
    ) {
        if let Some(recovery) = &mut self.recovery {
            recovery.dead.retain(|(dead, _)| *dead != index);
            recovery.vacant.remove(&index);
            if recovery.vacant.is_empty() || recovery.held.is_some() {
                recovery.left.insert(index, reason.into());
            }
            if let Some(held) = &mut recovery.held {
                held.retain(|(worker, _)| *worker != index);
            }
            recovery.failed_requests.retain(|(worker, _)| *worker != index);
            self.ask_for_losses(sink);
        }
    }

    /// Ends a recovery: fails what cannot be made again, and returns the words that make the rest,
    /// and all that was held back, for the workers. Where the losses are not known, nothing is made
    /// again.
    pub fn finish_recovery(
        &mut self,
        lineage: &mut Lineage,
        makes_again: bool,
        sink: &mut dyn Sink,
    ) -> BTreeMap<WorkerIndex, Vec<u32>> {
        let Some(recovery) = self.recovery.take() else { return BTreeMap::new() };
        let convicted: Vec<(SessionId, u64)> = self.suspects.convicted().collect();
        let losses = self.known_losses(&recovery, &convicted, makes_again);
        let mut wanted = self.wanted(&losses);
        let possible = lineage.possible(&wanted, &losses);
        let failures = self.fail_the_rest(&recovery, (&wanted, &possible), &convicted, sink);
        self.answer_the_rest((&recovery, &losses), &possible, &failures, sink);
        let left = self.slots_in_use();
        for &(index, slot) in wanted.slots.difference(&left) {
            self.core.workers.vacate(index, slot);
            lineage.vacate(index, &[slot]);
        }
        wanted = WantedValues { slots: left, requests: possible.requests };
        let held = &recovery.held.unwrap_or_default();
        let mut unused = UnusedSlots { core: &mut self.core, held, passed_over: Vec::new() };
        let remake = lineage.remake(&wanted, &losses, &mut unused);
        let taken = std::mem::take(&mut unused.passed_over).into_iter().chain(remake.taken);
        for (index, slot) in taken {
            self.core.workers.vacate(index, slot);
        }
        self.core.workers.forget_sessions();
        remake.words
    }

    fn known_losses(
        &self,
        recovery: &Recovery,
        convicted: &[(SessionId, u64)],
        makes_again: bool,
    ) -> WorkerLosses {
        let alive: BTreeSet<WorkerIndex> = self.core.workers.alive().iter().copied().collect();
        let dead =
            recovery.dead.iter().map(|(index, _)| *index).chain(recovery.left.keys().copied());
        let tag = |number: u64| crate::event::low_half(number);
        WorkerLosses {
            empty: dead.filter(|index| alive.contains(index)).collect(),
            alive,
            failed: recovery.failed.clone(),
            failed_requests: recovery.failed_requests.clone(),
            refused: convicted.iter().map(|&(id, number)| (id.0, tag(number))).collect(),
            are_given_up: !makes_again,
        }
    }

    /// All values, and all requests that can be asked again.
    fn wanted(&self, losses: &WorkerLosses) -> WantedValues {
        let can_be_asked = |request: &Request| match request.kind {
            RequestKind::Read { .. } => request.received == 0,
            RequestKind::Synchronize => true,
            RequestKind::Stats => false,
        };
        let open = self.core.requests.open.iter().filter(|(_, request)| can_be_asked(request));
        let requests = open.flat_map(|(&key, request)| {
            let waiting = request.waiting.iter().filter(|index| losses.alive.contains(index));
            waiting.map(move |&index| (index, key))
        });
        WantedValues { slots: self.slots_in_use(), requests: requests.collect() }
    }

    /// Slots of all values.
    fn slots_in_use(&self) -> SlotSet {
        let values = self.sessions.values().flat_map(Session::values);
        values.flat_map(|(_, value)| value.worker_slots()).collect()
    }

    fn note_suspect(&mut self, last: Option<(u32, u32)>) {
        let Some((session, tag)) = last else { return };
        let id = SessionId(session);
        if let Some(session) = self.sessions.get(&id) {
            self.suspects.accuse(id, number_of(session.next_number(), tag.into()));
        }
    }

    /// Answers the requests that have no answer any more.
    fn answer_the_rest(
        &mut self,
        (recovery, losses): (&Recovery, &WorkerLosses),
        possible: &Possible,
        failures: &[(SessionId, ValueFailure)],
        sink: &mut dyn Sink,
    ) {
        let of_the_dead = self.core.requests.open.iter().flat_map(|(&key, request)| {
            let waiting = request.waiting.iter().filter(|index| losses.empty.contains(index));
            waiting.map(move |&index| (index, key))
        });
        let mut lost: BTreeSet<(WorkerIndex, i64)> = of_the_dead.collect();
        lost.extend(&recovery.failed_requests);
        lost.extend(&possible.lost_requests);
        lost.extend(&possible.refused_requests);
        for &(index, key) in lost.difference(&possible.requests) {
            let Some(request) = self.core.requests.open.get(&key) else { continue };
            let (id, number) = (request.session, request.number);
            let failure = failures.iter().find(|(session, _)| *session == id);
            match failure.filter(|_| possible.refused_requests.contains(&(index, key))) {
                Some((_, failure)) => {
                    self.core.requests.open.remove(&key);
                    self.core.requests.forget_parts(id, number);
                    answer_failed(id, number, failure, sink);
                }
                None => {
                    self.request_lost(key, index, &held_by(recovery, index), sink);
                }
            }
        }
    }

    /// Fails the values that are not made again, and tells each session. Returns the failures of
    /// instructions that are not run again, by session.
    fn fail_the_rest(
        &mut self,
        recovery: &Recovery,
        (wanted, possible): (&WantedValues, &Possible),
        convicted: &[(SessionId, u64)],
        sink: &mut dyn Sink,
    ) -> Vec<(SessionId, ValueFailure)> {
        let mut failures = Vec::new();
        let lost: SlotSet = wanted.slots.difference(&possible.slots).copied().collect();
        let losers: BTreeSet<WorkerIndex> = lost.iter().map(|(index, _)| *index).collect();
        let times = "ended its worker twice, and is not run a third time";
        for (&id, session) in &mut self.sessions {
            if let Some(&(_, number)) = convicted.iter().find(|(session, _)| *session == id) {
                let reason = recovery.dead.last().map_or("", |(_, reason)| reason);
                let class = FailureClass::Runtime;
                let site = session.site_of_value(number);
                let text = format!("the instruction {times}: {reason}");
                let cause = RootCause { number, class, op: Op::Receive, site, text };
                let failure = session.remember(ValueFailure::new(cause));
                for slot in refused_values(session, &lost, &possible.refused) {
                    session.define_failed(Id::slot(slot), failure.clone());
                }
                failures.push((id, failure));
            }
            let before = session.live_values();
            for &index in &losers {
                let is_lost = |value: &Value| slots_of(value, index).any(|one| lost.contains(&one));
                let of_session = session.values().filter(|(_, value)| is_lost(value));
                let slots: BTreeSet<u32> = of_session.map(|(slot, _)| slot).collect();
                // Their other shards are freed with them.
                drop(forget_worker(session, index, &held_by(recovery, index), &|slot| {
                    slots.contains(&slot)
                }));
            }
            let mut count = before - session.live_values();
            let made = |value: &Value| value.worker_slots().any(|one| possible.made.contains(&one));
            let again = session.values().filter(|(_, value)| made(value)).count();
            for (index, reason) in &recovery.dead {
                let reason = with_losses(reason, std::mem::take(&mut count));
                let reason = match again {
                    0 => reason,
                    1 => format!("{reason}, 1 is made again"),
                    _ => format!("{reason}, {again} are made again"),
                };
                let reason = message::clip(&reason);
                sink.session(id, &ToClient::WorkerLeft { index: *index, reason });
            }
        }
        failures
    }
}

/// `worker 1 is gone (its process ended) and held this value`: the dead worker itself, or the first
/// one of those from which the value was to come.
fn held_by(recovery: &Recovery, index: WorkerIndex) -> String {
    let own = recovery.dead.iter().find(|(dead, _)| *dead == index);
    let left = recovery.left.iter().next();
    let gone = own.or(recovery.dead.first()).map(|(dead, reason)| (dead, reason)).or(left);
    match gone {
        Some((dead, reason)) => format!("worker {dead} is gone ({reason}) and held this value"),
        None => "a worker is gone and held this value".to_owned(),
    }
}

/// Client slots of values that depend on an instruction that is not run again, and that no worker
/// holds.
fn refused_values(session: &Session, lost: &SlotSet, refused: &SlotSet) -> Vec<u32> {
    let is_refused = |value: &Value| {
        value.worker_slots().any(|one| refused.contains(&one))
            && value.worker_slots().all(|one| lost.contains(&one))
    };
    session.values().filter(|(_, value)| is_refused(value)).map(|(slot, _)| slot).collect()
}

fn slots_of(value: &Value, index: WorkerIndex) -> impl Iterator<Item = (WorkerIndex, u32)> + '_ {
    value.worker_slots().filter(move |(worker, _)| *worker == index)
}
