//! Instructions that run in one pass over memory with those before them. The result of a product,
//! or of an elementwise row of a chain (column `chains`), is often read by a single instruction,
//! which consumes it. Where the engine can, it also applies that instruction to the value, and the
//! next ones; the first one's slot then counts the instructions that have been applied, and when
//! their turn comes the value moves from slot to slot.

use crate::engine::{Engine, EngineOperand, Follower};
use crate::frame::split_frame;
use crate::reuse;
use crate::table::SlotTable;
use gt_protocol::{Dtype, DtypeRule, Family, Id, Instruction, Meta, Op, Operand, wire};
use smallvec::SmallVec;

/// Maximum number of instructions between two that are joined: the gradients of a layer's
/// parameters come before that of the layer below.
const BETWEEN_MAX: usize = 8;
/// Maximum number of instructions that run with the first one.
const FOLLOWERS_MAX: usize = 15;

type Followers<'a, V> = SmallVec<[Follower<'a, V>; 2]>;

/// Returns true if looking for followers may be worth it: a product that takes several threads, or
/// a row of a chain.
pub fn may_begin<E: Engine>(engine: &E, op: Op, metas: &[Meta], is_large: bool) -> bool {
    let info = op.info();
    let [meta] = metas else { return false };
    let is_long = info.chains && meta.elements() >= engine.joined_elements_min();
    is_long || info.family == Family::Contract && is_large
}

/// Runs an instruction together with as many followers as the engine can join; returns their number
/// and the last one's result. The number of published instructions depends on time; no bit of a
/// result does.
pub fn run<E: Engine>(
    engine: &mut E,
    table: &SlotTable<E::Value>,
    (first, operands): (&Instruction<'_>, &[EngineOperand<'_, E::Value>]),
    reuse: u16,
    metas: &[Meta],
    next: &[u32],
) -> Option<(u8, E::Value)> {
    let followers = find(table, first, metas, next)?;
    if followers.is_empty() {
        return None;
    }
    let (joined, value) = engine.execute_joined(first, operands, reuse, &followers)?;
    debug_assert!((1..=followers.len()).contains(&joined), "{joined} of {}", followers.len());
    Some((u8::try_from(joined).ok()?, value))
}

/// The published instructions that may run with `first`.
fn find<'a, V>(
    table: &'a SlotTable<V>,
    first: &Instruction<'_>,
    metas: &[Meta],
    next: &'a [u32],
) -> Option<Followers<'a, V>> {
    let (&[mut made], &[meta]) = (&*first.outputs, metas) else { return None };
    let mut followers = Followers::new();
    // A slot may hold another value by the time of the follower.
    let mut changed: SmallVec<[Id; 16]> = SmallVec::new();
    let mut between = 0;
    let mut rest = next;
    while let Ok(Some((frame, after))) = split_frame(rest) {
        let mut one = Instruction::new(Op::Free);
        if wire::decode_into(frame, &mut one).is_err() {
            break;
        }
        rest = after;
        if one.op.info().chains && one.values().any(|id| id == made) {
            let Some(follower) = follower(table, one, made, &meta, &changed, after) else { break };
            made = follower.instruction.outputs[0];
            followers.push(follower);
            between = 0;
            if followers.len() == FOLLOWERS_MAX || first.op.info().family == Family::Contract {
                break;
            }
            continue;
        }
        between += 1;
        let mut named = one.values().chain(one.outputs.iter().copied());
        if between > BETWEEN_MAX || named.any(|id| id == made) {
            break;
        }
        changed.extend(one.outputs.iter().copied());
        if one.op == Op::Free {
            changed.extend(one.values());
        }
    }
    Some(followers)
}

/// `one` as a follower, if it reads the value `made` last and no value that is not there yet, and
/// its result has the same form.
fn follower<'a, V>(
    table: &'a SlotTable<V>,
    one: Instruction<'a>,
    made: Id,
    meta: &Meta,
    changed: &[Id],
    after: &[u32],
) -> Option<Follower<'a, V>> {
    let dying = one.consumes | reuse::freed_next(&one, after);
    let info = one.op.info();
    let is_float = info.dtype == DtypeRule::Float;
    if one.outputs.len() != 1 || meta.dtype == Dtype::Bool || is_float && !meta.dtype.is_float() {
        return None;
    }
    let mut from = 0;
    let mut operands = SmallVec::new();
    for (position, operand) in one.operands.iter().enumerate() {
        operands.push(match *operand {
            Operand::Value(id) if id == made => {
                from |= 1 << position;
                EngineOperand::Absent
            }
            Operand::Value(id) => {
                let held = table.held(id).ok()?;
                // A mask keeps the dtype.
                let has_dtype = [meta.dtype, Dtype::Bool].contains(&held.meta.dtype);
                let is_repeated = has_dtype && repeats(&held.meta, meta);
                if !is_repeated || changed.contains(&id) {
                    return None;
                }
                EngineOperand::Value(&held.value)
            }
            Operand::Scalar(scalar) if scalar.category() <= meta.dtype.category() => {
                EngineOperand::Scalar(scalar)
            }
            Operand::Scalar(_) | Operand::Absent => return None,
        });
    }
    (dying & from != 0).then_some(Follower { instruction: one, operands, from })
}

/// Returns true if a value's dimensions equal the other's, or broadcast to them.
fn repeats(one: &Meta, whole: &Meta) -> bool {
    let (own, sizes) = (one.dims.iter().rev(), whole.dims.iter().rev());
    one.dims.len() <= whole.dims.len()
        && own.zip(sizes).all(|(&own, &size)| own == size || own == 1)
}
