//! Reuse of operands' buffers by results, and the metadata of results before they are computed.

use crate::table::SlotTable;
use gt_protocol::dtype::Category;
use gt_protocol::integer::to_usize;
use gt_protocol::rules::RuleArg;
use gt_protocol::{Dims, Dtype, DtypeRule, Family, Id, Instruction, Meta, Op, Operand};
use smallvec::SmallVec;

/// Number of words before the list of a `free`: header and count.
const FREE_WORDS_BEFORE: usize = 4;
/// Number of values of a `free` that are searched: in a run of frees the first ones belong to the
/// instruction before it.
const FREE_SLOTS_SEARCHED_MAX: usize = 8;

/// Returns true if the result of `op` may be a view of operand 0's memory.
pub fn aliases(op: Op) -> bool {
    op.info().view.is_some()
}

/// Bit mask of operands whose buffer a result may take, among those that the engine can overwrite:
/// they are not read again, nothing else shares their memory, and a result has their shape and
/// dtype. They are contiguous, as every fresh result is. The visible part of the stream depends on
/// time; the bits and strides of results do not.
pub fn reusable<V>(
    table: &SlotTable<V>,
    instruction: &Instruction<'_>,
    in_place: u16,
    next: &[u32],
    results: &[Meta],
) -> u16 {
    let dying = (instruction.consumes | freed_next(instruction, next)) & in_place;
    if dying == 0 {
        return 0;
    }
    let mut reuse = 0;
    for (position, operand) in instruction.operands.iter().take(16).enumerate() {
        let bit = 1 << position;
        if let Operand::Value(id) = operand
            && dying & bit != 0
            && let Ok(held) = table.held(*id)
            && held.contiguous
            && table.is_alone(held)
            && results.contains(&held.meta)
            && (elementwise(instruction.op) || once(instruction, *id))
        {
            reuse |= bit;
        }
    }
    reuse
}

/// Metadata of the results; empty where the rules cannot derive it from the operands' metadata.
#[inline]
pub fn results<V>(table: &SlotTable<V>, instruction: &Instruction<'_>) -> SmallVec<[Meta; 2]> {
    let mut metas = SmallVec::new();
    match unchanged(table, instruction) {
        Some(meta) => metas.push(*meta),
        None => metas.extend(inferred(table, instruction).into_iter().flatten()),
    }
    metas
}

fn inferred<V>(table: &SlotTable<V>, instruction: &Instruction<'_>) -> Option<SmallVec<[Meta; 2]>> {
    let mut args: SmallVec<[RuleArg<'_>; 4]> = SmallVec::new();
    for operand in &instruction.operands {
        args.push(match operand {
            Operand::Absent => RuleArg::Absent,
            Operand::Scalar(scalar) => RuleArg::Scalar(*scalar),
            Operand::Value(id) => RuleArg::Value(&table.held(*id).ok()?.meta),
        });
    }
    gt_protocol::rules::infer(instruction.op, &args, &instruction.attrs).ok()
}

/// The metadata of an elementwise result that equals its operands', found by one comparison: the
/// most common case, in which the rules would take longer than the rest of a step.
fn unchanged<'a, V>(table: &'a SlotTable<V>, instruction: &Instruction<'_>) -> Option<&'a Meta> {
    let info = instruction.op.info();
    // The condition's metadata does not determine that of the chosen elements.
    if info.family != Family::Elementwise || !info.attrs.is_empty() || info.first_selected() > 0 {
        return None;
    }
    let mut found: Option<&Meta> = None;
    let mut highest: Option<Category> = None;
    for operand in &instruction.operands {
        match (operand, found) {
            (Operand::Absent, _) => return None,
            (Operand::Scalar(value), _) => highest = highest.max(Some(value.category())),
            (Operand::Value(id), None) => found = Some(&table.held(*id).ok()?.meta),
            (Operand::Value(id), Some(meta)) => {
                if table.held(*id).ok()?.meta != *meta {
                    return None;
                }
            }
        }
    }
    let meta = found?;
    let keeps = match info.dtype {
        // Bools may become numbers, as in square.
        DtypeRule::First | DtypeRule::Promote => meta.dtype != Dtype::Bool,
        DtypeRule::Float => meta.dtype.is_float(),
        DtypeRule::Bool
        | DtypeRule::Family
        | DtypeRule::Sum
        | DtypeRule::Mean
        | DtypeRule::Truth
        | DtypeRule::Index => false,
    };
    let fits = highest.is_none_or(|category| category <= meta.dtype.category());
    (keeps && fits).then_some(meta)
}

/// Bit mask of operands that the next instruction frees. Only published words can be seen: a worker
/// that has caught up allocates instead.
pub fn freed_next(instruction: &Instruction<'_>, next: &[u32]) -> u16 {
    let Some(&first) = next.first() else { return 0 };
    if first & 0xffff != u32::from(Op::Free.info().code) {
        return 0;
    }
    let length = to_usize(first >> 16);
    let Some(freed) = next.get(FREE_WORDS_BEFORE..length) else { return 0 };
    let freed = &freed[..freed.len().min(FREE_SLOTS_SEARCHED_MAX)];
    let mut dying = 0;
    for (position, operand) in instruction.operands.iter().take(16).enumerate() {
        if let Operand::Value(id) = operand
            && id.as_slot().is_some_and(|slot| freed.contains(&slot))
        {
            dying |= 1 << position;
        }
    }
    dying
}

/// Returns true for an elementwise operator: it reads each element before it writes it, so an
/// operand may occur twice.
fn elementwise(op: Op) -> bool {
    op.info().family == Family::Elementwise
}

fn once(instruction: &Instruction<'_>, id: Id) -> bool {
    instruction.values().filter(|&other| other == id).count() == 1
}

/// `dims` with another size in one dimension; `None` where there is no such dimension.
pub fn with_size(dims: &Dims, dim: usize, size: i64) -> Option<Dims> {
    let mut dims = *dims;
    *dims.as_mut_slice().get_mut(dim)? = size;
    Some(dims)
}
