//! The communication stream: collectives in flight side by side, each advanced one step at a time
//! by the thread that drives it, while the machine runs other instructions.
//!
//! The state is here, but no thread: `crates/python` drives a stream from a thread of its own, the
//! simulator and the tests drive it between instructions.

mod drain;
mod job;

pub use drain::Abort;
pub use job::{Ended, Job, Outcome, Then};

use crate::buffers::BorrowedBuffers;
use crate::exchange::ExchangeStep;
use crate::failure::Broken;
use crate::peers::{MessageId, PeerId, Peers};
use drain::ExchangeDrain;
use gt_protocol::message::Peer;
use job::Work;

/// Number of steps of a new job before the machine goes on: a small job whose messages have arrived
/// is over by then, and a large one has moved at most this many chunks.
const FIRST_STEPS: usize = 3;

/// Bytes from which a collective is large: moving them takes longer than waking a thread for it,
/// about 10 us.
const LARGE_BYTES: usize = 64 * 1024;

/// The driver of a stream, as its machine sees it.
pub trait Driver<M> {
    /// Handles the introduction of another worker.
    fn introduce(&mut self, peer: &Peer<'_>);

    /// Takes a job, and returns it if it is over at once.
    fn submit(&mut self, job: Job<M>) -> Option<Ended<M>>;

    /// Tells the other members of a collective that our part failed before it was a job.
    fn abort(&mut self, abort: Abort);

    /// Called between two instructions while jobs are in flight: returns one job that is over, if
    /// there is one. It may also advance the others.
    fn ended(&mut self) -> Option<Ended<M>>;

    /// Tells that the machine is about to compute, and will not look at the jobs in flight
    /// meanwhile.
    fn compute(&mut self) {}

    /// Advances jobs until this one or any other is over: the machine handles the outcome. Returns
    /// false if that needs an event from outside, for which the caller of
    /// [`Machine::run`](crate::Machine::run) waits: the instruction is then run again.
    fn wait(&mut self, ticket: u64) -> bool;

    /// Advances jobs while the machine waits for a condition outside of the stream, or sleeps
    /// briefly where nothing can be advanced; `times` is the number of calls so far without a
    /// change.
    fn doze(&mut self, times: u32);

    /// Bytes that were sent packed to workers of other hosts: before and after packing.
    fn packed_bytes(&mut self) -> [u64; 2] {
        [0; 2]
    }

    /// Returns true if a worker is known to be gone.
    fn is_gone(&mut self, peer: PeerId) -> bool;

    /// Returns true if bytes for a worker may be packed, because it is on another host or on
    /// request.
    fn is_packed(&mut self, _peer: PeerId) -> bool {
        false
    }
}

/// Jobs in flight, and the drains of failed ones.
#[derive(Debug)]
pub struct CommunicationStream<P, M> {
    peers: P,
    jobs: Vec<Job<M>>,
    /// Number of jobs that were large when they started.
    large: usize,
    drains: Vec<ExchangeDrain>,
    ended: Vec<Ended<M>>,
}

impl<P: Peers, M: BorrowedBuffers> CommunicationStream<P, M> {
    pub const fn new(peers: P) -> Self {
        Self { peers, jobs: Vec::new(), large: 0, drains: Vec::new(), ended: Vec::new() }
    }

    pub const fn peers(&self) -> &P {
        &self.peers
    }

    pub const fn peers_mut(&mut self) -> &mut P {
        &mut self.peers
    }

    /// Returns true if there is anything to advance.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty() || !self.drains.is_empty()
    }

