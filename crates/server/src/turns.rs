//! Turns by time: what each session has waiting on each worker, in estimated microseconds. A session may have a budget of it
//! there; the rest of its stream stays where it can still be put behind somebody else's, or dropped.
//!
//! Marks in a worker's stream say how far it has come. The time between two of them, beside what was estimated for it,
//! corrects later estimates: a factor for each operator and size class.

use gt_dispatcher::{SessionId, WorkerIndex};
use gt_protocol::Op;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A session's budget on a worker while it is the only active one: what a second user waits for when they come.
const BUDGET_ALONE: Duration = Duration::from_millis(20);
/// The same while several are active: what each waits for the others at every turn.
const BUDGET_SHARED: Duration = Duration::from_millis(2);
/// A mark follows this part of a budget.
const MARKS: f64 = 4.0;
/// Requests of marks have this bit; those of the core never do.
const MARK_BIT: u64 = 1 << 63;
/// A new measurement's weight beside all earlier ones of the same operator and size.
const WEIGHT: f64 = 0.5;
/// Corrections stay between this and its inverse: a worker may have been stopped.
const FACTOR_MAX: f64 = 1e4;
/// Work below this (us) is not waited for when its operator is new: a hundred of it is a short turn.
const SMALL: f64 = 16.0;
/// A mark follows so many instructions at the latest: estimates that are too low are found out.
const SPAN_MAX: u32 = 64;

/// A session's instructions between two marks.
#[derive(Clone, Copy, Debug)]
struct Span {
    session: SessionId,
    count: u32,
    /// As charged, in microseconds.
    charged: f64,
    /// What took most of it: operator and size class, its share, and that share before correction.
    main: (Class, f64, f64),
}

/// Operators cost by their own law each, so sizes are apart: a class has four times the work of the one below.
type Class = (u16, u32);

/// A mark on its way.
#[derive(Clone, Copy, Debug)]
struct Mark {
    number: u64,
    /// Charged for everybody's instructions between the mark before it and this one.
    sent: f64,
    /// The worker has no pause between the two: all of it was there when it came to the first one.
    is_dense: bool,
    span: Span,
}

/// One worker's stream.
#[derive(Debug)]
struct WorkerQueue {
    /// Charged for all sessions since the last mark.
    sent: f64,
    open: Vec<Span>,
    marks: VecDeque<Mark>,
    waiting: BTreeMap<SessionId, f64>,
    /// Since when the worker has been at what comes before the first mark.
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
    /// Several sessions are active, or one.
    pub fn share(&mut self, is_shared: bool) {
        let budget = if is_shared { BUDGET_SHARED } else { BUDGET_ALONE };
        self.budget = budget.as_secs_f64() * 1e6;
    }

    /// Whether a session may send a worker more. `mark` is called with a request that the worker is to answer, where it may not
    /// and nothing would say when.
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

    /// Charges a session for an instruction that a worker was sent; true where that is as much as it may have there.
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
            // Nothing is known of it: what comes next waits until it is over.
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

    /// What a session has sent since its last mark.
    fn span(&mut self, session: SessionId) -> &mut Span {
        let place = self.open.iter().position(|span| span.session == session);
        let place = place.unwrap_or_else(|| {
            self.open.push(Span { session, count: 0, charged: 0.0, main: ((0, 0), 0.0, 0.0) });
            self.open.len() - 1
        });
        &mut self.open[place]
    }

    /// A span is over: the session has so much less waiting, and its main operator's estimate is corrected.
    fn learn(&mut self, &Mark { sent, is_dense, span, .. }: &Mark, now: Instant) {
        let passed = now.saturating_duration_since(self.begun).as_secs_f64() * 1e6;
        self.begun = now;
        if let Some(waiting) = self.waiting.get_mut(&span.session) {
            *waiting -= span.charged;
            // Less than rounding may leave, or nothing.
            if *waiting < 1e-3 {
                self.waiting.remove(&span.session);
            }
        }
        let (class, charged, estimate) = span.main;
        if !is_dense || sent <= 0.0 || estimate <= 0.0 {
            return;
        }
        // Of the time that passed, the operator's share of all that was charged.
        let measured = (passed * charged / sent / estimate).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
        let factor = self.factors.entry(class).or_insert(measured);
        *factor += WEIGHT * (measured - *factor);
    }
}

/// Four times the work is one class more.
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
        /// Instructions (`None`) and marks that it has not come to.
        stream: VecDeque<Option<u64>>,
        seconds: f64,
    }

    impl Worker {
        fn new(milliseconds: f64) -> Self {
            let (turns, now, stream) = (Turns::default(), Instant::now(), VecDeque::new());
            Self { turns, now, stream, seconds: milliseconds / 1e3 }
        }

        /// Sends until the session has to wait; how many instructions that were.
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
            panic!("it never has to wait");
        }

        /// Executes all that it was sent.
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
                assert!(worker.turns.admits(BOB, 0, worker.now, |_| panic!("nothing to mark")));
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
            turns.charge(ALICE, 0, estimate, now, |_| panic!("a mark before its time"));
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
        // Answers of what was sent before are nobody's.
        worker.drain();
        assert!(!worker.turns.passed(0, 7, worker.now), "a request of the core's");
    }
}
