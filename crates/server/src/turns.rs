//! Turns by time: the work that each session has waiting on each worker, in estimated microseconds.
//! A session has a budget for it there; the rest of its stream stays where other sessions can still
//! overtake it, and where it can be dropped.
//!
//! Marks in a worker's stream show its progress. The time between two of them, compared with the
//! estimate, corrects later estimates: a factor for each operator and size class.
//!
//! Among several active sessions each has a *virtual time* on each worker: what it was charged there,
//! divided by its weight. A session that is ahead of another one with work there waits for it, so
//! that device time is shared by weight whatever the lengths of their instructions. A session of a
//! higher class has a head start: it takes its share first, and no more than that.

use crate::policy::Priority;
use gt_dispatcher::{SessionId, WorkerIndex};
use gt_protocol::Op;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A session's budget on a worker while it is the only active one: the time that a second user
/// waits when they join.
const BUDGET_ALONE: Duration = Duration::from_millis(20);
/// A session's budget on a worker while several are active: the time that each waits for the others
/// at every turn.
const BUDGET_SHARED: Duration = Duration::from_millis(2);
/// Virtual microseconds by which a session may be ahead of another one with work on the worker: a
/// budget, so that both have one there.
const LEAD: f64 = 2e3;
/// Virtual microseconds of the head start against the next lower class: for so long that one may
/// wait beyond its share.
const HEAD_START: f64 = 2e4;
/// Virtual microseconds by which a session that had nothing to do may be behind the others when it
/// returns: a long pause is no claim to a long turn, and a short one costs no share.
const CREDIT: f64 = 1e5;
/// Number of marks in a budget.
const MARKS: f64 = 4.0;
/// Bit that requests of marks have, and those of the core never.
const MARK_BIT: u64 = 1 << 63;
/// Numbers of marks that a standby leaves out: more than are sent between two forks.
const MARKS_SKIPPED: u64 = 1 << 32;
/// Weight of a new measurement against all earlier ones of the same operator and size.
const WEIGHT: f64 = 0.5;
/// Limit of corrections (and its inverse): a worker may have been stopped.
const FACTOR_MAX: f64 = 1e4;
/// Microseconds of work below which a new operator is not waited for: a hundred of such
/// instructions are a short turn.
const SMALL: f64 = 16.0;
/// Maximum number of instructions between two marks, so that estimates that are too low are
/// detected.
const SPAN_MAX: u32 = 64;

/// A session's instructions between two marks.
#[derive(Clone, Copy, Debug)]
struct Span {
    session: SessionId,
    count: u32,
    /// Microseconds charged.
    charged: f64,
    /// Operator and size class with the largest share, that share, and that share before
    /// correction.
    main: (Class, f64, f64),
}

/// Operator and size class: each operator has its own cost law, so sizes are separate; a class has
/// four times the work of the one below.
type Class = (u16, u32);

/// Microseconds by session.
type Charges = SmallVec<[(SessionId, f64); 4]>;

/// A mark in flight.
#[derive(Clone, Debug)]
struct Mark {
    number: u64,
    /// Microseconds charged for each session's instructions between the previous mark and this one.
    sent: Charges,
    /// True if the worker has no pause between the two: all of that work was in its stream when it
    /// reached the previous mark.
    is_dense: bool,
    span: Span,
}

/// A session's share of a worker.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Microseconds of work that wait there.
    waiting: f64,
    /// Microseconds charged so far, each divided by the session's weight at the time.
    passed: f64,
}

/// One worker's stream.
#[derive(Debug)]
struct WorkerQueue {
    /// Microseconds charged for each session since the last mark.
    sent: Charges,
    open: Vec<Span>,
    marks: VecDeque<Mark>,
    shares: BTreeMap<SessionId, Share>,
    /// Virtual time of the session that is furthest behind; a session that returns is not further
    /// behind than [`CREDIT`].
    floor: f64,
    /// Time at which the worker started the work before the first mark.
    begun: Instant,
    factors: BTreeMap<Class, f64>,
}

/// All workers' streams.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queues: BTreeMap<WorkerIndex, WorkerQueue>,
    next_mark: u64,
    budget: f64,
    is_shared: bool,
    /// Weights of active sessions, 1 at most; a session without one has 1.
    weights: BTreeMap<SessionId, f64>,
    /// Classes of active sessions; a session without one has the middle one.
    priorities: BTreeMap<SessionId, Priority>,
    /// Microseconds of workers by session, since they were last taken.
    used: BTreeMap<SessionId, f64>,
}

impl Turns {
    /// Tells if several sessions are active, or one.
    pub fn share(&mut self, is_shared: bool) {
        let budget = if is_shared { BUDGET_SHARED } else { BUDGET_ALONE };
        self.budget = budget.as_secs_f64() * 1e6;
        self.is_shared = is_shared;
    }

    /// Sets the weights of the active sessions; they count against each other.
    pub fn set_weights(&mut self, mut weights: BTreeMap<SessionId, f64>) {
        let largest = weights.values().copied().fold(0.0, f64::max);
        for weight in weights.values_mut() {
            *weight /= largest;
        }
        self.weights = weights;
    }

