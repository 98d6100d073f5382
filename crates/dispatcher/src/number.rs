//! Counts and places as numbers of another width. What does not fit is our own mistake: it ends here, not as a wrong number.

/// A count of what is in memory, or a place in it.
pub(crate) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or_else(|_| unreachable!("a count of {count}"))
}

/// A dimension's number or a count of dimensions, as attributes have it.
pub(crate) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or_else(|_| unreachable!("a count of {count}"))
}

/// The place of a worker, a slot or a site in a list.
pub(crate) fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or_else(|_| unreachable!("a place of {number}"))
}
