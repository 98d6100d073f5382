//! The communication stream: collectives that are in flight side by side, each moved on a step at a time by whoever has
//! time for it, while the machine goes on with other instructions.
//!
//! The state is here, and no thread: `crates/python` moves a stream on from a thread of its own, the simulator and the
//! tests between instructions.

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

/// Steps of a new job before the machine goes on: what is small and has come already is over by then, and a large value
/// has not moved by more than as many chunks.
const FIRST_STEPS: usize = 3;

/// Bytes from which on a collective is large: moving them takes longer than waking a thread for it, 10 us or so.
const LARGE_BYTES: usize = 64 * 1024;

/// Whoever moves a stream on, as its machine sees it.
pub trait Driver<M> {
    /// The dispatcher says how another worker is reached.
    fn introduce(&mut self, peer: &Peer<'_>);

    /// Takes a job, and gives it back if it is over at once.
    fn submit(&mut self, job: Job<M>) -> Option<Ended<M>>;

    /// Our part in a collective has failed before it was a job: the others are to be told.
    fn abort(&mut self, abort: Abort);

    /// Between two instructions while jobs are in flight: those that are over since, one a call. It may also move the
    /// others on.
    fn ended(&mut self) -> Option<Ended<M>>;

    /// The machine is about to compute, and will not look at the jobs that are in flight meanwhile.
    fn compute(&mut self) {}

    /// Moves jobs on until this one is over, or until any is: the machine reports its outcome. False where that needs an event from outside,
    /// for which the caller of [`Machine::run`](crate::Machine::run) waits: the instruction is then run again.
    fn wait(&mut self, ticket: u64) -> bool;

    /// Moves jobs on while the machine waits for what the stream does not do, or sleeps a little where nothing can be moved;
    /// so many `times` already without a change.
    fn doze(&mut self, times: u32);

    /// Bytes that have left packed for workers of other hosts: before it, and as they left.
    fn packed_bytes(&mut self) -> [u64; 2] {
        [0; 2]
    }

    /// Whether a worker is known to be gone.
    fn is_gone(&mut self, peer: PeerId) -> bool;

    /// Whether what goes to a worker may be packed, because it leaves this host or because somebody asks for it.
    fn is_packed(&mut self, _peer: PeerId) -> bool {
        false
    }
}

/// Jobs that are in flight, and what is left to do of those that have failed.
#[derive(Debug)]
pub struct CommunicationStream<P, M> {
    peers: P,
    jobs: Vec<Job<M>>,
    /// How many of the jobs were large when they began.
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

    /// Whether anything waits to be moved on.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty() || !self.drains.is_empty()
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

    /// A step of every job that has got something, or may have; true if anything moved.
    pub fn pass(&mut self) -> bool {
        let is_news = self.peers.poll();
        self.step_jobs(is_news)
    }

    /// The same before a sleep, for which nothing must be left: a step of every job, and what stands in another's way is
    /// cleared away.
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

    /// A job that is over, the first first.
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

    /// Tells and takes in what is left of failed parts; true if anything moved.
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

    /// Chunks that one job cannot take yet must not be in another's way for ever: two members may have sent the chunks of
    /// two collectives in different orders.
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

/// Moved on only between instructions, and where the machine waits as far as it goes.
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
