//! Collectives that the lane works on: who waits for them, and what becomes of their results.

use super::{Machine, Replies};
use crate::collective::{Broken, Talk};
use crate::lane::{Driver, Ended, Origin, Outcome};
use crate::table::Held;
use crate::{Engine, Fault};
use gt_protocol::message::FromWorker;
use gt_protocol::{Family, Id, Instruction, Op};
use smallvec::SmallVec;
use std::rc::Rc;

/// Collectives under way at a time. Each costs a look at every step; a layer's gradients are a few dozen.
const JOBS_MAX: usize = 64;
/// Bytes of operands and results that jobs under way keep, unless one alone has more: they are live although the
/// dispatcher may take them for freed.
const BYTES_MAX: u64 = 512 << 20;

/// What a job under way will leave.
#[derive(Debug)]
pub(crate) struct UnderWay<V, J> {
    pub ticket: u64,
    pub origin: Origin,
    /// The slot of its result, unless that was freed meanwhile.
    pub output: Option<Id>,
    pub result: Option<Held<V>>,
    /// The memory that is read, by it or by others.
    pub reads: SmallVec<[u32; 2]>,
    /// Where it is of several values: what it leaves of each.
    pub several: Vec<Left<V>>,
    pub bytes: u64,
    /// Where it does not go by bytes.
    pub talk: Option<Box<Talk<J>>>,
}

/// What a job under way will leave of one of several values.
#[derive(Debug)]
pub(crate) struct Left<V> {
    /// Its slot, unless that was freed meanwhile.
    pub output: Option<Id>,
    pub result: Option<Held<V>>,
}

impl<V, J> UnderWay<V, J> {
    /// Whether the lane has something to do for it.
    fn is_moving(&self) -> bool {
        self.talk.as_ref().is_none_or(|talk| !talk.is_parted())
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Its result is there.
    Landed,
    /// Nothing of it is left: what it has lent is ours again.
    Over,
}

impl<E: Engine> Machine<E> {
    /// Whether the lane works on a collective, or has ended one that is not taken in.
    pub fn is_under_way(&self) -> bool {
        // The newest are the likeliest.
        self.under_way.iter().rev().any(UnderWay::is_moving)
    }

    /// Takes in what collectives that have ended since leave: a caller that waits for words calls this when there is
    /// something.
    pub fn catch_up(&mut self, replies: &mut impl Replies, driver: &mut impl Driver<E::Loan>) {
        while self.is_under_way()
            && let Some(ended) = driver.ended()
        {
            let place = self.under_way.iter().position(|one| one.ticket == ended.ticket);
            if let Some(place) = place {
                let under_way = self.under_way.remove(place);
                self.conclude(under_way, ended, replies, driver);
            }
        }
    }

    /// Whether everything is there that an instruction needs, after waiting for it. Only called while a job is under way.
    pub(super) fn ready(
        &mut self,
        instruction: &Instruction<'_>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> bool {
        if instruction.op == Op::Free {
            return true;
        }
        if instruction.op == Op::Synchronize {
            return self.settle(replies, driver);
        }
        if instruction.op.info().family == Family::Collective && !self.make_room(replies, driver) {
            return false;
        }
        let mut waited = false;
        for id in instruction.values() {
            if let Some(ticket) = self.table.pending(id) {
                if !self.wait_for(ticket, Until::Landed, replies, driver) {
                    return false;
                }
                waited = true;
            }
        }
        if !waited {
            self.catch_up(replies, driver);
        }
        if instruction.op == Op::Chunk
            && let Some(Ok(held)) = instruction.values().next().map(|id| self.table.held(id))
        {
            // What it writes to, nobody may be reading.
            let storage = held.storage;
            let reads = |one: &&UnderWay<E::Value, E::Joint>| one.reads.contains(&storage);
            while let Some(reader) = self.under_way.iter().find(reads) {
                if !self.wait_for(reader.ticket, Until::Over, replies, driver) {
                    return false;
                }
            }
        }
        if !self.under_way.is_empty() && instruction.op.info().family != Family::Collective {
            driver.compute();
        }
        true
    }

    /// Waits until no job is under way.
    pub(super) fn settle(
        &mut self,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> bool {
        while let Some(first) = self.under_way.first() {
            if !self.wait_for(first.ticket, Until::Over, replies, driver) {
                return false;
            }
        }
        true
    }

    /// Gives back what talks have lent that nobody waits for any more.
    fn sweep(&mut self, driver: &mut impl Driver<E::Loan>) {
        let mut place = 0;
        while let Some(one) = self.under_way.get(place) {
            let is_left = one.output.is_none() && !one.is_moving();
            if is_left && self.is_over(place, driver) {
                let under_way = self.under_way.remove(place);
                self.part(under_way);
            } else {
                place += 1;
            }
        }
    }

    /// Waits until one more job may be under way.
    fn make_room(&mut self, replies: &mut impl Replies, driver: &mut impl Driver<E::Loan>) -> bool {
        self.sweep(driver);
        let bytes = |all: &[UnderWay<E::Value, E::Joint>]| {
            all.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes))
        };
        while self.under_way.len() >= JOBS_MAX || bytes(&self.under_way) > BYTES_MAX {
            // The oldest: every member has come to it, or will without us.
            let Some(first) = self.under_way.first() else { break };
            if !self.wait_for(first.ticket, Until::Over, replies, driver) {
                return false;
            }
        }
        true
    }

