//! Instructions of workers, for tests of the lineage.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file takes what it needs")]

use gt_protocol::wire;
use gt_protocol::{Attr, Dims, Dtype, Id, Instruction, Op, Operand, Scalar};

pub fn encoded(instruction: &Instruction<'_>) -> Vec<u32> {
    let mut words = Vec::new();
    wire::encode(instruction, &mut words).unwrap();
    words
}

fn defining(op: Op, tag: u32, out: u32, operands: &[u32]) -> Instruction<'static> {
    let mut word = Instruction::new(op);
    word.tag = tag;
    word.outputs.push(Id::slot(out));
    word.operands.extend(operands.iter().map(|&slot| Operand::Value(Id::slot(slot))));
    word
}

pub fn session(id: i64) -> Instruction<'static> {
    let mut word = Instruction::new(Op::Session);
    word.attrs.push(Attr::Int(id));
    word
}

pub fn free(slots: &[u32]) -> Instruction<'static> {
    let mut word = Instruction::new(Op::Free);
    word.operands.extend(slots.iter().map(|&slot| Operand::Value(Id::slot(slot))));
    word
}

pub fn full(tag: u32, out: u32, value: i64) -> Instruction<'static> {
    let mut word = defining(Op::Full, tag, out, &[]);
    let value = Attr::Scalar(Scalar::Int(value));
    word.attrs.extend([Attr::Ints(Dims::new(&[1]).unwrap()), value, Attr::Dtype(Dtype::I64)]);
    word
}

pub fn add(tag: u32, out: u32, operands: [u32; 2]) -> Instruction<'static> {
    defining(Op::Add, tag, out, &operands)
}

/// Stands for a view: its result has other strides.
pub fn neg(tag: u32, out: u32, operand: u32) -> Instruction<'static> {
    defining(Op::Neg, tag, out, &[operand])
}

pub fn read(slot: u32, request: i64) -> Instruction<'static> {
    let mut word = Instruction::new(Op::Read);
    word.operands.push(Operand::Value(Id::slot(slot)));
    word.attrs.extend([request, 0, 1].map(Attr::Int));
    word
}

pub fn receive(tag: u32, out: u32, (peer, message): (i64, i64)) -> Instruction<'static> {
    let mut word = defining(Op::Receive, tag, out, &[]);
    word.attrs.extend([Attr::Int(peer), Attr::Int(message)]);
    word.attrs.extend([Attr::Ints(Dims::new(&[1]).unwrap()), Attr::Dtype(Dtype::I64)]);
    word
}

pub fn send(tag: u32, slot: u32, (peer, message): (i64, i64)) -> Instruction<'static> {
    let mut word = Instruction::new(Op::Send);
    word.tag = tag;
    word.operands.push(Operand::Value(Id::slot(slot)));
    word.attrs.extend([Attr::Int(peer), Attr::Int(message)]);
    word
}

pub fn all_reduce(
    tag: u32,
    out: u32,
    operand: u32,
    (group, message): (&[i64], i64),
) -> Instruction<'static> {
    let mut word = defining(Op::AllReduce, tag, out, &[operand]);
    word.attrs.extend([Attr::List(group.into()), Attr::Choice(0), Attr::Int(message)]);
    word
}

/// A reduction of several values in their slots.
pub fn all_reduce_in_place(
    tag: u32,
    slots: &[u32],
    (group, message): (&[i64], i64),
) -> Instruction<'static> {
    let mut word = Instruction::new(Op::AllReduceCoalesced);
    word.tag = tag;
    word.operands.extend(slots.iter().map(|&slot| Operand::Value(Id::slot(slot))));
    let bytes = vec![8; slots.len()].into_boxed_slice();
    word.attrs.extend([
        Attr::List(group.into()),
        Attr::Choice(0),
        Attr::List(bytes),
        Attr::Int(message),
    ]);
    word
}

/// Numbers from a seed.
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}
