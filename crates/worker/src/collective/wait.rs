//! Waiting for collectives in flight.

use crate::engine::Engine;
use crate::failure::Cause;
use crate::replies::Replies;
use crate::state::{InFlight, InFlightOf, MachineState};
use crate::stream::Driver;
use gt_protocol::message::FromWorker;
use gt_protocol::{Id, Instruction, Kind, Op};
use std::rc::Rc;

/// Maximum number of collectives in flight. Each costs a look at every step; a layer's gradients
/// are a few dozen.
const IN_FLIGHT_MAX: usize = 64;
/// Maximum bytes of operands and results kept by collectives in flight, unless a single one has
/// more: they are live although the dispatcher may count them as freed.
const BYTES_MAX: u64 = 512 << 20;

/// Condition of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Its result is there.
    Result,
    /// All of it is over: the borrowed buffers have been returned.
    Over,
}

impl<E: Engine> MachineState<E> {
    /// Returns true if the stream works on a collective, or has completed one that is not taken in
    /// yet.
    pub fn is_in_flight(&self) -> bool {
        // The newest ones are the most likely to be moving.
        self.in_flight.iter().rev().any(InFlight::is_moving)
    }

    /// Takes in the results of completed collectives: a caller that waits for words calls this when
    /// there are any.
    pub fn catch_up(&mut self, replies: &mut impl Replies, driver: &mut impl Driver<E::Borrowed>) {
        while self.is_in_flight()
            && let Some(ended) = driver.ended()
        {
            let place = self.in_flight.iter().position(|one| one.ticket == ended.ticket);
            let place = place.unwrap_or_else(|| panic!("job {} is not in flight", ended.ticket));
            let in_flight = self.in_flight.remove(place);
            self.conclude(in_flight, ended, replies, driver);
        }
    }

