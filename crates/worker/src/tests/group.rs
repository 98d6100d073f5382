//! Updates that run as one call: the same results, counters and failures as one by one.

use super::*;
use crate::LookAhead;

type Groups = Rc<RefCell<Vec<usize>>>;

/// A machine with this look-ahead, and the numbers of updates in its calls of several.
fn machine(look_ahead: LookAhead, groups_fail: bool) -> (Machine<ToyEngine>, Groups) {
    let groups = Groups::default();
    let engine = ToyEngine { groups: Rc::clone(&groups), groups_fail, ..ToyEngine::default() };
    let mut machine = Machine::new(engine);
    machine.set_look_ahead(look_ahead);
    (machine, groups)
}

fn full_float(slot: u32, size: i64, number: i64) -> Instruction<'static> {
    let attrs = [ints(&[size]), Attr::Scalar(Scalar::Int(number)), Attr::Dtype(Dtype::F64)];
    op(Op::Full, &[slot], &[], &attrs)
}

/// The parameter in `from`, which it overwrites, minus the gradient; its second result represents
/// no state.
fn sgd(lr: f64, [to, none]: [u32; 2], from: u32, grad: u32) -> Instruction<'static> {
    let mut attrs = vec![Attr::Float(lr); 4];
    attrs.extend([false, false, true].map(Attr::Bool));
    let mut step = op(Op::Sgd, &[to, none], &[from, grad], &attrs);
    step.operands.push(Operand::Absent);
    step.consumes = 0b1;
    step
}

