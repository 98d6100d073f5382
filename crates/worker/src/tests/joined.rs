//! Instructions that run together with those before them: the same results, counters and failures
//! as one by one.

use super::*;
use crate::LookAhead;

/// Size of a matrix whose product is worth several threads.
const SIZE: i64 = 256;

fn matrix(slot: u32, number: i64) -> Instruction<'static> {
    let attrs = [ints(&[SIZE, SIZE]), Attr::Scalar(Scalar::Int(number)), Attr::Dtype(Dtype::I64)];
    op(Op::Full, &[slot], &[], &attrs)
}

fn product(to: u32) -> Instruction<'static> {
    op(Op::Matmul, &[to], &[1, 2], &[])
}

/// An instruction that consumes its first operand.
fn last(row: Op, to: u32, operands: &[u32]) -> Instruction<'static> {
    Instruction { consumes: 1, ..op(row, &[to], operands, &[]) }
}

/// Instructions that were joined to a product, after matrices of 5, 7 and 3 in slots 1, 2 and 3.
/// The steps give the same without joining.
fn check(steps: &[Instruction<'static>]) -> Vec<Op> {
    let first = [matrix(1, 5), matrix(2, 7), matrix(3, 3)];
    let steps: Vec<_> = first.into_iter().chain(steps.iter().cloned()).collect();
    joined(&steps, None)
}

/// Instructions that were joined to earlier ones, where the engine joins at most so many at a time.
/// The steps give the same without joining.
fn joined(steps: &[Instruction<'static>], joins_max: Option<usize>) -> Vec<Op> {
    let published = Rc::default();
    let mut others = Vec::new();
    for look_ahead in
        [LookAhead::Published, LookAhead::Nothing, LookAhead::Drawn(1), LookAhead::Drawn(5)]
    {
        let found = Rc::default();
        let engine = ToyEngine { joined: Rc::clone(&found), joins_max, ..ToyEngine::default() };
        let mut machine = Machine::new(engine);
        machine.set_look_ahead(look_ahead);
        let answers = run(&mut machine, steps);
        let stats = machine.stats(0);
        others.push((answers, stats.values, stats.bytes, stats.executed));
        if look_ahead == LookAhead::Published {
            let count = u64::try_from(found.borrow().len()).unwrap();
            assert_eq!(stats.joined, count);
            Rc::<RefCell<Vec<Op>>>::clone(&published).replace(found.take());
        }
    }
    assert!(others.windows(2).all(|pair| pair[0] == pair[1]), "{others:?}");
    published.take()
}

#[test]
fn what_ends_a_product_runs_with_it() {
    let steps = [product(4), last(Op::Relu, 5, &[4]), free(&[4]), read(5, 1, 8)];
    assert_eq!(check(&steps), [Op::Relu]);
    // Freed by the instruction after it, or with unrelated ones in between.
    let freed = [
        product(4),
        matrix(6, 1),
        op(Op::Neg, &[7], &[3], &[]),
        op(Op::ReluBackward, &[5], &[4, 3], &[]),
        free(&[4]),
        read(5, 1, 8),
    ];
    assert_eq!(check(&freed), [Op::ReluBackward]);
}

#[test]
fn a_result_may_take_the_slot_of_what_both_have_read() {
    let steps = [product(4), last(Op::Relu, 5, &[4]), free(&[4, 1]), product_of(5), read(1, 1, 8)];
    assert_eq!(check(&steps), [Op::Relu]);
}

fn product_of(left: u32) -> Instruction<'static> {
    op(Op::Matmul, &[1], &[left, 2], &[])
}

#[test]
fn a_product_that_is_read_elsewhere_runs_alone() {
    let relu = || last(Op::Relu, 5, &[4]);
    let cases = [
        // A reader before, and a reader after.
        vec![product(4), op(Op::Neg, &[6], &[4], &[]), relu(), free(&[4]), read(5, 1, 8)],
        vec![product(4), op(Op::Relu, &[5], &[4], &[]), read(4, 1, 8), read(5, 2, 8)],
        vec![product(4), read(4, 1, 8), relu(), read(5, 2, 8)],
    ];
    for steps in cases {
        assert_eq!(check(&steps), [], "{steps:?}");
    }
}

#[test]
fn another_value_in_the_slot_of_the_second_operand_is_not_taken_for_it() {
    let steps = [
        product(4),
        free(&[3]),
        matrix(3, 11),
        last(Op::ReluBackward, 5, &[4, 3]),
        free(&[4]),
        read(5, 1, 8),
    ];
    assert_eq!(check(&steps), []);
}

#[test]
fn a_second_operand_of_another_shape_is_for_the_instruction_itself() {
    let other = filled(8, &[1, SIZE, SIZE], 1);
    let steps = [other, product(4), last(Op::ReluBackward, 5, &[4, 8]), free(&[4]), read(5, 1, 8)];
    assert_eq!(check(&steps), []);
}

#[test]
fn an_instruction_whose_slot_is_taken_fails_alone() {
    let steps = [product(4), last(Op::Relu, 3, &[4]), read(3, 1, 8), read(1, 2, 8)];
    assert_eq!(check(&steps), [Op::Relu]);
}

/// Number of elements from which looking for followers is worth it.
const LENGTH: i64 = 1 << 12;

fn filled(slot: u32, sizes: &[i64], number: i64) -> Instruction<'static> {
    op(
        Op::Full,
        &[slot],
        &[],
        &[ints(sizes), Attr::Scalar(Scalar::Int(number)), Attr::Dtype(Dtype::I64)],
    )
}