    /// Returns true if a completed job has not been taken.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    pub fn is_over(&self, ticket: u64) -> bool {
        self.jobs.iter().all(|job| job.ticket != ticket)
    }

    /// Returns true if there is enough work to wake a sleeping thread for: a large collective, or a
    /// failure that other members must be told of, or whose messages must be drained.
    pub const fn is_worth_waking_for(&self) -> bool {
        self.large > 0 || !self.drains.is_empty()
    }

    pub fn submit(&mut self, mut job: Job<M>) -> Option<Ended<M>> {
        self.peers.begin(job.tag());
        for _ in 0..FIRST_STEPS {
            self.peers.poll();
            match job.step(&mut self.peers) {
                Ok(ExchangeStep::Moved) => {}
                Ok(ExchangeStep::Stuck) => break,
                Ok(ExchangeStep::Done) => return Some(self.conclude(job, Ok(()))),
                Err(broken) => return Some(self.conclude(job, Err(broken))),
            }
        }
        job.is_large = job.bytes_left() >= LARGE_BYTES;
        self.large += usize::from(job.is_large);
        self.jobs.push(job);
        None
    }

    pub fn abort(&mut self, abort: Abort) {
        self.peers.begin(abort.tag);
        self.drains.push(ExchangeDrain::of_abort(abort));
        self.finish_drains();
    }

    /// Makes a step of every job that has received something, or may have; returns true if anything
    /// moved.
    pub fn pass(&mut self) -> bool {
        let is_news = self.peers.poll();
        self.step_jobs(is_news)
    }

    /// Makes a last pass before a sleep: a step of every job, and sets aside chunks that block a
    /// link.
    pub fn pass_over_all(&mut self) -> bool {
        self.peers.poll();
        self.step_jobs(true) || self.clear_links()
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
                Ok(step @ (ExchangeStep::Stuck | ExchangeStep::Moved)) => {
                    job.is_stuck = step == ExchangeStep::Stuck;
                    moved |= step == ExchangeStep::Moved;
                    place += 1;
                    continue;
                }
                Ok(ExchangeStep::Done) => Ok(()),
                Err(broken) => Err(broken),
            };
            moved = true;
            let job = self.jobs.remove(place);
            self.large -= usize::from(job.is_large);
            let ended = self.conclude(job, outcome);
            self.ended.push(ended);
        }
        moved | self.finish_drains()
    }

    /// Takes a job that is over, in order of completion.
    pub fn take_ended(&mut self) -> Option<Ended<M>> {
        if self.ended.is_empty() { None } else { Some(self.ended.remove(0)) }
    }

    fn conclude(&mut self, job: Job<M>, outcome: Result<(), Broken>) -> Ended<M> {
        let Job { ticket, origin, work, .. } = job;
        let outcome = match work {
            Work::Exchange { exchange, group, bucket, .. } => {
                match &outcome {
                    Ok(()) => self.peers.end(exchange.tag(), true),
                    Err(broken) => {
                        let cause = broken.cause(&origin);
                        self.drains.push(ExchangeDrain::of_exchange(&exchange, &group, cause));
                    }
                }
                Outcome::Exchange { bucket, outcome }
            }
            Work::Round { round, then } => {
                match then {
                    Then::NextRound => self.peers.pause(round.tag()),
                    Then::End { well } => self.peers.end(round.tag(), well),
                }
                Outcome::Round(round.into_answers())
            }
        };
        Ended { ticket, outcome }
    }

    /// Sends the failures of failed parts and drains their messages; returns true if anything
    /// moved.
    fn finish_drains(&mut self) -> bool {
        let Self { peers, drains, .. } = self;
        let mut moved = false;
        drains.retain_mut(|drain| {
            moved |= drain.step(peers);
            let is_over = drain.is_over();
            if is_over {
                peers.end(drain.tag(), false);
            }
            !is_over
        });
        moved
    }

    /// Sets aside chunks that one job cannot take yet and that would block another's forever: two
    /// members may have sent the chunks of two collectives in different orders.
    fn clear_links(&mut self) -> bool {
        let Self { peers, jobs, drains, .. } = self;
        let mut moved = false;
        for job in jobs {
            for (peer, hop) in job.missing() {
                moved |= peers.clear(peer, MessageId { tag: job.tag(), hop });
            }
        }
        for drain in drains {
            for (peer, hop) in drain.missing() {
                moved |= peers.clear(peer, MessageId { tag: drain.tag(), hop });
            }
        }
        moved
    }
}

/// Driven only between instructions, and while the machine waits as far as it gets.
impl<P: Peers, M: BorrowedBuffers> Driver<M> for CommunicationStream<P, M> {
    fn introduce(&mut self, peer: &Peer<'_>) {
        self.peers.introduce(peer);
    }

    fn submit(&mut self, job: Job<M>) -> Option<Ended<M>> {
        Self::submit(self, job)
    }

    fn abort(&mut self, abort: Abort) {
        Self::abort(self, abort);
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

    fn is_gone(&mut self, peer: PeerId) -> bool {
        self.peers.is_gone(peer)
    }
}