/// Runs the steps with groups, without, and with groups that fail; returns the sizes of the grouped
/// calls.
fn check(steps: &[Instruction<'static>]) -> (Vec<usize>, Vec<Answer>) {
    let (mut grouped, groups) = machine(LookAhead::Published, false);
    let answers = run(&mut grouped, steps);
    let others = [
        (LookAhead::Nothing, false),
        (LookAhead::Published, true),
        (LookAhead::Drawn(1), false),
        (LookAhead::Drawn(2), true),
    ];
    for (look_ahead, fails) in others {
        let (mut other, _) = machine(look_ahead, fails);
        assert_eq!(run(&mut other, steps), answers, "{look_ahead:?}, failing: {fails}");
        let [ours, theirs] = [grouped.stats(0), other.stats(0)];
        assert_eq!((ours.values, ours.bytes), (theirs.values, theirs.bytes));
        assert_eq!(ours.executed, theirs.executed);
    }
    (groups.take(), answers)
}

#[test]
fn updates_with_frees_between_them_are_one_call() {
    let mut steps = Vec::new();
    for k in 0..4 {
        steps.extend([full_float(10 + k, 4, 9), full_float(20 + k, 4, k.into())]);
    }
    for k in 0..4 {
        steps.extend([sgd(0.1, [30 + k, 40 + k], 10 + k, 20 + k), free(&[10 + k])]);
        steps.extend([free(&[40 + k]), free(&[20 + k])]);
    }
    steps.extend((0..4).map(|k| read(30 + k, k.into(), 4)));
    let (groups, answers) = check(&steps);
    assert_eq!(groups, [4]);
    let expected: Vec<Answer> =
        (0..4).map(|k| answer(k, &[9 - i64::try_from(k).unwrap(); 4])).collect();
    assert_eq!(answers, expected);
}

#[test]
fn large_updates_are_one_call_where_no_threads_share_one() {
    let size = 1 << 17; // large by four passes
    let mut steps: Vec<_> = (0..6).map(|k| full_float(k, size, k.into())).collect();
    steps.extend([0, 2, 4].map(|k| sgd(0.1, [10 + k, 20 + k], k, k + 1)));
    steps.push(read(14, 1, 4));
    for (groups_large, expected) in [(false, vec![]), (true, vec![3])] {
        let groups = Groups::default();
        let engine = ToyEngine { groups: Rc::clone(&groups), groups_large, ..ToyEngine::default() };
        let mut machine = Machine::new(engine);
        assert_eq!(run(&mut machine, &steps), [answer(1, &[PRIME - 1; 4])]);
        assert_eq!(groups.take(), expected);
    }
}

#[test]
fn a_result_may_take_a_slot_that_an_update_of_its_call_gave_up() {
    let steps = [
        full_float(0, 4, 9),
        full_float(1, 4, 1),
        full_float(2, 4, 7),
        full_float(3, 4, 2),
        sgd(0.1, [4, 5], 0, 1),
        free(&[0, 5]),
        sgd(0.1, [0, 5], 2, 3),
        free(&[2, 5]),
        read(4, 1, 4),
        read(0, 2, 4),
    ];
    let (groups, answers) = check(&steps);
    assert_eq!(groups, [2]);
    assert_eq!(answers, [answer(1, &[8; 4]), answer(2, &[5; 4])]);
}

#[test]
fn an_update_that_needs_an_earlier_one_is_not_computed_with_it() {
    let steps = [
        full_float(0, 4, 9),
        full_float(1, 4, 1),
        sgd(0.1, [2, 3], 0, 1),
        free(&[0, 3]),
        sgd(0.1, [0, 3], 2, 1), // reads the first one's result
        free(&[2, 3]),
        sgd(0.1, [2, 3], 0, 1), // writes the slot that the first one consumed
        read(2, 1, 4),
    ];
    let (groups, answers) = check(&steps);
    assert_eq!(groups, [0_usize; 0]);
    assert_eq!(answers, [answer(1, &[6; 4])]);
}

#[test]
fn other_attributes_and_other_instructions_end_a_call() {
    let mut steps: Vec<_> = (0..10).map(|k| full_float(k, 4, k.into())).collect();
    let pairs = [(0, 0.1), (2, 0.1), (4, 0.2), (6, 0.2), (8, 0.2)];
    for (k, lr) in pairs {
        steps.push(sgd(lr, [20 + k, 30 + k], k, k + 1));
        if k == 6 {
            steps.push(read(20, 1, 4));
        }
    }
    let (groups, answers) = check(&steps);
    assert_eq!(groups, [2, 2]);
    assert_eq!(answers, [answer(1, &[PRIME - 1; 4])]);
}

#[test]
fn memory_that_is_read_elsewhere_is_not_written_in_a_call() {
    let view = op(Op::Reshape, &[9], &[2], &[ints(&[4])]);
    let steps = [
        full_float(0, 4, 9),
        full_float(1, 4, 1),
        full_float(2, 4, 7),
        view,
        sgd(0.1, [4, 5], 0, 1),
        sgd(0.1, [6, 7], 2, 1),
        read(9, 1, 4),
    ];
    let (groups, answers) = check(&steps);
    assert_eq!(groups, [0_usize; 0]);
    assert_eq!(answers, [answer(1, &[7; 4])]);
}

#[test]
fn an_update_that_fails_is_blamed_alone() {
    let steps = [
        full_float(0, 4, 9),
        full_float(1, 4, 1),
        full_float(2, 4, 7),
        full_float(3, 3, 2), // no gradient of four elements
        full_float(4, 4, 5),
        full_float(5, 4, 3),
        sgd(0.1, [10, 11], 0, 1),
        sgd(0.1, [12, 13], 2, 3),
        sgd(0.1, [14, 15], 4, 5),
        sgd(0.1, [16, 17], 99, 5), // an empty slot
        read(10, 1, 4),
        read(14, 2, 4),
    ];
    let (_, answers) = check(&steps);
    let failed: Vec<u32> = answers
        .iter()
        .filter_map(|one| if let Answer::Failure(cause) = one { Some(cause.tag) } else { None })
        .collect();
    assert_eq!(failed, [1012, 1016]);
    assert_eq!(answers[2..], [answer(1, &[8; 4]), answer(2, &[2; 4])]);
}

#[test]
fn a_slot_in_use_ends_a_call_before_anything_is_written() {
    let steps = [
        full_float(0, 4, 9),
        full_float(1, 4, 1),
        full_float(2, 4, 7),
        full_float(3, 4, 1),
        sgd(0.1, [10, 11], 0, 1),
        sgd(0.1, [10, 12], 2, 3),
        read(2, 1, 4),
    ];
    let (groups, answers) = check(&steps);
    assert_eq!(groups, [0_usize; 0]);
    assert_eq!(answers.last(), Some(&answer(1, &[7; 4])));
}

#[test]
fn a_free_of_a_slot_that_there_is_not_ends_a_call_and_takes_no_memory() {
    let last = u32::MAX - (1 << 17); // some 60 GB of marks
    let steps = [
        full_float(0, 4, 9),
        full_float(1, 4, 1),
        full_float(2, 4, 7),
        full_float(3, 4, 1),
        sgd(0.1, [10, 11], 0, 1),
        free(&[last]),
        sgd(0.1, [12, 13], 2, 3),
        read(10, 1, 4),
        read(12, 2, 4),
    ];
    let (groups, answers) = check(&steps);
    assert_eq!(groups, [0_usize; 0]);
    assert_eq!(answers[answers.len() - 2..], [answer(1, &[8; 4]), answer(2, &[6; 4])]);
}
