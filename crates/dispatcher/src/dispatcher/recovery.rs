//! A worker that is gone and has a successor at once: its values are made again from its lineage,
//! with the same slots and so the same layouts and bits. Values that cannot be made again fail, as
//! those of a worker without a successor do.

use super::Dispatcher;
use super::departure::{forget_worker, with_losses};
use crate::event::{SessionId, Sink, WorkerIndex, number_of};
use crate::lineage::{Lineage, WantedValues, frames};
use crate::session::Session;
use crate::session::failure::{RootCause, ValueFailure};
use crate::session::requests::{RequestKind, answer_failed};
use crate::session::value::Value;
use gt_protocol::message::{self, FailureClass, ToClient};
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

/// Values of a worker that its successor has, and those that it cannot have.
struct Inheritance {
    /// Client slots of the values that are made again, by session.
    kept: BTreeSet<(SessionId, u32)>,
    /// Slots on the worker whose value depends on an instruction that is not run again.
    refused: BTreeSet<u32>,
}

impl Dispatcher {
    /// Handles the end of a worker in whose place another one is already: that one is sent what
    /// makes the values again. `last` is what the dead one was at, by session and tag.
    pub fn worker_replaced(
        &mut self,
        (index, reason): (WorkerIndex, &str),
        lineage: &Lineage,
        last: Option<(u32, u32)>,
        sink: &mut dyn Sink,
    ) {
        if !self.core.workers.is_alive(index) {
            return;
        }
        self.note_suspect(last);
        let convicted: Vec<(SessionId, u64)> = self.suspects.convicted().collect();
        let tag = |number: u64| crate::event::low_half(number);
        let refused = convicted.iter().map(|&(id, number)| (id.0, tag(number))).collect();
        let slots: BTreeSet<u32> =
            self.sessions.values().flat_map(|session| slots_on(session, index)).collect();
        let requests = self.open_reads(index);
        let possible = lineage.remake(&WantedValues { slots: slots.clone(), requests, refused });
        let refused = convicted.iter().map(|&(id, number)| (id.0, tag(number))).collect();
        let (kept, inherited) = self.inherited(index, &possible.slots);
        let wanted = WantedValues { slots: inherited, requests: possible.requests, refused };
        let remake = lineage.remake(&wanted);
        let vacated: Vec<u32> = slots.difference(&wanted.slots).copied().collect();
        self.core.workers.succeed(index, &vacated);
        for frame in frames(&remake.words) {
            sink.words(index, frame);
        }
        let inheritance = Inheritance { kept, refused: possible.refused };
        let failures = self.fail_the_rest((index, reason), &inheritance, &convicted, sink);
        let text = format!("worker {index} is gone ({reason}) and held this value");
        for key in self.waiting_for(index) {
            let failure = failures.iter().find(|(id, _)| {
                let open = self.core.requests.open.get(&key);
                open.is_some_and(|request| request.session == *id)
            });
            match failure.filter(|_| possible.refused_requests.contains(&key)) {
                Some((id, failure)) => {
                    let Some(request) = self.core.requests.open.remove(&key) else { continue };
                    self.core.requests.forget_parts(*id, request.number);
                    answer_failed(*id, request.number, failure, sink);
                }
                None if remake.requests.contains(&key) => {}
                None => self.request_lost(key, index, &text, sink),
            }
        }
    }

    fn note_suspect(&mut self, last: Option<(u32, u32)>) {
        let Some((session, tag)) = last else { return };
        let id = SessionId(session);
        if let Some(session) = self.sessions.get(&id) {
            self.suspects.accuse(id, number_of(session.next_number(), tag.into()));
        }
    }

    /// Open requests that a worker has to answer.
    fn waiting_for(&self, index: WorkerIndex) -> Vec<i64> {
        let open = self.core.requests.open.iter();
        let waiting = open.filter(|(_, request)| request.waiting.contains(&index));
        waiting.map(|(key, _)| *key).collect()
    }