    fn wait_for(
        &mut self,
        ticket: u64,
        until: Until,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> bool {
        let mut times = 0;
        while let Some(place) = self.under_way.iter().position(|one| one.ticket == ticket) {
            let talk = self.under_way.get(place).and_then(|one| one.talk.as_ref());
            let is_said = talk.is_some_and(|talk| match until {
                Until::Landed => talk.has_result(),
                Until::Over => talk.is_parted(),
            });
            if is_said && self.is_over(place, driver) {
                self.land(place, replies);
                if until == Until::Over {
                    let under_way = self.under_way.remove(place);
                    self.part(under_way);
                }
                return true;
            }
            if is_said {
                driver.doze(times);
                times = times.saturating_add(1);
                self.catch_up(replies, driver);
            } else {
                if !driver.wait(ticket) {
                    return false;
                }
                self.catch_up(replies, driver);
            }
        }
        true
    }

    /// Whether a talk's result can be had, or never will be.
    fn is_over(&mut self, place: usize, driver: &mut impl Driver<E::Loan>) -> bool {
        let talk = self.under_way.get_mut(place).and_then(|one| one.talk.as_deref_mut());
        let Some((others, Some(joint))) = talk.map(Talk::others_and_joint) else { return true };
        if self.engine.is_over(joint) {
            return true;
        }
        for &member in others.iter().filter(|&&member| driver.is_gone(member)) {
            self.engine.lose(joint, member);
        }
        self.engine.is_over(joint)
    }

    /// Puts the result of a talk where it is looked for, unless nobody looks for it any more.
    fn land(&mut self, place: usize, replies: &mut impl Replies) {
        let Some(under_way) = self.under_way.get_mut(place) else { return };
        let Some(id) = under_way.output.take() else { return };
        let Some(mut held) = under_way.result.take() else { return };
        let Some(talk) = &mut under_way.talk else { return };
        let shares_result = talk.shares_result();
        let landed =
            talk.joint_mut().map_or(Ok(()), |joint| self.engine.land(joint, Some(&mut held.value)));
        match landed {
            Ok(()) => {
                if shares_result {
                    self.table.hold(held.storage);
                    under_way.reads.push(held.storage);
                }
                self.table.put_held(id, held);
            }
            Err(fault) => {
                let cause = under_way.origin.cause(fault);
                replies.send(&FromWorker::Failure(cause.message()));
                self.table.poison(id, &Rc::new(cause));
                under_way.result = Some(held);
            }
        }
    }

    /// Nobody reads what a talk has lent.
    pub(crate) fn part(&mut self, mut under_way: UnderWay<E::Value, E::Joint>) {
        if let Some((Some(joint), words)) = under_way.talk.take().map(|talk| talk.into_last()) {
            self.engine.part(joint, &words);
        }
        for storage in under_way.reads {
            self.table.release(storage);
        }
        if let Some(held) = under_way.result {
            self.table.release(held.storage);
        }
    }

    pub(crate) fn ticket_new(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// The lane goes on with the job; the instruction is over as far as the stream is concerned.
    pub(crate) fn leave(&mut self, under_way: UnderWay<E::Value, E::Joint>) {
        let ticket = under_way.ticket;
        if let Some(id) = under_way.output
            && self.table.pending(id) != Some(ticket)
        {
            self.table.pend(id, ticket);
        }
        for id in under_way.several.iter().filter_map(|left| left.output) {
            self.table.pend(id, ticket);
        }
        // In the order of the instructions: one that talks comes back between rounds.
        let place = self.under_way.partition_point(|one| one.ticket < ticket);
        self.under_way.insert(place, under_way);
    }

    /// The result of a job was freed before it came. The job goes on: others count on our part.
    pub(super) fn abandon(&mut self, id: Id) {
        if let Some(ticket) = self.table.pending(id)
            && let Some(under_way) = self.under_way.iter_mut().find(|one| one.ticket == ticket)
        {
            under_way.output = None;
            for left in under_way.several.iter_mut().filter(|left| left.output == Some(id)) {
                left.output = None;
            }
        }
    }

    /// Puts a job's result where it is looked for, and gives back what it has read; a failure is reported once. A talk goes
    /// on with its next round.
    pub(crate) fn conclude(
        &mut self,
        under_way: UnderWay<E::Value, E::Joint>,
        ended: Ended<E::Loan>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) {
        let (memory, outcome) = match ended.outcome {
            Outcome::Bytes { memory, outcome } => (memory, outcome),
            Outcome::Several { values, outcome } => {
                return self.conclude_several(under_way, values, outcome, replies);
            }
            Outcome::Round(heard) => return self.resume(under_way, heard, replies, driver),
        };
        let UnderWay { origin, output, mut result, reads, .. } = under_way;
        let written = result.as_mut().map(|held| &mut held.value);
        let settled = self.engine.settle(memory, written);
        for storage in reads {
            self.table.release(storage);
        }
        match (outcome.and_then(|()| settled.map_err(Broken::Fault)), output, result) {
            (Ok(()), Some(id), Some(held)) => self.table.put_held(id, held),
            (Ok(()), _, held) => held.map_or((), |held| self.table.release(held.storage)),
            (Err(broken), output, held) => {
                if let Some(held) = held {
                    self.table.release(held.storage);
                }
                let cause = broken.cause(&origin);
                if matches!(broken, Broken::Fault(_)) {
                    replies.send(&FromWorker::Failure(cause.message()));
                }
                if let Some(id) = output {
                    self.table.poison(id, &Rc::new(cause));
                }
            }
        }
    }
}

/// What an instruction finds whose operand is not there yet; one that was not made ready.
#[cold]
pub(crate) fn pending(place: usize) -> Fault {
    Fault::protocol(format!("slot {place} is still being received"))
}
