//! Turns by time: the work that each session has waiting on each worker, in estimated microseconds.
//! A session has a budget for it there; the rest of its stream stays where other sessions can still
//! overtake it, and where it can be dropped.
//!
//! Marks in a worker's stream show its progress. The time between two of them, compared with the
//! estimate, corrects later estimates: a factor for each operator and size class.

use gt_dispatcher::{SessionId, WorkerIndex};
use gt_protocol::Op;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A session's budget on a worker while it is the only active one: the time that a second user
/// waits when they join.
const BUDGET_ALONE: Duration = Duration::from_millis(20);
/// A session's budget on a worker while several are active: the time that each waits for the others
/// at every turn.
const BUDGET_SHARED: Duration = Duration::from_millis(2);
/// Number of marks in a budget.
const MARKS: f64 = 4.0;
/// Bit that requests of marks have, and those of the core never.
const MARK_BIT: u64 = 1 << 63;
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

/// A mark in flight.
#[derive(Clone, Copy, Debug)]
struct Mark {
    number: u64,
    /// Microseconds charged for all sessions' instructions between the previous mark and this one.
    sent: f64,
    /// True if the worker has no pause between the two: all of that work was in its stream when it
    /// reached the previous mark.
    is_dense: bool,
    span: Span,
}

/// One worker's stream.
#[derive(Debug)]
struct WorkerQueue {
    /// Microseconds charged for all sessions since the last mark.
    sent: f64,
    open: Vec<Span>,
    marks: VecDeque<Mark>,
    waiting: BTreeMap<SessionId, f64>,
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
}

impl Turns {
    /// Tells if several sessions are active, or one.
    pub fn share(&mut self, is_shared: bool) {
        let budget = if is_shared { BUDGET_SHARED } else { BUDGET_ALONE };
        self.budget = budget.as_secs_f64() * 1e6;
    }

    /// Returns true if a session may send a worker more. If it may not and no mark is in flight
    /// that would tell when, `mark` is called with a request for the worker to answer.
    pub fn admits(
        &mut self,
        session: SessionId,
        worker: WorkerIndex,
        now: Instant,
        mark: impl FnOnce(u64),
    ) -> bool {
        let budget = self.budget;
        let Some(queue) = self.queues.get_mut(&worker) else { return true };
        if queue.waiting.get(&session).is_none_or(|&waiting| waiting < budget) {
            return true;
        }
        if queue.marks.iter().all(|mark| mark.span.session != session) {
            self.close(session, worker, now, mark);
        }
        false
    }

    /// Charges a session for an instruction that a worker was sent; returns true if that uses up
    /// its budget there.
    pub fn charge(
        &mut self,
        session: SessionId,
        worker: WorkerIndex,
        (op, estimate): (Op, f64),
        now: Instant,
        mark: impl FnOnce(u64),
    ) -> bool {
        let queue = self.queues.entry(worker).or_insert_with(|| WorkerQueue::new(now));
        let class = (op.info().code, size_class(estimate));
        let known = queue.factors.get(&class).copied();
        let charged = match known {
            Some(factor) => estimate * factor,
            None if estimate < SMALL => estimate,
            // Nothing is known of its time: later instructions wait until it is over.
            None => estimate.max(self.budget),
        };
        queue.sent += charged;
        let waiting = queue.waiting.entry(session).or_default();
        *waiting += charged;
        let is_spent = *waiting >= self.budget;
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
            self.close(session, worker, now, mark);
        }
        is_spent
    }

    /// Ends a session's open span with a mark.
    fn close(
        &mut self,
        session: SessionId,
        worker: WorkerIndex,
        now: Instant,
        mark: impl FnOnce(u64),
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
        if let Some(&mark) = queue.marks.front()
            && mark.number == request & !MARK_BIT
        {
            queue.marks.pop_front();
            queue.learn(&mark, now);
        }
        true
    }

    pub fn forget_session(&mut self, session: SessionId) {
        for queue in self.queues.values_mut() {
            queue.open.retain(|span| span.session != session);
            queue.waiting.remove(&session);
        }
    }

    pub fn forget_worker(&mut self, worker: WorkerIndex) {
        self.queues.remove(&worker);
    }
}