    /// Reads of a worker of which nothing has arrived: they can be asked again.
    fn open_reads(&self, index: WorkerIndex) -> BTreeSet<i64> {
        let open = self.core.requests.open.iter();
        let reads = open.filter(|(_, request)| {
            request.waiting.contains(&index)
                && request.received == 0
                && matches!(request.kind, RequestKind::Read { .. })
        });
        reads.map(|(key, _)| *key).collect()
    }

    /// The values all of whose slots on a worker are made again, and these slots.
    fn inherited(
        &self,
        index: WorkerIndex,
        made: &BTreeSet<u32>,
    ) -> (BTreeSet<(SessionId, u32)>, BTreeSet<u32>) {
        let (mut kept, mut slots) = (BTreeSet::new(), BTreeSet::new());
        for (&id, session) in &self.sessions {
            for (client_slot, value) in session.values() {
                let own = || slots_of(value, index);
                if own().next().is_some() && own().all(|slot| made.contains(&slot)) {
                    kept.insert((id, client_slot));
                    slots.extend(own());
                }
            }
        }
        (kept, slots)
    }

    /// Fails the values that are not made again, and tells each session. Returns the failures of
    /// instructions that are not run again, by session.
    fn fail_the_rest(
        &mut self,
        (index, reason): (WorkerIndex, &str),
        inheritance: &Inheritance,
        convicted: &[(SessionId, u64)],
        sink: &mut dyn Sink,
    ) -> Vec<(SessionId, ValueFailure)> {
        let mut failures = Vec::new();
        let text = format!("worker {index} is gone ({reason}) and held this value");
        let times = "ended its worker twice, and is not run a third time";
        for (&id, session) in &mut self.sessions {
            let cause = convicted.iter().find(|(session, _)| *session == id);
            if let Some(&(_, number)) = cause {
                let class = FailureClass::Runtime;
                let site = session.site_of_value(number);
                let text = format!("the instruction {times}: {reason}");
                let cause = RootCause { number, class, op: Op::Receive, site, text };
                let failure = session.remember(ValueFailure::new(cause));
                for slot in refused_values(session, index, inheritance) {
                    session.define_failed(Id::slot(slot), failure.clone());
                }
                failures.push((id, failure));
            }
            let before = session.live_values();
            let is_lost = |slot| !inheritance.kept.contains(&(id, slot));
            let orphans = forget_worker(session, index, &text, &is_lost);
            self.core.workers.free_all(orphans.into_iter(), sink);
            let lost = before - session.live_values();
            let again = inheritance.kept.iter().filter(|(session, _)| *session == id).count();
            let reason = match again {
                0 => with_losses(reason, lost),
                1 => format!("{}, 1 is made again", with_losses(reason, lost)),
                _ => format!("{}, {again} are made again", with_losses(reason, lost)),
            };
            sink.session(id, &ToClient::WorkerLeft { index, reason: message::clip(&reason) });
        }
        failures
    }
}

/// Client slots of values that depend on an instruction that is not run again, and that no other
/// worker holds whole.
fn refused_values(session: &Session, index: WorkerIndex, inheritance: &Inheritance) -> Vec<u32> {
    let is_refused = |value: &Value| {
        slots_of(value, index).any(|slot| inheritance.refused.contains(&slot))
            && value.worker_slots().all(|(worker, _)| worker == index)
    };
    session.values().filter(|(_, value)| is_refused(value)).map(|(slot, _)| slot).collect()
}

fn slots_of(value: &Value, index: WorkerIndex) -> impl Iterator<Item = u32> + '_ {
    value.worker_slots().filter(move |(worker, _)| *worker == index).map(|(_, slot)| slot)
}

fn slots_on(session: &Session, index: WorkerIndex) -> impl Iterator<Item = u32> + '_ {
    session.values().flat_map(move |(_, value)| slots_of(value, index))
}
