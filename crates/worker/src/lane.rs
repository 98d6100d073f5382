//! The communication lane: collectives that are under way side by side, each moved on a step at a time by whoever has
//! time for it, while the machine goes on with other instructions.
//!
//! The state is here, and no thread: `crates/python` moves a lane on from a thread of its own, the simulator and the
//! tests between instructions.

mod rest;

pub use rest::Refusal;

use crate::collective::{Broken, Bundle, Exchange, Group, Heard, Round, Spent, Step};
use crate::peers::{Peers, Stream};
use crate::{Cause, Fault, Loan, ReduceBytes};
use gt_protocol::Op;
use gt_protocol::message::Peer;
use rest::Rest;
use smallvec::SmallVec;

/// Steps of a new job before the machine goes on: what is small and has come already is over by then, and a large value
/// has not moved by more than as many pieces.
const FIRST_STEPS: usize = 3;

/// Which instruction a job is of, for a failure's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub session: u32,
    pub tag: u32,
    pub op: Op,
}

impl Origin {
    pub const fn cause(&self, fault: Fault) -> Cause {
        Cause { session: self.session, tag: self.tag, op: Some(self.op), fault }
    }
}

/// Our part in one collective, or one round of it.
#[derive(Debug)]
pub struct Job<M> {
    ticket: u64,
    origin: Origin,
    work: Work<M>,
    /// Its last step moved nothing.
    is_stuck: bool,
    is_large: bool,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be for the usual one, by bytes")]
enum Work<M> {
    /// With the bytes that it works on.
    Bytes { exchange: Exchange, group: Group, reduce: ReduceBytes, memory: M },
    /// Several values at once.
    Several { bundle: Bundle<M>, group: Group, reduce: ReduceBytes },
    /// What becomes of the tag when the round is over.
    Round { round: Round, then: Then },
}

/// What follows a round under the same tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    More,
    /// Nothing: all went well, or not.
    End {
        well: bool,
    },
}

/// Bytes from which on a collective is large: moving them takes longer than waking a thread for it, 10 us or so.
const LARGE_BYTES: usize = 64 * 1024;

/// A job that is over, one way or the other.
#[derive(Debug)]
pub struct Ended<M> {
    pub(crate) ticket: u64,
    pub(crate) outcome: Outcome<M>,
}

#[derive(Debug)]
pub(crate) enum Outcome<M> {
    /// Its memory goes back to the engine.
    Bytes {
        memory: M,
        outcome: Result<(), Broken>,
    },
    Several {
        values: Vec<Spent<M>>,
        outcome: Result<(), Broken>,
    },
    Round(Vec<Heard>),
}

/// Whoever moves a lane on, as its machine sees it.
pub trait Driver<M> {
    /// The dispatcher says how another worker is reached.
    fn introduce(&mut self, peer: &Peer<'_>);

    /// Takes a job, and gives it back if it is over at once.
    fn submit(&mut self, job: Job<M>) -> Option<Ended<M>>;

    /// Our part in a collective has failed before it was a job: the others are to hear of it.
    fn refuse(&mut self, refusal: Refusal);

    /// Between two instructions while jobs are under way: those that are over since, one a call. It may also move the
    /// others on.
    fn ended(&mut self) -> Option<Ended<M>>;

    /// The machine is about to compute, and will not look at the jobs that are under way meanwhile.
    fn compute(&mut self) {}

    /// Moves jobs on until this one is over, or until any is: what comes of that the machine has to say. False where that needs something from outside which the caller of
    /// [`Machine::run`](crate::Machine::run) has to bring: the instruction is then run again.
    fn wait(&mut self, ticket: u64) -> bool;

    /// Moves jobs on while the machine waits for what the lane does not do, or sleeps a little where nothing can be moved;
    /// so many `times` already without a change.
    fn doze(&mut self, times: u32);

    /// Whether a worker is known to be gone.
    fn is_gone(&mut self, peer: u32) -> bool;
}

/// Jobs that are under way, and what is left to do of those that have failed.
#[derive(Debug)]
pub struct Lane<P, M> {
    peers: P,
    jobs: Vec<Job<M>>,
    /// How many of the jobs were large when they began.
    large: usize,
    rests: Vec<Rest>,
    ended: Vec<Ended<M>>,
}

impl<P: Peers, M: Loan> Lane<P, M> {
    pub const fn new(peers: P) -> Self {
        Self { peers, jobs: Vec::new(), large: 0, rests: Vec::new(), ended: Vec::new() }
    }

