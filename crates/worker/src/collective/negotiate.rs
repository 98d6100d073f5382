//! A collective that a backend runs, at one member: the payloads of each round, and the reaction to
//! the answers.
//!
//! While its part succeeds, a member sends a payload in each round. A member that fails, or learns
//! in a round that another has failed or is gone, sends a failure in the next round and is done. So
//! no member waits for a payload that never comes, and a member that goes on although it should not
//! (because a member died before it had told all) learns of that one round later.
//!
//! The payload of the last round says that all of the member's work was started: borrowed memory
//! then returns to its owner. No result waits for that round.

use super::plan::{plan, receivers, senders};
use crate::backend::{Backend, Collective, Turn};
use crate::engine::{Engine, Places};
use crate::exchange::{BucketMemory, Group, Round, RoundPayloads, RoundReply, first_payloads};
use crate::failure::{Broken, Cause};
use crate::peers::PeerId;
use crate::replies::Replies;
use crate::state::{InFlightOf, MachineState, Negotiation, Stage};
use crate::stream::{Abort, Driver, Ended, Job, Outcome};
use crate::table::NoValue;
use gt_protocol::Instruction;
use gt_protocol::message::{FailureClass, FromWorker};
use smallvec::SmallVec;
use std::rc::Rc;

/// Continuation of a negotiation after a round.
type NextRound<E> = Option<(InFlightOf<E>, RoundPayloads)>;

