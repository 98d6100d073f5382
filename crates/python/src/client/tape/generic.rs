//! Gradient information in the attributes of a generic instruction, which names its operator
//! there.

use gt_protocol::{Attr, Family, Op};
use smallvec::SmallVec;

/// An attribute that is a list; empty where it is absent.
pub(crate) fn listed<'a>(op: Op, attrs: &'a [Attr], name: &str) -> &'a [i64] {
    let place = op.info().attr_index(name);
    match place.and_then(|place| attrs.get(place)) {
        Some(Attr::List(list)) => list,
        Some(Attr::Absent) | None => &[],
        other => unreachable!("{name} of {} is {other:?}", op.info().name),
    }
}

/// The results that the gradient reads: none where the instruction is a gradient itself.
pub(crate) fn saved_results(op: Op, attrs: &[Attr]) -> SmallVec<[u32; 2]> {
    let is_generic = op.info().family == Family::Generic;
    if !is_generic || !listed(op, attrs, "wanted").is_empty() {
        return SmallVec::new();
    }
    listed(op, attrs, "saves").iter().filter_map(|&place| u32::try_from(place).ok()).collect()
}

/// Number of trailing operands that are results which a gradient reads; 0 unless the instruction is
/// a gradient.
pub(crate) fn saved_operands(op: Op, attrs: &[Attr]) -> usize {
    if listed(op, attrs, "wanted").is_empty() { 0 } else { listed(op, attrs, "saves").len() }
}