    pub const fn peers(&self) -> &P {
        &self.peers
    }

    pub const fn peers_mut(&mut self) -> &mut P {
        &mut self.peers
    }

    /// Whether anything waits to be moved on.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty() || !self.rests.is_empty()
    }

    /// Whether a job is over that nobody has asked for.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    pub fn is_over(&self, ticket: u64) -> bool {
        self.jobs.iter().all(|job| job.ticket != ticket)
    }

    /// Whether there is enough to do for a thread that sleeps to be woken for it: a large collective, or a failure of which
    /// the others are to hear, or that they still send something to.
    pub const fn is_worth_waking_for(&self) -> bool {
        self.large > 0 || !self.rests.is_empty()
    }

    pub fn submit(&mut self, mut job: Job<M>) -> Option<Ended<M>> {
        self.peers.begin(job.tag());
        for _ in 0..FIRST_STEPS {
            self.peers.poll();
            match job.step(&mut self.peers) {
                Ok(Step::Moved) => {}
                Ok(Step::Stuck) => break,
                Ok(Step::Done) => return Some(self.conclude(job, Ok(()))),
                Err(broken) => return Some(self.conclude(job, Err(broken))),
            }
        }
        job.is_large = job.bytes_left() >= LARGE_BYTES;
        self.large += usize::from(job.is_large);
        self.jobs.push(job);
        None
    }

    pub fn refuse(&mut self, refusal: Refusal) {
        self.peers.begin(refusal.tag());
        self.rests.push(Rest::of_refusal(refusal));
        self.finish_rests();
    }

    /// A step of every job that has got something, or may have; true if anything moved.
    pub fn pass(&mut self) -> bool {
        let is_news = self.peers.poll();
        self.step_jobs(is_news)
    }

    /// The same before a sleep, for which nothing must be left: a step of every job, and what stands in another's way is
    /// cleared away.
    pub fn pass_over_all(&mut self) -> bool {
        self.peers.poll();
        self.step_jobs(true) || self.clear_ways()
    }

    fn step_jobs(&mut self, of_all: bool) -> bool {
        let mut moved = false;
        let mut place = 0;
        while let Some(job) = self.jobs.get_mut(place) {
            if job.is_stuck && !of_all && !self.peers.has_come(job.tag()) {
                place += 1;
                continue;
            }
            let outcome = match job.step(&mut self.peers) {
                Ok(step @ (Step::Stuck | Step::Moved)) => {
                    job.is_stuck = step == Step::Stuck;
                    moved |= step == Step::Moved;
                    place += 1;
                    continue;
                }
                Ok(Step::Done) => Ok(()),
                Err(broken) => Err(broken),
            };
            moved = true;
            let job = self.jobs.remove(place);
            self.large -= usize::from(job.is_large);
            let ended = self.conclude(job, outcome);
            self.ended.push(ended);
        }
        moved | self.finish_rests()
    }

    /// A job that is over, the first first.
    pub fn take_ended(&mut self) -> Option<Ended<M>> {
        if self.ended.is_empty() { None } else { Some(self.ended.remove(0)) }
    }

    fn conclude(&mut self, job: Job<M>, outcome: Result<(), Broken>) -> Ended<M> {
        let Job { ticket, origin, work, .. } = job;
        let outcome = match work {
            Work::Bytes { exchange, group, memory, .. } => {
                match &outcome {
                    Ok(()) => self.peers.end(exchange.tag(), true),
                    Err(broken) => {
                        let cause = broken.cause(&origin);
                        self.rests.push(Rest::of_exchange(&exchange, &group, cause));
                    }
                }
                Outcome::Bytes { memory, outcome }
            }
            Work::Several { bundle, .. } => {
                match &outcome {
                    Ok(()) => self.peers.end(bundle.tag(), true),
                    Err(broken) => {
                        self.rests.push(Rest::of_bundle(&bundle, broken.cause(&origin)));
                    }
                }
                Outcome::Several { values: bundle.into_spent(), outcome }
            }
            Work::Round { round, then } => {
                match then {
                    Then::More => self.peers.pause(round.tag()),
                    Then::End { well } => self.peers.end(round.tag(), well),
                }
                Outcome::Round(round.heard())
            }
        };
        Ended { ticket, outcome }
    }

    /// Tells and takes in what is left of failed parts; true if anything moved.
    fn finish_rests(&mut self) -> bool {
        let Self { peers, rests, .. } = self;
        let mut moved = false;
        rests.retain_mut(|rest| {
            moved |= rest.step(peers);
            let is_over = rest.is_over();
            if is_over {
                peers.end(rest.tag(), false);
            }
            !is_over
        });
        moved
    }

    /// Pieces that one job cannot take yet must not be in another's way for ever: two members may have sent the pieces of
    /// two collectives in different orders.
    fn clear_ways(&mut self) -> bool {
        let Self { peers, jobs, rests, .. } = self;
        let mut moved = false;
        for job in jobs {
            for (peer, hop) in job.missing() {
                moved |= peers.clear(peer, Stream { tag: job.tag(), hop });
            }
        }
        for rest in rests {
            for (peer, hop) in rest.missing() {
                moved |= peers.clear(peer, Stream { tag: rest.tag(), hop });
            }
        }
        moved
    }
}