    /// Waits for everything that an instruction needs; returns true if it is there. Only called
    /// while a job is in flight.
    pub fn ready(
        &mut self,
        instruction: &Instruction<'_>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> bool {
        if instruction.op == Op::Free {
            return true;
        }
        if instruction.op == Op::Synchronize {
            return self.wait_for_all(replies, driver);
        }
        if instruction.op.info().kind() == Kind::Collective && !self.make_room(replies, driver) {
            return false;
        }
        let mut waited = false;
        for id in instruction.values() {
            if let Some(ticket) = self.table.pending(id) {
                if !self.wait_for(ticket, Until::Result, replies, driver) {
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
            // Memory that it writes must have no reader.
            let storage = held.storage;
            let reads = |one: &&InFlightOf<E>| one.reads.contains(&storage);
            while let Some(reader) = self.in_flight.iter().find(reads) {
                if !self.wait_for(reader.ticket, Until::Over, replies, driver) {
                    return false;
                }
            }
        }
        if !self.in_flight.is_empty() && instruction.op.info().kind() != Kind::Collective {
            driver.compute();
        }
        true
    }

    /// Waits until no job is in flight.
    pub fn wait_for_all(
        &mut self,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> bool {
        while let Some(first) = self.in_flight.first() {
            if !self.wait_for(first.ticket, Until::Over, replies, driver) {
                return false;
            }
        }
        true
    }

    /// Returns the buffers of negotiated collectives whose results are not awaited any more.
    fn sweep(&mut self, driver: &mut impl Driver<E::Borrowed>) {
        let mut place = 0;
        while let Some(one) = self.in_flight.get(place) {
            let is_left = !one.is_awaited() && !one.is_moving();
            if is_left && self.is_over(place, driver) {
                let in_flight = self.in_flight.remove(place);
                self.end(in_flight);
            } else {
                place += 1;
            }
        }
    }

    /// Waits until one more job may be in flight.
    fn make_room(
        &mut self,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> bool {
        self.sweep(driver);
        let bytes = |all: &[InFlightOf<E>]| {
            all.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes))
        };
        while self.in_flight.len() >= IN_FLIGHT_MAX || bytes(&self.in_flight) > BYTES_MAX {
            // The oldest one: every member has started it, or will without us.
            let Some(first) = self.in_flight.first() else { break };
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
        driver: &mut impl Driver<E::Borrowed>,
    ) -> bool {
        let mut times = 0;
        while let Some(place) = self.in_flight.iter().position(|one| one.ticket == ticket) {
            let negotiation = self.in_flight.get(place).and_then(|one| one.negotiation.as_ref());
            let has_sent_all = negotiation.is_some_and(|negotiation| match until {
                Until::Result => negotiation.has_result(),
                Until::Over => negotiation.is_finished(),
            });
            if has_sent_all && self.is_over(place, driver) {
                self.finish(place, replies);
                if until == Until::Over {
                    let in_flight = self.in_flight.remove(place);
                    self.end(in_flight);
                }
                return true;
            }
            if has_sent_all {
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

    /// Returns true if a negotiated result is available, or never will be.
    fn is_over(&mut self, place: usize, driver: &mut impl Driver<E::Borrowed>) -> bool {
        let Some(negotiation) = self.in_flight[place].negotiation.as_deref_mut() else {
            return true;
        };
        let Some(rendezvous) = &mut negotiation.rendezvous else { return true };
        if self.engine.is_over(rendezvous) {
            return true;
        }
        for &peer in negotiation.others.iter().filter(|&&peer| driver.is_gone(peer)) {
            self.engine.lose(rendezvous, peer.index);
        }
        self.engine.is_over(rendezvous)
    }

    /// Stores a negotiated result in its slot, unless that was freed.
    fn finish(&mut self, place: usize, replies: &mut impl Replies) {
        let in_flight = &mut self.in_flight[place];
        let Some(negotiation) = in_flight.negotiation.as_deref_mut() else { return };
        let Some(awaited) = in_flight.awaited.first_mut() else { return };
        let Some(id) = awaited.output.take() else { return };
        let Some(mut held) = awaited.result.take() else { return };
        let is_finished = match &mut negotiation.rendezvous {
            Some(rendezvous) => self.engine.finish(rendezvous, Some(&mut held.value)),
            None => Ok(()),
        };
        match is_finished {
            Ok(()) => {
                if negotiation.shares_result {
                    self.table.hold(held.storage);
                    in_flight.reads.push(held.storage);
                }
                self.table.put_held(id, held);
            }
            Err(fault) => {
                let cause = in_flight.origin.cause(fault);
                replies.send(&FromWorker::Failure(cause.message()));
                self.table.poison(id, &Rc::new(cause));
                awaited.result = Some(held);
            }
        }
    }

    /// Returns the buffers of a negotiated collective to the engine.
    pub fn end(&mut self, in_flight: InFlightOf<E>) {
        self.engine.end_transfer(in_flight.ticket, &in_flight.origin);
        let last = in_flight.negotiation.map(|negotiation| negotiation.into_last());
        if let Some((Some(rendezvous), payloads)) = last {
            self.engine.end(rendezvous, &payloads);
        }
        for storage in in_flight.reads {
            self.table.release(storage);
        }
        for held in in_flight.awaited.into_iter().filter_map(|awaited| awaited.result) {
            self.table.release(held.storage);
        }
    }

    /// Leaves the job to the stream and continues with the next instruction.
    pub fn keep_in_flight(&mut self, in_flight: InFlightOf<E>) {
        let ticket = in_flight.ticket;
        for id in in_flight.awaited.iter().filter_map(|awaited| awaited.output) {
            if self.table.pending(id) != Some(ticket) {
                self.table.pend(id, ticket);
            }
        }
        // In the order of the instructions: one that negotiates is inserted again between rounds.
        let place = self.in_flight.partition_point(|one| one.ticket < ticket);
        self.in_flight.insert(place, in_flight);
    }

    /// Marks all values as failed, and the results of collectives in flight too. The collectives go
    /// on, because other members depend on our part.
    pub fn lose_all(&mut self, cause: &Rc<Cause>) {
        self.table.poison_all(cause);
        for awaited in self.in_flight.iter_mut().flat_map(|one| &mut one.awaited) {
            if let Some(id) = awaited.output.take() {
                self.table.poison(id, cause);
            }
        }
    }

    /// Abandons the result of a job, whose slot was freed before it came. The job goes on, because
    /// other members depend on our part.
    pub fn abandon(&mut self, id: Id) {
        if let Some(ticket) = self.table.pending(id)
            && let Some(in_flight) = self.in_flight.iter_mut().find(|one| one.ticket == ticket)
        {
            for awaited in in_flight.awaited.iter_mut().filter(|one| one.output == Some(id)) {
                awaited.output = None;
            }
        }
    }
}
