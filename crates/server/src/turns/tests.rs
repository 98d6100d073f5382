//! Turns beside a worker with a clock of its own.

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
    assert!(worker.turns.queues[&0].shares.is_empty());
    worker.drain();
    worker.pour(BOB, MILLISECOND);
    worker.turns.forget_worker(0);
    assert!(worker.turns.admits(BOB, 0, worker.now, |_| panic!("there is no worker")));
    // Answers to earlier marks belong to no session.
    worker.drain();
    assert!(!worker.turns.passed(0, 7, worker.now), "request 7 is the core's, not a mark's");
}

/// A session that always has another instruction.
#[derive(Clone, Copy)]
struct Pouring {
    priority: Priority,
    session: SessionId,
    op: Op,
    weight: f64,
    /// Time of an instruction on the worker, and its estimate, which may be wrong.
    milliseconds: f64,
    estimate: f64,
}

/// Milliseconds of a worker that each of several sessions gets, when all always have more to do.
fn shares(sessions: &[Pouring], milliseconds: f64) -> Vec<f64> {
    let (mut turns, mut now) = (Turns::default(), Instant::now());
    let mut stream: VecDeque<Result<usize, u64>> = VecDeque::new();
    let mut used = vec![0.0; sessions.len()];
    turns.share(true);
    turns.set_weights(sessions.iter().map(|one| (one.session, one.weight)).collect());
    turns.set_priorities(sessions.iter().map(|one| (one.session, one.priority)).collect());
    // The loop ends: each round executes something, and the first instructions are admitted.
    while used.iter().sum::<f64>() < milliseconds {
        let mut order: Vec<usize> = (0..sessions.len()).collect();
        order.sort_by(|&one, &other| {
            let lead = |at: usize| turns.lead(sessions[at].session, &[0]);
            lead(one).total_cmp(&lead(other))
        });
        for at in order {
            let Pouring { session, op, estimate, .. } = sessions[at];
            let mut marks = Vec::new();
            while turns.admits(session, 0, now, |request| marks.push(request)) {
                stream.extend(marks.drain(..).map(Err));
                stream.push_back(Ok(at));
                turns.charge(session, 0, (op, estimate * MILLISECOND), now, |request| {
                    marks.push(request);
                });
                stream.extend(marks.drain(..).map(Err));
            }
            stream.extend(marks.into_iter().map(Err));
        }
        match stream.pop_front().expect("the worker is never without work") {
            Ok(at) => {
                used[at] += sessions[at].milliseconds;
                now += Duration::from_secs_f64(sessions[at].milliseconds / 1e3);
            }
            Err(request) => assert!(turns.passed(0, request, now)),
        }
    }
    used
}

#[test]
fn device_time_is_shared_by_weight_whatever_the_instructions() {
    const CAROL: SessionId = SessionId(3);
    // Milliseconds and estimates of the two: short and long ones, right and wrong estimates.
    for (alice, bob) in [
        ((0.4, 0.4), (0.4, 0.4)),
        ((1.0, 1.0), (1.0, 1.0)),
        ((50.0, 5.0), (2.0, 4.0)),
        ((2.0, 3.0), (70.0, 10.0)),
        ((40.0, 30.0), (50.0, 700.0)),
        ((0.3, 0.01), (0.5, 4.0)),
    ] {
        let pouring = |session, op, weight, (milliseconds, estimate)| Pouring {
            priority: Priority::Normal,
            session,
            op,
            weight,
            milliseconds,
            estimate,
        };
        let longest = [alice.0, bob.0, 12.0].into_iter().fold(0.0, f64::max);
        let total = 1000.0 * longest;
        for weight in [1.0, 3.0, 20.0] {
            let two = [pouring(ALICE, Op::Matmul, 1.0, alice), pouring(BOB, Op::Add, weight, bob)];
            let used = shares(&two, total);
            let ratio = used[1] / used[0] / weight;
            assert!((0.95..1.05).contains(&ratio), "1 : {weight} of {alice:?} {bob:?}: {used:?}");
        }
        let used = shares(
            &[
                pouring(ALICE, Op::Matmul, 100.0, alice),
                pouring(BOB, Op::Add, 200.0, bob),
                pouring(CAROL, Op::Mul, 300.0, (3.0, 3.0)),
            ],
            total,
        );
        for (part, used) in [(1.0, used[0]), (2.0, used[1]), (3.0, used[2])] {
            let ratio = used / (total / 6.0) / part;
            assert!((0.95..1.05).contains(&ratio), "{part} of 6 of {alice:?} {bob:?}: {used}");
        }
    }
}

