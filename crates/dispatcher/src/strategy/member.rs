//! Attributes and operands of an instruction for one member of a mesh: the size of its shard, the
//! start of it, operands that only the first member has.

use super::choose::Choice;
use gt_protocol::placement::{Mesh, ShardRanges};
use gt_protocol::rules::spread::LocalAttr;
use gt_protocol::{Attr, Dims, Meta, Scalar};
use smallvec::SmallVec;

/// The attributes for the member at `place` of the mesh.
pub(crate) fn local_attrs(
    (attrs, outputs): (&[Attr], &[Meta]),
    choice: &Choice,
    mesh: &Mesh,
    place: usize,
) -> SmallVec<[Attr; 2]> {
    let mut attrs: SmallVec<[Attr; 2]> = attrs.iter().cloned().collect();
    for (axis, local) in &choice.local {
        apply(&mut attrs, local, mesh.coordinate(place, *axis), outputs);
    }
    attrs
}

/// Returns true if the member at `place` does not get that operand.
pub(crate) fn withheld(choice: &Choice, mesh: &Mesh, place: usize, operand: usize) -> bool {
    choice.local.iter().any(|(axis, local)| {
        *local == LocalAttr::First { operand } && mesh.coordinate(place, *axis) != 0
    })
}

fn apply(attrs: &mut SmallVec<[Attr; 2]>, local: &LocalAttr, member: usize, outputs: &[Meta]) {
    match local {
        LocalAttr::Size { attr, entry, ranges } => {
            // Inferred sizes (-1) are replaced by the whole's: they cannot be inferred for an empty
            // shard.
            if let (Some(Attr::Ints(sizes)), Some(whole)) = (attrs.get_mut(*attr), outputs.first())
            {
                for (size, known) in sizes.as_mut_slice().iter_mut().zip(whole.dims.iter()) {
                    *size = if *size < 0 { *known } else { *size };
                }
            }
            set_entry(attrs, *attr, *entry, ranges.size(member));
        }
        LocalAttr::Window { start, end, step, ranges } => {
            window(attrs, (*start, *end), *step, (ranges, member));
        }
        LocalAttr::Ends { attr, entry, ranges } => {
            let intervals = ranges.of(member);
            let mut intervals = intervals.iter().filter(|one| !one.is_empty());
            let first = intervals.next();
            let last = intervals.next_back().or(first);
            if first.is_none_or(|one| one.start > 0) {
                set_entry(attrs, *attr, *entry, 0);
            }
            if last.is_none_or(|one| one.end < ranges.total()) {
                set_entry(attrs, *attr, entry + 1, 0);
            }
        }
        LocalAttr::Shift { attr, factor, ranges } => {
            let Some(Attr::Int(value)) = attrs.get_mut(*attr) else {
                unreachable!("attribute {attr} of {attrs:?} is shifted")
            };
            *value = value.saturating_add(factor.saturating_mul(begin(ranges, member)));
        }
        LocalAttr::Steps { start, end, step, ranges } => {
            let Some(Attr::Scalar(Scalar::Int(first))) = attrs.get(*start) else {
                unreachable!("steps of {attrs:?} begin at attribute {start}")
            };
            let begins = first + step * begin(ranges, member);
            set(attrs, *start, Attr::Scalar(Scalar::Int(begins)));
            set(attrs, *end, Attr::Scalar(Scalar::Int(begins + step * ranges.size(member))));
        }
        LocalAttr::Range { start, total, size, ranges } => {
            set(attrs, *start, Attr::Int(begin(ranges, member)));
            set(attrs, *total, Attr::Int(*size));
        }
        LocalAttr::Stated { attr, entry, ranges } => {
            let list = match attrs.get_mut(*attr) {
                Some(Attr::List(list)) => list.get_mut(*entry),
                _ => None,
            };
            let Some(size) = list else {
                unreachable!("size {entry} of attribute {attr} of {attrs:?}")
            };
            *size = ranges.size(member);
        }
        LocalAttr::Listed { attr, numbers } => {
            extend(attrs, *attr, numbers.get(member).map(AsRef::as_ref));
        }
        LocalAttr::Value { attr, value } => set(attrs, *attr, Attr::Int(*value)),
        LocalAttr::Box { global, start, dim, ranges } => {
            let whole = outputs.first().expect("an instruction that draws a box has a result").dims;
            place_box(attrs, (*global, *start), whole, (*dim, begin(ranges, member)));
        }
        LocalAttr::First { .. } => {}
    }
}

