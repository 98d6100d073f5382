//! Cancels that were announced in front of what they cancel.

use super::*;
use gt_protocol::KEPT;
use gt_protocol::message::{self, CANCELLED};

/// Answers of a machine that is told of so many cancels.
struct Told(Answers, u32);

impl Replies for Told {
    fn send(&mut self, message: &FromWorker<'_>) {
        self.0.send(message);
    }

    fn announced(&self) -> u32 {
        self.1
    }
}

fn add(out: u32, left: u32, right: u32) -> Instruction<'static> {
    op(Op::Add, &[out], &[left, right], &[])
}

fn run_told(
    machine: &mut Machine<ToyEngine>,
    announced: u32,
    (before, cancels, after): (&[Instruction<'_>], usize, &[Instruction<'_>]),
) -> Vec<Answer> {
    let mut all = words(before);
    for _ in 0..cancels {
        message::encode(&ToWorker::Cancel, &mut all).unwrap();
    }
    all.extend(words(after));
    let mut told = Told(Answers::default(), announced);
    let ran = machine.run(&all, &mut told, &mut CommunicationStream::new(Nobody));
    assert_eq!(ran, Ok(all.len()));
    told.0.0
}

fn machine() -> Machine<ToyEngine> {
    Machine::new(ToyEngine::default())
}

/// The text and the tag of a failed read.
fn failure(answer: &Answer) -> (String, u32) {
    let Answer::FailedReply(_, cause) = answer else { panic!("{answer:?}") };
    assert_eq!(cause.fault.class, FailureClass::Cancelled);
    (cause.fault.text.clone(), cause.tag)
}

#[test]
fn what_is_in_front_of_a_cancel_fails_and_what_is_behind_it_runs() {
    let mut machine = machine();
    run_told(&mut machine, 0, (&[full(0, 2, 5), full(7, 2, 1)], 0, &[]));
    let before = [add(1, 0, 7), add(2, 1, 7), free(&[7]), read(1, 1, 2), read(2, 2, 2)];
    let after = [add(3, 0, 0), read(3, 3, 2), add(4, 2, 0), read(4, 4, 2), read(0, 5, 2)];
    let answers = run_told(&mut machine, 1, (&before, 1, &after));
    let expected = (format!("{CANCELLED}; add i64[2] i64[2]"), 1001);
    for place in [0, 1, 3] {
        assert_eq!(failure(&answers[place]), expected, "all for the reason of the first one");
    }
    assert_eq!([&answers[2], &answers[4]], [&answer(3, &[10; 2]), &answer(5, &[5; 2])]);
    assert_eq!(answers.len(), 5, "nothing is reported that nobody reads");
    assert_eq!(machine.stats(0).values, 2, "the free was executed");
    assert_eq!(machine.stats(0).executed, 2 + 3 + 5);
}

#[test]
fn a_cancel_that_is_read_before_its_announcement_is_seen_cancels_nothing() {
    let mut machine = machine();
    let first = run_told(&mut machine, 0, (&[full(0, 1, 5)], 1, &[add(1, 0, 0), read(1, 1, 1)]));
    assert_eq!(first, [answer(1, &[10])]);
    // The announcement is that of the cancel before.
    let second = run_told(&mut machine, 1, (&[add(2, 1, 1), read(2, 2, 1)], 0, &[]));
    assert_eq!(second, [answer(2, &[20])]);
    // Two at once: all in front of the second one.
    let third = run_told(&mut machine, 3, (&[add(3, 2, 2)], 1, &[add(4, 2, 2), read(4, 4, 1)]));
    assert!(matches!(&third[..], [Answer::FailedReply(4, _)]), "{third:?}");
    let fourth = run_told(&mut machine, 3, (&[], 1, &[add(5, 2, 2), read(5, 5, 1)]));
    assert_eq!(fourth, [answer(5, &[40])]);
}

#[test]
fn what_a_value_from_before_depends_on_is_executed() {
    let mut machine = machine();
    let kept = Instruction { signal: KEPT, ..full(0, 2, 3) };
    let answers =
        run_told(&mut machine, 1, (&[kept, full(1, 2, 3)], 1, &[read(0, 1, 2), read(1, 2, 2)]));
    assert_eq!(answers[0], answer(1, &[3; 2]));
    assert_eq!(failure(&answers[1]).0, format!("{CANCELLED}; full"));
}

#[test]
fn a_cancelled_step_leaves_the_parameter_as_it_was() {
    let mut attrs = vec![Attr::Float(0.0); 4];
    attrs.extend([Attr::Bool(false), Attr::Bool(false), Attr::Bool(false)]);
    for consumes in [0, 0b101] {
        let mut machine = machine();
        let start = [full(0, 2, 9), full(1, 2, 2), full(2, 2, 4)];
        run_told(&mut machine, 0, (&start, 0, &[]));
        let mut step = op(Op::Sgd, &[4, 5], &[0, 3, 2], &attrs);
        step.consumes = consumes;
        // The gradient is cancelled too.
        let before = [add(3, 0, 1), step, free(&[0, 2])];
        let after = [read(4, 1, 2), read(5, 2, 2), read(3, 3, 2), add(6, 4, 4), read(6, 4, 2)];
        let answers = run_told(&mut machine, 1, (&before, 1, &after));
        assert_eq!(answers[..2], [answer(1, &[9; 2]), answer(2, &[4; 2])]);
        assert_eq!(failure(&answers[2]).1, 1003);
        assert_eq!(answers[3], answer(4, &[18; 2]));
    }
}

#[test]
fn a_first_step_that_is_cancelled_has_no_momentum() {
    let mut attrs = vec![Attr::Float(0.0); 4];
    attrs.extend([Attr::Bool(false), Attr::Bool(false), Attr::Bool(true)]);
    let mut step = op(Op::Sgd, &[2, 3], &[0, 1], &attrs);
    step.operands.push(Operand::Absent);
    let mut machine = machine();
    run_told(&mut machine, 0, (&[full(0, 2, 9), full(1, 2, 2)], 0, &[]));
    let answers = run_told(&mut machine, 1, (&[step], 1, &[read(2, 1, 2), read(3, 2, 2)]));
    assert_eq!(answers[0], answer(1, &[9; 2]));
    assert!(failure(&answers[1]).0.starts_with(CANCELLED));
}