    /// Sets the classes of the active sessions.
    pub fn set_priorities(&mut self, priorities: BTreeMap<SessionId, Priority>) {
        self.priorities = priorities;
    }

    fn priority(&self, session: SessionId) -> Priority {
        self.priorities.get(&session).copied().unwrap_or_default()
    }

    /// Head start of a session.
    fn head_start(&self, session: SessionId) -> f64 {
        match self.priority(session) {
            Priority::Low => -HEAD_START,
            Priority::Normal => 0.0,
            Priority::High => HEAD_START,
        }
    }

    /// Virtual microseconds by which a session is ahead of whoever is furthest behind on these
    /// workers, less its head start: who is least ahead goes first.
    pub fn lead(&self, session: SessionId, workers: &[WorkerIndex]) -> f64 {
        let lead = |worker| {
            let queue: &WorkerQueue = self.queues.get(worker)?;
            Some((queue.shares.get(&session)?.passed - queue.floor).max(-CREDIT))
        };
        let most = workers.iter().filter_map(lead).reduce(f64::max).unwrap_or(0.0);
        most - self.head_start(session)
    }

    /// Takes the seconds that workers have spent on each session.
    pub fn take_used(&mut self) -> impl Iterator<Item = (SessionId, f64)> + use<> {
        let used = std::mem::take(&mut self.used);
        used.into_iter().map(|(session, micros)| (session, micros / 1e6))
    }

    /// Returns true if a session may send a worker more. If it may not and no mark is in flight
    /// that would tell when, `mark` is called with a request for the worker to answer.
    pub fn admits(
        &mut self,
        session: SessionId,
        worker: WorkerIndex,
        now: Instant,
        mut mark: impl FnMut(u64),
    ) -> bool {
        let Some(queue) = self.queues.get(&worker) else { return true };
        let share = queue.shares.get(&session).copied().unwrap_or_default();
        let mut awaited: SmallVec<[SessionId; 4]> = SmallVec::new();
        if share.waiting >= self.budget {
            awaited.push(session);
        } else if self.is_shared {
            // Those that it is ahead of and that have work there, so that the worker has some.
            let claimed = share.passed - self.head_start(session);
            let is_behind = |&(other, passed): &(SessionId, f64)| {
                other != session && passed - self.head_start(other) < claimed - LEAD
            };
            awaited.extend(queue.at_work().filter(is_behind).map(|(other, _)| other));
        }
        for &awaited in &awaited {
            let Some(queue) = self.queues.get(&worker) else { break };
            if queue.marks.iter().all(|mark| mark.span.session != awaited) {
                self.close(awaited, worker, now, &mut mark);
            }
        }
        awaited.is_empty()
    }

    /// Charges a session for an instruction that a worker was sent; returns true if that uses up
    /// its budget there.
    pub fn charge(
        &mut self,
        session: SessionId,
        worker: WorkerIndex,
        (op, estimate): (Op, f64),
        now: Instant,
        mut mark: impl FnMut(u64),
    ) -> bool {
        let weight = self.weights.get(&session).copied().unwrap_or(1.0);
        let is_shared = self.is_shared;
        let queue = self.queues.entry(worker).or_insert_with(|| WorkerQueue::new(now));
        let class = (op.info().code, size_class(estimate));
        let known = queue.factors.get(&class).copied();
        let charged = match known {
            Some(factor) => estimate * factor,
            None if estimate < SMALL => estimate,
            // Nothing is known of its time: later instructions wait until it is over.
            None => estimate.max(self.budget),
        };
        add(&mut queue.sent, session, charged);
        let share = queue.arrival(session, is_shared);
        share.waiting += charged;
        share.passed += charged / weight;
        let is_spent = share.waiting >= self.budget;
        let open = queue.span(session);
        open.charged += charged;
        open.count += 1;
        if charged > open.main.1 {
            open.main = (class, charged, estimate);
        } else if class == open.main.0 {
            open.main.1 += charged;
            open.main.2 += estimate;
        }
        if open.charged >= self.budget / MARKS || open.count >= SPAN_MAX {
            self.close(session, worker, now, &mut mark);
        }
        is_spent
    }

    /// Ends a session's open span with a mark.
    fn close(
        &mut self,
        session: SessionId,
        worker: WorkerIndex,
        now: Instant,
        mark: &mut dyn FnMut(u64),
    ) {
        let Some(queue) = self.queues.get_mut(&worker) else { return };
        let Some(place) = queue.open.iter().position(|span| span.session == session) else {
            return;
        };
        let span = queue.open.swap_remove(place);
        if queue.marks.is_empty() {
            queue.begun = now;
        }
        self.next_mark += 1;
        queue.marks.push_back(Mark {
            number: self.next_mark,
            sent: std::mem::take(&mut queue.sent),
            is_dense: span.count == 1 || !queue.marks.is_empty(),
            span,
        });
        mark(MARK_BIT | self.next_mark);
    }