impl<E: Engine> MachineState<E> {
    pub(super) fn begin_negotiation(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        tag: u64,
        (backend, group): (Backend, Group),
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> Result<(), NoValue> {
        let mut negotiation = negotiation_new(tag, group, instruction);
        match self.first_round(instruction, next, backend, &mut negotiation) {
            Ok((mut in_flight, payloads)) => {
                in_flight.negotiation = Some(Box::new(negotiation));
                self.negotiate_on(in_flight, payloads, replies, driver);
                Ok(())
            }
            Err(why) => {
                let cause = self.cause(instruction, &why);
                let mut in_flight = self.in_flight_new(instruction);
                in_flight.negotiation = Some(Box::new(negotiation));
                self.negotiate_on(in_flight, RoundPayloads::Failure(cause), replies, driver);
                Err(why)
            }
        }
    }

    /// Makes the payloads of the first round.
    fn first_round(
        &mut self,
        instruction: &Instruction<'_>,
        next: &[u32],
        backend: Backend,
        negotiation: &mut Negotiation<E::Rendezvous>,
    ) -> Result<(InFlightOf<E>, RoundPayloads), NoValue> {
        self.check_collective()?;
        self.table.check_vacant(&instruction.outputs)?;
        self.make_as_received(instruction)?;
        let (tag, group) = (negotiation.tag, &negotiation.group);
        let plan = plan(&self.table, instruction, tag, group)?;
        // With one hop the others read the operand until the end.
        let reused = self.reused(instruction, next).filter(|_| plan.exchange.is_two_hops());
        let members: SmallVec<[u32; 8]> = group.members.iter().map(|member| member.index).collect();
        let collective = Collective { backend, instruction, tag, members: &members, me: group.me };
        let give =
            |engine: &mut E, places: Places<'_, E::Value>| engine.rendezvous(&collective, places);
        let ((rendezvous, payload), in_flight) = self.prepare(instruction, &plan, reused, give)?;
        let first = |&peer: &PeerId| plan.exchange.first_payload(peer, &payload);
        let each = negotiation.others.iter().map(first).collect();
        negotiation.payload = plan.exchange.first_payload(group.members[group.me], &payload);
        negotiation.shares_result = plan.exchange.is_two_hops();
        negotiation.exchange = Some(plan.exchange);
        negotiation.rendezvous = Some(rendezvous);
        negotiation.stage = Stage::Negotiating;
        Ok((in_flight, RoundPayloads::Each(each)))
    }

    /// Starts the next round, and continues as long as rounds complete at once.
    fn negotiate_on(
        &mut self,
        mut in_flight: InFlightOf<E>,
        mut payloads: RoundPayloads,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) {
        loop {
            let negotiation = in_flight.negotiation.as_deref().expect("the collective negotiates");
            let round =
                Round::new(negotiation.tag, negotiation.round, payloads, &negotiation.others);
            let job = Job::round(in_flight.ticket, in_flight.origin, round, negotiation.then());
            let Some(Ended { outcome: Outcome::Round(answers), .. }) = driver.submit(job) else {
                self.keep_in_flight(in_flight);
                return;
            };
            match self.after_round(in_flight, answers, replies, driver) {
                Some(next) => (in_flight, payloads) = next,
                None => return,
            }
        }
    }

    /// Continues after a round.
    pub(crate) fn resume(
        &mut self,
        in_flight: InFlightOf<E>,
        answers: Vec<RoundReply>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) {
        if let Some((in_flight, payloads)) = self.after_round(in_flight, answers, replies, driver) {
            self.negotiate_on(in_flight, payloads, replies, driver);
        }
    }

    /// Payloads of the next round, if there is one.
    fn after_round(
        &mut self,
        mut in_flight: InFlightOf<E>,
        answers: Vec<RoundReply>,
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) -> NextRound<E> {
        let negotiation = in_flight.negotiation.as_deref_mut()?;
        negotiation.round += 1;
        match &negotiation.stage {
            Stage::Negotiating => match self.turn(negotiation, &answers) {
                Ok(payloads) => Some((in_flight, payloads)),
                Err(broken) => {
                    // Other members may have received its payload before it was lost, and depend on
                    // us.
                    if let Some(rendezvous) = &mut negotiation.rendezvous {
                        gone(&answers).for_each(|peer| self.engine.lose(rendezvous, peer.index));
                    }
                    negotiation.others = living(&answers);
                    negotiation.stage = Stage::Failed;
                    let cause = self.spoil(&mut in_flight, &broken, replies);
                    Some((in_flight, RoundPayloads::Failure(cause)))
                }
            },
            Stage::FallingBack => {
                self.fall_back(in_flight, &answers, replies, driver);
                None
            }
            Stage::Finishing => {
                negotiation.stage = Stage::Finished(negotiation.last_payloads(answers));
                self.keep_in_flight(in_flight);
                None
            }
            // Members that went on may still be reading our memory.
            Stage::Failed => {
                negotiation.stage = Stage::Finished(negotiation.last_payloads(answers));
                self.end(in_flight);
                None
            }
            Stage::Finished(_) => None,
        }
    }

    /// Processes, in the backend, a round in which no member has failed.
    fn turn(
        &mut self,
        negotiation: &mut Negotiation<E::Rendezvous>,
        answers: &[RoundReply],
    ) -> Result<RoundPayloads, Broken> {
        if let Some(broken) = failure(answers) {
            return Err(broken);
        }
        let mut payloads = negotiation.by_place(answers);
        let mut reads = None;
        let mut is_possible = true;
        if negotiation.round == 1 {
            let first = first_payloads(&payloads)?;
            is_possible = first.iter().all(|payload| !payload.of_backend.is_empty());
            if let Some(exchange) = negotiation.exchange.as_ref().filter(|_| is_possible) {
                reads = Some(exchange.direct_reads(&negotiation.group, &first)?);
            }
            payloads = first.iter().map(|payload| payload.of_backend).collect();
        }
        let payloads: Vec<Vec<u8>> = payloads.into_iter().map(<[u8]>::to_vec).collect();
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let turn = match &mut negotiation.rendezvous {
            Some(rendezvous) if is_possible => self
                .engine
                .negotiate(rendezvous, &payloads, reads.as_ref())
                .map_err(Broken::Fault)?,
            Some(_) | None => Turn::FallBack,
        };
        Ok(match turn {
            Turn::Continue(payload) => negotiation.same_for_all(payload),
            Turn::Done(payload) => {
                negotiation.stage = Stage::Finishing;
                negotiation.same_for_all(payload)
            }
            Turn::FallBack => {
                negotiation.stage = Stage::FallingBack;
                negotiation.same_for_all(Vec::new())
            }
        })
    }

    /// Marks the result as failed. A failure of our own part is reported.
    fn spoil(
        &mut self,
        in_flight: &mut InFlightOf<E>,
        broken: &Broken,
        replies: &mut impl Replies,
    ) -> Cause {
        let cause = broken.cause(&in_flight.origin);
        if matches!(broken, Broken::Fault(_)) {
            replies.send(&FromWorker::Failure(cause.message()));
        }
        for awaited in &mut in_flight.awaited {
            if let Some(id) = awaited.output.take() {
                self.table.poison(id, &Rc::new(cause.clone()));
            }
        }
        cause
    }

    /// Switches to messages, as all members have agreed, unless one has failed meanwhile.
    fn fall_back(
        &mut self,
        mut in_flight: InFlightOf<E>,
        answers: &[RoundReply],
        replies: &mut impl Replies,
        driver: &mut impl Driver<E::Borrowed>,
    ) {
        let negotiation = in_flight.negotiation.take().expect("the collective has negotiated");
        let Negotiation { tag, group, exchange, rendezvous, round, receivers, senders, .. } =
            *negotiation;
        let (Some(mut exchange), Some(rendezvous)) = (exchange, rendezvous) else {
            unreachable!("collective {tag} falls back without a negotiation")
        };
        exchange.begin_at(round);
        let dtype = exchange.dtype();
        let memory = self.engine.fall_back(rendezvous, in_flight.result_mut());
        match failure(answers).map_or(memory.map_err(Broken::Fault), Err) {
            Ok(memory) => {
                let bucket = BucketMemory::of_one(dtype, memory);
                self.submit(in_flight, (exchange, group), bucket, replies, driver);
            }
            Err(broken) => {
                let cause = self.spoil(&mut in_flight, &broken, replies);
                // Members that reported their failure are done; the others start with their
                // messages.
                let begins = living(answers);
                let beginning = |mut peers: SmallVec<[PeerId; 8]>| {
                    peers.retain(|peer| begins.contains(peer));
                    peers
                };
                let (receivers, senders) = (beginning(receivers), beginning(senders));
                driver.abort(Abort { tag, hop: round, cause, receivers, senders });
                self.end(in_flight);
            }
        }
    }
}

fn negotiation_new<R>(tag: u64, group: Group, instruction: &Instruction<'_>) -> Negotiation<R> {
    Negotiation {
        tag,
        exchange: None,
        rendezvous: None,
        stage: Stage::Failed,
        round: 0,
        payload: Vec::new(),
        others: group.others().map(|(_, member)| member).collect(),
        shares_result: false,
        receivers: receivers(instruction, &group),
        senders: senders(instruction, &group),
        group,
    }
}

/// The first member that has failed or is gone.
fn failure(answers: &[RoundReply]) -> Option<Broken> {
    answers.iter().find_map(|(_, answer)| answer.as_ref().err().cloned())
}

fn gone(answers: &[RoundReply]) -> impl Iterator<Item = PeerId> {
    answers.iter().filter_map(|(peer, answer)| match answer {
        Err(Broken::Fault(fault)) if fault.class == FailureClass::WorkerLost => Some(*peer),
        Ok(_) | Err(Broken::Fault(_) | Broken::Failed(_)) => None,
    })
}

/// Members that have sent a payload.
fn living(answers: &[RoundReply]) -> Vec<PeerId> {
    answers.iter().filter(|(_, answer)| answer.is_ok()).map(|&(peer, _)| peer).collect()
}
