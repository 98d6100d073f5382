//! Conversions of counts and indices between integer types. A value that does not fit is a bug of
//! ours and panics here, instead of becoming a wrong number.

use gt_protocol::{Id, Instruction};

/// A count or an index of something in memory.
pub(crate) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or_else(|_| unreachable!("a count of {count}"))
}

/// A dimension's index or a count of dimensions, as attributes have it.
pub(crate) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or_else(|_| unreachable!("a count of {count}"))
}

/// The slot of an operand or a result. An id that is no slot, which only a peer can send, becomes
/// the last slot: no session has it, so it is refused as unknown.
pub(crate) fn slot_of(id: Id) -> u32 {
    id.as_slot().unwrap_or(u32::MAX)
}

/// The slot of an instruction's first operand; the last slot where it has none.
pub(crate) fn first_slot(instruction: &Instruction<'_>) -> u32 {
    instruction.values().next().map_or(u32::MAX, slot_of)
}

/// The index of a worker, a slot or a site in a list.
pub(crate) fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or_else(|_| unreachable!("index {number} does not fit usize"))
}