impl WorkerQueue {
    fn new(begun: Instant) -> Self {
        let (open, marks) = (Vec::new(), VecDeque::new());
        let (waiting, factors) = (BTreeMap::new(), BTreeMap::new());
        Self { sent: 0.0, open, marks, waiting, begun, factors }
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

    /// Handles the end of a span: the session's waiting work is reduced, and its main operator's
    /// estimate is corrected.
    fn learn(&mut self, &Mark { sent, is_dense, span, .. }: &Mark, now: Instant) {
        let passed = now.saturating_duration_since(self.begun).as_secs_f64() * 1e6;
        self.begun = now;
        if let Some(waiting) = self.waiting.get_mut(&span.session) {
            *waiting -= span.charged;
            // Less than this is rounding error.
            if *waiting < 1e-3 {
                self.waiting.remove(&span.session);
            }
        }
        let (class, charged, estimate) = span.main;
        if !is_dense || sent <= 0.0 || estimate <= 0.0 {
            return;
        }
        // The operator's share of all charges gives its share of the elapsed time.
        let measured = (passed * charged / sent / estimate).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        let factor = self.factors.entry(class).or_insert(measured);
        *factor += WEIGHT * (measured - *factor);
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
mod tests {
    use super::*;

    const ALICE: SessionId = SessionId(1);
    const BOB: SessionId = SessionId(2);
    const MILLISECOND: f64 = 1e3;

    /// A worker that takes the same time for each instruction, and answers marks.
    struct Worker {
        turns: Turns,
        now: Instant,
        /// Instructions (`None`) and marks that it has not reached.
        stream: VecDeque<Option<u64>>,
        seconds: f64,
    }

    impl Worker {
        fn new(milliseconds: f64) -> Self {
            let (turns, now, stream) = (Turns::default(), Instant::now(), VecDeque::new());
            Self { turns, now, stream, seconds: milliseconds / 1e3 }
        }

        /// Sends until the session has to wait; returns the number of instructions.
        fn pour(&mut self, session: SessionId, estimate: f64) -> usize {
            let Self { turns, now, stream, .. } = self;
            let mut marks = Vec::new();
            for count in 0..10_000 {
                let is_admitted = turns.admits(session, 0, *now, |request| marks.push(request));
                stream.extend(marks.drain(..).map(Some));
                if !is_admitted {
                    return count;
                }
                stream.push_back(None);
                turns.charge(session, 0, (Op::Matmul, estimate), *now, |request| {
                    marks.push(request);
                });
                stream.extend(marks.drain(..).map(Some));
            }
            panic!("the session never has to wait");
        }

        /// Executes everything that it was sent.
        fn drain(&mut self) {
            while let Some(next) = self.stream.pop_front() {
                match next {
                    None => self.now += Duration::from_secs_f64(self.seconds),
                    Some(request) => assert!(self.turns.passed(0, request, self.now)),
                }
            }
        }
    }

    #[test]
    fn a_session_has_twenty_milliseconds_alone_and_two_among_others() {
        for (is_shared, milliseconds) in [(false, 20.0), (true, 2.0)] {
            // The estimates are ten times too high, and in a second run ten times too low.
            for wrong in [10.0, 0.1] {
                let mut worker = Worker::new(0.5);
                worker.turns.share(is_shared);
                let estimate = 0.5 * MILLISECOND * wrong;
                assert_eq!(worker.pour(ALICE, estimate), 1, "nothing is known of the operator yet");
                for _ in 0..20 {
                    worker.drain();
                    worker.pour(ALICE, estimate);
                }
                worker.drain();
                let count = worker.pour(ALICE, estimate);
                let held = f64::from(u32::try_from(count).unwrap()) * 0.5;
                assert!((milliseconds..=milliseconds + 0.5).contains(&held), "{held} ms");
                assert!(
                    worker
                        .turns
                        .admits(BOB, 0, worker.now, |_| panic!("a mark was requested for no work"))
                );
            }
        }
    }

    #[test]
    fn one_long_instruction_is_a_turn() {
        let mut worker = Worker::new(70.0);
        worker.turns.share(true);
        for _ in 0..5 {
            assert_eq!(worker.pour(ALICE, 100.0 * MILLISECOND), 1);
            assert_eq!(worker.pour(ALICE, 100.0 * MILLISECOND), 0, "the first is not over");
            worker.drain();
        }
    }

    #[test]
    fn whoever_is_over_a_budget_that_has_shrunk_gets_a_mark() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        turns.share(false);
        for _ in 0..SPAN_MAX - 1 {
            let estimate = (Op::Add, SMALL / 2.0);
            turns.charge(ALICE, 0, estimate, now, |_| panic!("a mark was requested too early"));
        }
        turns.budget = SMALL;
        let mut marks = 0;
        for _ in 0..3 {
            assert!(!turns.admits(ALICE, 0, now, |_| marks += 1));
        }
        assert_eq!(marks, 1);
    }

    #[test]
    fn a_pause_is_not_taken_for_work() {
        let mut worker = Worker::new(0.5);
        worker.turns.share(true);
        worker.pour(ALICE, 0.5 * MILLISECOND);
        worker.drain();
        for _ in 0..100 {
            worker.stream.push_back(None);
            let mut marks = Vec::new();
            let estimate = (Op::Matmul, 0.5 * MILLISECOND);
            worker.turns.charge(ALICE, 0, estimate, worker.now, |request| marks.push(request));
            worker.stream.extend(marks.into_iter().map(Some));
            worker.drain();
            worker.now += Duration::from_secs(1);
        }
        assert_eq!(worker.pour(ALICE, 0.5 * MILLISECOND), 4);
    }

    #[test]
    fn what_is_gone_has_nothing_waiting() {
        let mut worker = Worker::new(1.0);
        worker.turns.share(true);
        worker.pour(ALICE, MILLISECOND);
        worker.turns.forget_session(ALICE);
        assert!(worker.turns.queues[&0].waiting.is_empty());
        worker.drain();
        worker.pour(BOB, MILLISECOND);
        worker.turns.forget_worker(0);
        assert!(worker.turns.admits(BOB, 0, worker.now, |_| panic!("there is no worker")));
        // Answers to earlier marks belong to no session.
        worker.drain();
        assert!(!worker.turns.passed(0, 7, worker.now), "request 7 is the core's, not a mark's");
    }
}
