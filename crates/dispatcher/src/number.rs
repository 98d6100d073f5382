//! Counts and places as numbers of another width. What does not fit is our own mistake: it ends here, not as a wrong number.

use gt_protocol::{Id, Instruction};

/// A count of what is in memory, or a place in it.
pub(crate) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or_else(|_| unreachable!("a count of {count}"))
}

/// A dimension's number or a count of dimensions, as attributes have it.
pub(crate) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or_else(|_| unreachable!("a count of {count}"))
}

/// The slot that an operand or a result names. What is no slot, which only a peer's mistake makes, stands for the
/// last one: no session has it, so it is refused as unknown.
pub(crate) fn slot_of(id: Id) -> u32 {
    id.as_slot().unwrap_or(u32::MAX)
}

/// The slot of an instruction's first operand; the same where it has none.
pub(crate) fn first_slot(instruction: &Instruction<'_>) -> u32 {
    instruction.values().next().map_or(u32::MAX, slot_of)
}

/// The place of a worker, a slot or a site in a list.
pub(crate) fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or_else(|_| unreachable!("a place of {number}"))
}
