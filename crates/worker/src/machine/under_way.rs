//! Collectives that the lane works on: who waits for them, and what becomes of their results.

use super::{Machine, Replies};
use crate::collective::Broken;
use crate::lane::{Driver, Ended, Origin};
use crate::table::Held;
use crate::{Engine, Fault};
use gt_protocol::message::Message;
use gt_protocol::{Family, Id, Instruction, Op};
use std::rc::Rc;

/// Collectives under way at a time. Each costs a look at every step; a layer's gradients are a few dozen.
const JOBS_MAX: usize = 64;
/// Bytes of operands and results that jobs under way keep, unless one alone has more: they are live although the
/// dispatcher may take them for freed.
const BYTES_MAX: u64 = 512 << 20;

/// What a job under way will leave.
#[derive(Debug)]
pub(crate) struct UnderWay<V> {
    pub ticket: u64,
    pub origin: Origin,
    /// The slot of its result, unless that was freed meanwhile.
    pub output: Option<Id>,
    pub result: Option<Held<V>>,
    /// The memory that it reads.
    pub reads: Option<u32>,
    pub bytes: u64,
}

impl<E: Engine> Machine<E> {
    /// Whether a collective is under way, or over and not taken in.
    pub fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Takes in what collectives that have ended since leave: a caller that waits for words calls this when there is
    /// something.
    pub fn catch_up(&mut self, replies: &mut impl Replies, driver: &mut impl Driver<E::Loan>) {
        while !self.under_way.is_empty()
            && let Some(ended) = driver.ended()
        {
            let place = self.under_way.iter().position(|one| one.ticket == ended.ticket);
            if let Some(place) = place {
                let under_way = self.under_way.remove(place);
                self.conclude(under_way, ended, replies);
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
                if !self.wait_for(ticket, replies, driver) {
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
            let storage = Some(held.storage);
            while let Some(reader) = self.under_way.iter().find(|one| one.reads == storage) {
                if !self.wait_for(reader.ticket, replies, driver) {
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
            if !self.wait_for(first.ticket, replies, driver) {
                return false;
            }
        }
        true
    }

    /// Waits until one more job may be under way.
    fn make_room(&mut self, replies: &mut impl Replies, driver: &mut impl Driver<E::Loan>) -> bool {
        let bytes = |all: &[UnderWay<E::Value>]| {
            all.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes))
        };
        while self.under_way.len() >= JOBS_MAX || bytes(&self.under_way) > BYTES_MAX {
            // The oldest: every member has come to it, or will without us.
            let Some(first) = self.under_way.first() else { break };
            if !self.wait_for(first.ticket, replies, driver) {
                return false;
            }
        }
        true
    }

    fn wait_for(
        &mut self,
        ticket: u64,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Loan>,
    ) -> bool {
        if !driver.wait(ticket) {
            return false;
        }
        self.catch_up(replies, driver);
        true
    }

    pub(crate) fn ticket_new(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// The lane goes on with the job; the instruction is over as far as the stream is concerned.
    pub(crate) fn leave(&mut self, under_way: UnderWay<E::Value>) {
        if let Some(id) = under_way.output {
            self.table.pend(id, under_way.ticket);
        }
        self.under_way.push(under_way);
    }

    /// The result of a job was freed before it came. The job goes on: others count on our part.
    pub(super) fn abandon(&mut self, id: Id) {
        if let Some(ticket) = self.table.pending(id)
            && let Some(under_way) = self.under_way.iter_mut().find(|one| one.ticket == ticket)
        {
            under_way.output = None;
        }
    }

    /// Puts a job's result where it is looked for, and gives back what it has read; a failure is reported once.
    pub(crate) fn conclude(
        &mut self,
        under_way: UnderWay<E::Value>,
        ended: Ended<E::Loan>,
        replies: &mut impl Replies,
    ) {
        let UnderWay { origin, output, mut result, reads, .. } = under_way;
        let written = result.as_mut().map(|held| &mut held.value);
        let settled = self.engine.settle(ended.memory, written);
        if let Some(storage) = reads {
            self.table.release(storage);
        }
        let outcome = ended.outcome.and_then(|()| settled.map_err(Broken::Fault));
        match (outcome, output, result) {
            (Ok(()), Some(id), Some(held)) => self.table.put_held(id, held),
            (Ok(()), _, held) => held.map_or((), |held| self.table.release(held.storage)),
            (Err(broken), output, held) => {
                if let Some(held) = held {
                    self.table.release(held.storage);
                }
                let (cause, is_ours) = match broken {
                    Broken::Failed(cause) => (cause, false),
                    Broken::Fault(fault) => (origin.cause(fault), true),
                };
                if is_ours {
                    replies.send(&Message::Failure(cause.message()));
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