#[test]
fn who_returns_from_a_pause_has_no_claim_to_the_time_before() {
    let mut worker = Worker::new(1.0);
    worker.turns.share(true);
    worker.pour(BOB, MILLISECOND);
    worker.drain();
    for _ in 0..1000 {
        worker.pour(ALICE, MILLISECOND);
        worker.drain();
    }
    let lead = worker.turns.lead(ALICE, &[0]) - worker.turns.lead(BOB, &[0]);
    assert!(lead <= CREDIT + LEAD, "{lead}");
    // A third session has none at all.
    worker.turns.charge(SessionId(3), 0, (Op::Add, 1.0), worker.now, |_| {});
    assert!(worker.turns.lead(SessionId(3), &[0]) >= 0.0);
}

#[test]
fn a_session_that_is_ahead_goes_on_once_the_others_have_nothing_waiting() {
    let mut worker = Worker::new(10.0);
    worker.turns.share(true);
    // Bob's little work has no mark of its own: Alice's refusal requests one.
    for _ in 0..3 {
        worker.pour(ALICE, 10.0 * MILLISECOND);
        worker.drain();
    }
    worker.stream.push_back(None);
    worker.turns.charge(BOB, 0, (Op::Add, 1.0), worker.now, |_| panic!("it is little"));
    worker.turns.queues.get_mut(&0).unwrap().shares.get_mut(&ALICE).unwrap().passed += CREDIT;
    assert_eq!(worker.pour(ALICE, 10.0 * MILLISECOND), 0, "bob is behind");
    worker.drain();
    assert_eq!(worker.pour(ALICE, 10.0 * MILLISECOND), 1);
}

#[test]
fn time_is_counted_for_whoever_had_it() {
    let mut worker = Worker::new(2.0);
    worker.turns.share(true);
    for _ in 0..50 {
        worker.pour(ALICE, MILLISECOND);
        worker.drain();
        worker.pour(BOB, MILLISECOND);
        worker.drain();
    }
    let used: BTreeMap<SessionId, f64> = worker.turns.take_used().collect();
    let passed = 50.0 * 2.0 / 1e3;
    for session in [ALICE, BOB] {
        assert!((used[&session] / passed - 1.0).abs() < 0.05, "{used:?}");
    }
    assert_eq!(worker.turns.take_used().count(), 0);
}

#[test]
fn a_higher_class_gets_its_share_first_and_no_more() {
    for (high, low) in
        [((1.0, 1.0), (1.0, 1.0)), ((0.4, 0.4), (30.0, 10.0)), ((50.0, 5.0), (2.0, 4.0))]
    {
        for weight in [1.0, 3.0] {
            let pouring = |session, op, weight, priority, (milliseconds, estimate)| Pouring {
                priority,
                session,
                op,
                weight,
                milliseconds,
                estimate,
            };
            let two = [
                pouring(ALICE, Op::Matmul, 1.0, Priority::High, high),
                pouring(BOB, Op::Add, weight, Priority::Low, low),
            ];
            let used = shares(&two, 50_000.0);
            let ratio = used[1] / used[0] / weight;
            assert!((0.95..1.05).contains(&ratio), "1 : {weight} of {high:?} {low:?}: {used:?}");
            if low.0 < 2.0 {
                // The first milliseconds are the higher class's.
                let used = shares(&two, 15.0);
                assert!(used[0] >= used[1] * 4.0, "{high:?} {low:?}: {used:?}");
            }
        }
    }
}

#[test]
fn a_lower_class_waits_for_a_bounded_time() {
    let mut worker = Worker::new(1.0);
    worker.turns.share(true);
    worker.turns.set_priorities(BTreeMap::from([(BOB, Priority::High)]));
    worker.pour(ALICE, MILLISECOND);
    worker.drain();
    worker.pour(BOB, MILLISECOND);
    assert_eq!(worker.pour(ALICE, MILLISECOND), 0, "bob has work and is not ahead");
    let passed = |worker: &mut Worker, ahead: f64| {
        let shares = &mut worker.turns.queues.get_mut(&0).unwrap().shares;
        let alice = shares[&ALICE].passed;
        shares.get_mut(&BOB).unwrap().passed = alice + ahead;
    };
    passed(&mut worker, HEAD_START - LEAD - 1.0);
    assert_eq!(worker.pour(ALICE, MILLISECOND), 0, "bob has not had his lead yet");
    passed(&mut worker, HEAD_START);
    assert!(worker.pour(ALICE, MILLISECOND) > 0, "bob has had his lead");
    worker.drain();
    worker.turns.charge(ALICE, 0, (Op::Add, MILLISECOND), worker.now, |_| {});
    passed(&mut worker, HEAD_START + LEAD + 1.0);
    assert_eq!(worker.pour(BOB, MILLISECOND), 0, "alice is behind by more than the lead");
}
