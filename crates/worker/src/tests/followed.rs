//! Products that run with what follows them: the same results, counters and failures as one after the other.

use super::*;
use crate::LookAhead;

/// Of a matrix whose product is worth several threads.
const SIZE: i64 = 256;

fn matrix(slot: u32, number: i64) -> Instruction<'static> {
    let attrs = [ints(&[SIZE, SIZE]), Attr::Scalar(Scalar::Int(number)), Attr::Dtype(Dtype::I64)];
    op(Op::Full, &[slot], &[], &attrs)
}

fn product(to: u32) -> Instruction<'static> {
    op(Op::Matmul, &[to], &[1, 2], &[])
}

/// An instruction that ends its first operand.
fn last(row: Op, to: u32, operands: &[u32]) -> Instruction<'static> {
    Instruction { consumes: 1, ..op(row, &[to], operands, &[]) }
}

/// What ran with a product, after matrices of 5, 7 and 3 in slots 1, 2 and 3. The same steps give the same without.
fn check(steps: &[Instruction<'static>]) -> Vec<Op> {
    let first = [matrix(1, 5), matrix(2, 7), matrix(3, 3)];
    let steps: Vec<_> = first.into_iter().chain(steps.iter().cloned()).collect();
    let followed = Rc::default();
    let mut others = Vec::new();
    for look_ahead in
        [LookAhead::Published, LookAhead::Nothing, LookAhead::Drawn(1), LookAhead::Drawn(5)]
    {
        let found = Rc::default();
        let engine = ToyEngine { followed: Rc::clone(&found), ..ToyEngine::default() };
        let mut machine = Machine::new(engine);
        machine.set_look_ahead(look_ahead);
        let answers = run(&mut machine, &steps);
        let stats = machine.stats(0);
        others.push((answers, stats.values, stats.bytes, stats.executed));
        if look_ahead == LookAhead::Published {
            Rc::<RefCell<Vec<Op>>>::clone(&followed).replace(found.take());
        }
    }
    assert!(others.windows(2).all(|pair| pair[0] == pair[1]), "{others:?}");
    followed.take()
}

#[test]
fn what_ends_a_product_runs_with_it() {
    let steps = [product(4), last(Op::Relu, 5, &[4]), free(&[4]), read(5, 1, 8)];
    assert_eq!(check(&steps), [Op::Relu]);
    // Freed by the instruction after it; with others between that have nothing to do with it.
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
        // Before, after, twice by the same.
        vec![product(4), op(Op::Neg, &[6], &[4], &[]), relu(), free(&[4]), read(5, 1, 8)],
        vec![product(4), op(Op::Relu, &[5], &[4], &[]), read(4, 1, 8), read(5, 2, 8)],
        vec![product(4), last(Op::ReluBackward, 5, &[4, 4]), read(5, 1, 8)],
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
    let row = [full(8, SIZE, 1), product(4), last(Op::ReluBackward, 5, &[4, 8]), read(4, 1, 8)];
    assert_eq!(check(&row), []);
}

#[test]
fn an_instruction_whose_slot_is_taken_fails_alone() {
    let steps = [product(4), last(Op::Relu, 3, &[4]), read(3, 1, 8), read(1, 2, 8)];
    assert_eq!(check(&steps), [Op::Relu]);
}