/// Instructions that were joined, after vectors of 5, 7 and 3 in slots 1, 2 and 3.
fn chained(steps: &[Instruction<'static>]) -> Vec<Op> {
    let first = [filled(1, &[LENGTH], 5), filled(2, &[LENGTH], 7), filled(3, &[LENGTH], 3)];
    let steps: Vec<_> = first.into_iter().chain(steps.iter().cloned()).collect();
    let found = joined(&steps, None);
    assert_eq!(joined(&steps, Some(0)), []);
    joined(&steps, Some(1));
    found
}

fn with_number(row: Op, to: u32, left: u32, number: i64) -> Instruction<'static> {
    let mut one = last(row, to, &[left]);
    one.operands.push(Operand::Scalar(Scalar::Int(number)));
    one
}

#[test]
fn a_chain_runs_in_one() {
    let steps = [
        op(Op::Add, &[4], &[1, 2], &[]),
        last(Op::Mul, 5, &[4, 3]),
        free(&[4]),
        with_number(Op::Sub, 6, 5, 4),
        free(&[5]),
        // The result as the second operand; a slot that is used again.
        Instruction { consumes: 2, ..op(Op::Sub, &[4], &[1, 6], &[]) },
        free(&[6]),
        op(Op::Neg, &[5], &[4], &[]),
        free(&[4]),
        read(5, 1, 8),
        read(1, 2, 8),
    ];
    assert_eq!(chained(&steps), [Op::Mul, Op::Sub, Op::Sub, Op::Neg]);
}

#[test]
fn a_chain_may_begin_over_an_operand_and_be_its_own_operand() {
    let steps = [
        last(Op::Add, 4, &[1, 2]),
        free(&[1]),
        op(Op::Mul, &[5], &[4, 4], &[]),
        free(&[4]),
        read(5, 1, 8),
    ];
    assert_eq!(chained(&steps), [Op::Mul]);
}

#[test]
fn a_chain_of_many_runs_by_parts() {
    let mut steps = vec![op(Op::Add, &[4], &[1, 2], &[])];
    for at in 4..24 {
        steps.extend([with_number(Op::Mul, at + 1, at, 3), free(&[at])]);
    }
    steps.push(read(24, 1, 8));
    assert_eq!(chained(&steps).len(), 19);
}

