//! A product that runs with the instruction which alone reads its result: one pass over the result less. What that would do has
//! been done to the value in the product's slot, and when its turn comes the value goes on to its own.

use crate::engine::{Engine, EngineOperand};
use crate::frame::split_frame;
use crate::reuse;
use crate::table::SlotTable;
use gt_protocol::{Family, Id, Instruction, Meta, Op, Operand, wire};
use smallvec::SmallVec;

/// Instructions between the two: the gradients of a layer's parameters come before that of the layer below.
const BETWEEN_MAX: usize = 8;

/// An instruction whose first operand is a product's result, which ends with it.
#[derive(Clone, Copy, Debug)]
struct Follower {
    op: Op,
    /// Its second operand, of the metadata of the first.
    other: Option<Id>,
}

/// Whether a product may run with it: it computes each element from one of each operand, exactly.
fn may_follow(op: Op) -> bool {
    matches!(op, Op::Relu | Op::ReluBackward)
}

/// The result of a product and of the instruction that follows it, which is named: where the engine computes both in one.
pub fn run<E: Engine>(
    engine: &mut E,
    table: &SlotTable<E::Value>,
    (product, operands): (&Instruction<'_>, &[EngineOperand<'_, E::Value>]),
    metas: &[Meta],
    next: &[u32],
) -> Option<(Op, E::Value)> {
    let follower = find(table, product, metas, next)?;
    let other = match follower.other {
        Some(id) => Some(&table.held(id).ok()?.value),
        None => None,
    };
    let value = engine.execute_followed(product, operands, follower.op, other)?;
    Some((follower.op, value))
}

/// The instruction that `product` may run with, of those that are published. How many of them are depends on time: both ways
/// give the same bits.
fn find<V>(
    table: &SlotTable<V>,
    product: &Instruction<'_>,
    metas: &[Meta],
    next: &[u32],
) -> Option<Follower> {
    let (&[made], &[meta]) = (&*product.outputs, metas) else { return None };
    if product.op.info().family != Family::Contract {
        return None;
    }
    // What is in a slot now may be another value by then.
    let mut changed: SmallVec<[Id; 16]> = SmallVec::new();
    let mut one = Instruction::new(Op::Free);
    let mut rest = next;
    for _ in 0..=BETWEEN_MAX {
        let (frame, after) = split_frame(rest).ok()??;
        wire::decode_into(frame, &mut one).ok()?;
        if may_follow(one.op) && one.operands.first() == Some(&Operand::Value(made)) {
            return follower(table, &one, &meta, &changed, after);
        }
        if one.values().chain(one.outputs.iter().copied()).any(|id| id == made) {
            return None;
        }
        changed.extend(one.outputs.iter().copied());
        if one.op == Op::Free {
            changed.extend(one.values());
        }
        rest = after;
    }
    None
}

fn follower<V>(
    table: &SlotTable<V>,
    one: &Instruction<'_>,
    meta: &Meta,
    changed: &[Id],
    after: &[u32],
) -> Option<Follower> {
    let dies = (one.consumes | reuse::freed_next(one, after)) & 1 != 0;
    if !dies || one.outputs.len() != 1 {
        return None;
    }
    let other = match *one.operands {
        [_] => None,
        [_, Operand::Value(other)] => {
            let is_there = table.held(other).is_ok_and(|held| held.meta == *meta);
            (is_there && !changed.contains(&other)).then_some(other).map(Some)?
        }
        _ => return None,
    };
    Some(Follower { op: one.op, other })
}

/// The slot of the instruction's first operand, where that is its result already.
#[inline]
pub fn applied<V>(table: &SlotTable<V>, instruction: &Instruction<'_>) -> Option<Id> {
    if !may_follow(instruction.op) {
        return None;
    }
    let &Operand::Value(id) = instruction.operands.first()? else { return None };
    (table.held(id).ok()?.applied == Some(instruction.op)).then_some(id)
}