    /// Takes a worker's answer, if it is one to a mark.
    pub fn passed(&mut self, worker: WorkerIndex, request: u64, now: Instant) -> bool {
        if request & MARK_BIT == 0 {
            return false;
        }
        let Some(queue) = self.queues.get_mut(&worker) else { return true };
        // Answers come in the order of the marks.
        if queue.marks.front().is_some_and(|mark| mark.number == request & !MARK_BIT)
            && let Some(mark) = queue.marks.pop_front()
        {
            let passed = queue.learn(&mark, now, &self.weights);
            for &(session, micros) in &passed {
                *self.used.entry(session).or_default() += micros;
            }
        }
        true
    }

    /// Forgets what is in flight, in a standby that begins: marks of the process before are not known
    /// here, and get no numbers of this one.
    pub fn restart(&mut self) {
        for queue in self.queues.values_mut() {
            let factors = std::mem::take(&mut queue.factors);
            *queue = WorkerQueue { factors, ..WorkerQueue::new(queue.begun) };
        }
        self.next_mark += MARKS_SKIPPED;
    }

    pub fn forget_session(&mut self, session: SessionId) {
        for queue in self.queues.values_mut() {
            queue.open.retain(|span| span.session != session);
            queue.shares.remove(&session);
        }
        self.weights.remove(&session);
        self.priorities.remove(&session);
    }

    pub fn forget_worker(&mut self, worker: WorkerIndex) {
        self.queues.remove(&worker);
    }
}

impl WorkerQueue {
    fn new(begun: Instant) -> Self {
        let (open, marks) = (Vec::new(), VecDeque::new());
        let (shares, factors) = (BTreeMap::new(), BTreeMap::new());
        Self { sent: Charges::new(), open, marks, shares, floor: 0.0, begun, factors }
    }

    /// Sessions with work here, with their virtual times.
    fn at_work(&self) -> impl Iterator<Item = (SessionId, f64)> {
        let busy = self.shares.iter().filter(|(_, share)| share.waiting > 0.0);
        busy.map(|(&session, share)| (session, share.passed))
    }

    /// The share of a session that gets work.
    fn arrival(&mut self, session: SessionId, is_shared: bool) -> &mut Share {
        let floor = self.floor;
        let new = Share { waiting: 0.0, passed: floor };
        let share = self.shares.entry(session).or_insert(new);
        if share.waiting <= 0.0 {
            share.passed = share.passed.max(floor - CREDIT);
        }
        let mut lowest = share.passed;
        if is_shared {
            let busy = self.shares.values().filter(|share| share.waiting > 0.0);
            lowest = busy.map(|share| share.passed).fold(lowest, f64::min);
        }
        self.floor = floor.max(lowest);
        self.shares.entry(session).or_insert(new)
    }

    /// Span of a session since its last mark.
    fn span(&mut self, session: SessionId) -> &mut Span {
        let place = self.open.iter().position(|span| span.session == session);
        let place = place.unwrap_or_else(|| {
            self.open.push(Span { session, count: 0, charged: 0.0, main: ((0, 0), 0.0, 0.0) });
            self.open.len() - 1
        });
        &mut self.open[place]
    }

    /// Handles the end of a span: the session's waiting work is reduced, its main operator's
    /// estimate and the charges are corrected. Returns the microseconds of each session.
    fn learn(&mut self, mark: &Mark, now: Instant, weights: &BTreeMap<SessionId, f64>) -> Charges {
        let passed = now.saturating_duration_since(self.begun).as_secs_f64() * 1e6;
        self.begun = now;
        let Mark { sent, is_dense, span, .. } = mark;
        if let Some(share) = self.shares.get_mut(&span.session) {
            share.waiting -= span.charged;
            // Less than this is rounding error.
            if share.waiting < 1e-3 {
                share.waiting = 0.0;
            }
        }
        let total: f64 = sent.iter().map(|(_, charged)| charged).sum();
        if !is_dense || total <= 0.0 {
            return sent.clone();
        }
        let mut used = Charges::new();
        for &(session, charged) in sent {
            let micros = passed * charged / total;
            used.push((session, micros));
            let weight = weights.get(&session).copied().unwrap_or(1.0);
            if let Some(share) = self.shares.get_mut(&session) {
                share.passed += (micros - charged) / weight;
            }
        }
        let (class, charged, estimate) = span.main;
        if estimate > 0.0 {
            // The operator's share of all charges gives its share of the elapsed time.
            let measured = passed * charged / total / estimate;
            let measured = measured.clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
            let factor = self.factors.entry(class).or_insert(measured);
            *factor += WEIGHT * (measured - *factor);
        }
        used
    }
}

/// Adds to a session's part of charges.
fn add(charges: &mut Charges, session: SessionId, micros: f64) {
    match charges.iter_mut().find(|(of, _)| *of == session) {
        Some((_, sum)) => *sum += micros,
        None => charges.push((session, micros)),
    }
}

/// The size class of an amount of work; four times the work is one class more.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size in microseconds; saturates"
)]
fn size_class(estimate: f64) -> u32 {
    (estimate.max(1.0) as u64).ilog2() / 2
}

#[cfg(test)]
mod tests;
