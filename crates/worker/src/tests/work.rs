//! Instructions that are worth several threads.

use crate::reuse;
use crate::table::SlotTable;
use crate::work::is_large;
use gt_protocol::{Dims, Dtype, Id, Instruction, Meta, Op, Operand};

fn check(op: Op, operands: &[&[i64]], expected: bool) {
    let mut table = SlotTable::default();
    let mut instruction = Instruction::new(op);
    for (slot, sizes) in (0..).zip(operands) {
        table.put(Id::slot(slot), (), Meta::new(Dtype::F32, Dims::new(sizes).unwrap()));
        instruction.operands.push(Operand::Value(Id::slot(slot)));
    }
    let results = reuse::results(&table, &instruction);
    assert_eq!(is_large(&table, &instruction, &results), expected, "{op:?} {operands:?}");
}

#[test]
fn large_is_what_takes_a_thread_far_longer_than_waking_another() {
    check(Op::Add, &[&[4], &[4]], false);
    check(Op::Add, &[&[512, 1023], &[512, 1023]], false);
    check(Op::Add, &[&[512, 1024], &[512, 1024]], true);
    check(Op::Add, &[&[512, 1], &[1, 1024]], true);
    check(Op::Matmul, &[&[8, 64], &[64, 64]], false);
    check(Op::Matmul, &[&[8, 784], &[784, 512]], false);
    check(Op::Matmul, &[&[64, 784], &[784, 512]], true);
    check(Op::Matmul, &[&[0, 784], &[784, 512]], false);
    check(Op::LogSoftmax, &[&[64, 10]], false);
}