#[test]
fn others_may_stand_between_the_steps_of_a_chain() {
    let apart = |count: u32| {
        let mut steps = vec![op(Op::Add, &[4], &[1, 2], &[])];
        steps.extend((0..count).map(|at| filled(10 + at, &[2], 1)));
        steps.extend([last(Op::Neg, 5, &[4]), free(&[4]), read(5, 1, 8)]);
        chained(&steps)
    };
    assert_eq!(apart(8), [Op::Neg]);
    assert_eq!(apart(9), []);
}

#[test]
fn what_is_not_there_yet_or_read_elsewhere_ends_a_chain() {
    let sum = || op(Op::Add, &[4], &[1, 2], &[]);
    let cases = [
        // An operand that is computed behind the first; another value in its slot; one that failed.
        vec![sum(), filled(6, &[LENGTH], 2), last(Op::Mul, 5, &[4, 6]), free(&[4]), read(5, 1, 8)],
        vec![sum(), free(&[3]), filled(3, &[LENGTH], 9), last(Op::Mul, 5, &[4, 3]), read(5, 1, 8)],
        vec![op(Op::Exp, &[6], &[1], &[]), sum(), last(Op::Mul, 5, &[4, 6]), read(5, 1, 8)],
        // Read by another instruction, before or after; read by none.
        vec![sum(), op(Op::Neg, &[6], &[4], &[]), last(Op::Neg, 5, &[4]), read(5, 1, 8)],
        vec![sum(), op(Op::Neg, &[5], &[4], &[]), read(4, 1, 8), read(5, 2, 8)],
        vec![sum(), free(&[4]), filled(4, &[LENGTH], 1), last(Op::Neg, 5, &[4]), read(5, 1, 8)],
        vec![sum(), read(4, 1, 8), last(Op::Neg, 5, &[4]), read(5, 2, 8)],
    ];
    for steps in cases {
        assert_eq!(chained(&steps), [], "{steps:?}");
    }
}

#[test]
fn a_chain_keeps_its_shape_and_dtype() {
    let end = |other: Instruction<'static>, left: u32, right: u32| {
        let to = op(Op::Add, &[4], &[1, 2], &[]);
        let last = Instruction {
            consumes: if left == 4 { 1 } else { 2 },
            ..op(Op::Mul, &[5], &[left, right], &[])
        };
        chained(&[other, to, last, free(&[4]), read(5, 1, 8)])
    };
    assert_eq!(end(filled(6, &[1], 2), 4, 6), [Op::Mul]);
    assert_eq!(end(filled(6, &[], 2), 6, 4), [Op::Mul]);
    // Its result would have two dimensions.
    assert_eq!(end(filled(6, &[1, LENGTH], 2), 4, 6), []);
    let float = [ints(&[LENGTH]), Attr::Scalar(Scalar::Int(2)), Attr::Dtype(Dtype::F64)];
    assert_eq!(end(op(Op::Full, &[6], &[], &float), 4, 6), []);
    let half = Operand::Scalar(Scalar::Float(0.5));
    let mut scaled = last(Op::Mul, 5, &[4]);
    scaled.operands.push(half);
    let steps =
        [filled(1, &[LENGTH], 5), op(Op::Neg, &[4], &[1], &[]), scaled, free(&[4]), free(&[5])];
    assert_eq!(joined(&steps, None), []);
}

#[test]
fn short_values_are_not_looked_behind() {
    let steps = [
        filled(1, &[LENGTH - 1], 5),
        op(Op::Neg, &[4], &[1], &[]),
        last(Op::Neg, 5, &[4]),
        free(&[4]),
        read(5, 1, 8),
    ];
    assert_eq!(joined(&steps, None), []);
}

#[test]
fn a_step_whose_slot_is_taken_fails_alone() {
    let steps = [
        op(Op::Add, &[4], &[1, 2], &[]),
        last(Op::Neg, 3, &[4]),
        read(3, 1, 8),
        free(&[4]),
        read(1, 2, 8),
    ];
    assert_eq!(chained(&steps), [Op::Neg]);
}