impl<M> Job<M> {
    pub(crate) const fn new(
        ticket: u64,
        origin: Origin,
        exchange: Exchange,
        group: Group,
        reduce: ReduceBytes,
        memory: M,
    ) -> Self {
        let work = Work::Bytes { exchange, group, reduce, memory };
        Self { ticket, origin, work, is_stuck: false, is_large: false }
    }

    pub(crate) const fn of_several(
        ticket: u64,
        origin: Origin,
        bundle: Bundle<M>,
        group: Group,
        reduce: ReduceBytes,
    ) -> Self {
        let work = Work::Several { bundle, group, reduce };
        Self { ticket, origin, work, is_stuck: false, is_large: false }
    }

    pub(crate) const fn round(ticket: u64, origin: Origin, round: Round, then: Then) -> Self {
        let work = Work::Round { round, then };
        Self { ticket, origin, work, is_stuck: false, is_large: false }
    }

    const fn tag(&self) -> u64 {
        match &self.work {
            Work::Bytes { exchange, .. } => exchange.tag(),
            Work::Several { bundle, .. } => bundle.tag(),
            Work::Round { round, .. } => round.tag(),
        }
    }

    fn bytes_left(&self) -> usize {
        match &self.work {
            Work::Bytes { exchange, group, .. } => exchange.bytes_left(group),
            Work::Several { bundle, .. } => bundle.bytes_left(),
            Work::Round { .. } => 0,
        }
    }

    /// From whom, and in which hop, something is still to come.
    fn missing(&self) -> SmallVec<[(u32, u32); 8]> {
        match &self.work {
            Work::Bytes { exchange, group, .. } => {
                exchange.missing(group).into_iter().map(|(peer, hop, _)| (peer, hop)).collect()
            }
            Work::Several { bundle, .. } => {
                bundle.missing().into_iter().map(|(peer, hop, _)| (peer, hop)).collect()
            }
            Work::Round { round, .. } => round.missing().collect(),
        }
    }
}

impl<M: Loan> Job<M> {
    fn step(&mut self, peers: &mut impl Peers) -> Result<Step, Broken> {
        match &mut self.work {
            Work::Bytes { exchange, group, reduce, memory } => {
                let mut outcome = Ok(Step::Stuck);
                memory.show(&mut |mut buffers| {
                    outcome = exchange.step(group, *reduce, &mut buffers, peers);
                });
                outcome
            }
            Work::Several { bundle, group, reduce } => bundle.step(group, *reduce, peers),
            Work::Round { round, .. } => Ok(round.step(peers)),
        }
    }
}

/// Moved on only between instructions, and where the machine waits as far as it goes.
impl<P: Peers, M: Loan> Driver<M> for Lane<P, M> {
    fn introduce(&mut self, peer: &Peer<'_>) {
        self.peers.introduce(peer);
    }

    fn submit(&mut self, job: Job<M>) -> Option<Ended<M>> {
        Self::submit(self, job)
    }

    fn refuse(&mut self, refusal: Refusal) {
        Self::refuse(self, refusal);
    }

    fn ended(&mut self) -> Option<Ended<M>> {
        self.pass();
        self.take_ended()
    }

    fn wait(&mut self, ticket: u64) -> bool {
        while !self.is_over(ticket) && !self.has_ended() {
            if !self.pass() && !self.pass_over_all() {
                return false;
            }
        }
        true
    }

    fn doze(&mut self, _times: u32) {
        self.pass_over_all();
    }

    fn is_gone(&mut self, peer: u32) -> bool {
        self.peers.is_gone(peer)
    }
}