/// Appends the member's numbers to the list in attribute `attr`, which may be absent.
fn extend(attrs: &mut SmallVec<[Attr; 2]>, attr: usize, numbers: Option<&[i64]>) {
    let Some(numbers) = numbers else { unreachable!("a list for each member of attribute {attr}") };
    let known: &[i64] = match attrs.get(attr) {
        Some(Attr::List(list)) => list,
        _ => &[],
    };
    let list = known.iter().chain(numbers).copied().collect();
    set(attrs, attr, Attr::List(list));
}

/// Part of the member's shard that a slice of the whole, from `start` to `end` in steps, takes.
fn window(
    attrs: &mut SmallVec<[Attr; 2]>,
    (start, end): (usize, usize),
    step: i64,
    (ranges, member): (&ShardRanges, usize),
) {
    let (total, intervals) = (ranges.total(), ranges.of(member));
    let bound = |attr: usize, default: i64| match attrs.get(attr) {
        Some(Attr::Int(bound)) if *bound < 0 => bound.saturating_add(total),
        Some(Attr::Int(bound)) => *bound,
        _ => default,
    };
    let before = |bound: i64| -> i64 {
        intervals.iter().map(|one| one.end.min(bound.max(one.start)) - one.start).sum()
    };
    let (first, last) = (bound(start, 0).max(0), bound(end, total));
    // The first index of the range that is not before the shard.
    let begins = intervals.first().map_or(0, |one| one.start);
    let phase = (begins - first).max(0).rem_euclid(step);
    let skipped = if phase == 0 { 0 } else { step - phase };
    let local = before(first).saturating_add(skipped);
    set(attrs, start, Attr::Int(local));
    set(attrs, end, Attr::Int(before(last).max(local)));
}

/// Sets the start of a random box's shard: `begins` in dimension `dim`.
fn place_box(
    attrs: &mut SmallVec<[Attr; 2]>,
    (global, start): (usize, usize),
    whole: Dims,
    (dim, begins): (usize, i64),
) {
    // The whole itself may be a box of something larger.
    if !matches!(attrs.get(start), Some(Attr::Ints(_))) {
        let zeros: SmallVec<[i64; 8]> = whole.iter().map(|_| 0).collect();
        set(attrs, global, Attr::Ints(whole));
        set(attrs, start, Attr::Ints(Dims::new(&zeros).expect("as many dimensions as the result")));
    }
    if let Some(Attr::Ints(dims)) = attrs.get_mut(start)
        && let Some(place) = dims.as_mut_slice().get_mut(dim)
    {
        *place += begins;
    }
}

/// Start of the member's interval; an empty one starts at the end of the dimension, which is valid.
fn begin(ranges: &ShardRanges, member: usize) -> i64 {
    ranges.of(member).first().map_or_else(|| ranges.total(), |interval| interval.start)
}

fn set(attrs: &mut SmallVec<[Attr; 2]>, at: usize, value: Attr) {
    if attrs.len() <= at {
        attrs.resize(at + 1, Attr::Absent);
    }
    if let Some(attr) = attrs.get_mut(at) {
        *attr = value;
    }
}

fn set_entry(attrs: &mut SmallVec<[Attr; 2]>, at: usize, entry: usize, value: i64) {
    let place = match attrs.get_mut(at) {
        Some(Attr::Ints(dims)) => dims.as_mut_slice().get_mut(entry),
        _ => None,
    };
    let Some(place) = place else { unreachable!("entry {entry} of attribute {at} of {attrs:?}") };
    *place = value;
}
