//! The instruction that computes the gradients of all operands of another one, by the library that
//! executes both.

use crate::client::tape::Node;
use crate::client::tape::generic::{listed, saved_operands, saved_results};
use gt_protocol::integer::to_usize;
use gt_protocol::rules::spread::{cuts_of_gradient, windows_of_gradient};
use gt_protocol::{Attr, Op};
use smallvec::SmallVec;

/// Marks the end of the places of one derivative.
const END: i64 = -1;

/// The attributes of the vector-Jacobian product: the instruction's own, except that it computes
/// the gradients of the operands at `places`.
pub(super) fn attrs(
    op: Op,
    node: &Node,
    places: impl Iterator<Item = usize>,
) -> SmallVec<[Attr; 2]> {
    let places: SmallVec<[usize; 4]> = places.collect();
    let mut wanted = listed(op, &node.attrs, "wanted").to_vec();
    let mut results = Vec::new();
    for &place in &places {
        wanted.push(signed(place));
        let meta = node.inputs.get(place).and_then(|input| input.meta.as_ref());
        let Some(meta) = meta else {
            unreachable!("operand {place} has a gradient and no metadata")
        };
        results.extend([i64::from(meta.dtype.code()), signed(meta.dims.len())]);
        results.extend_from_slice(meta.dims.as_slice());
    }
    wanted.push(END);
    let saved = saved_results(op, &node.attrs);
    let saves: Vec<i64> = saved.iter().map(|&place| place.into()).collect();
    let saved: SmallVec<[usize; 2]> = saved.into_iter().map(to_usize).collect();
    let operands = (node.inputs.len(), saved_operands(op, &node.attrs));
    let cuts = listed(op, &node.attrs, "cuts");
    let cuts = cuts_of_gradient(cuts, operands, node.outputs.len(), &saved, &places);
    let windows = windows_of_gradient(listed(op, &node.attrs, "windows"), operands.0, &places);
    let mut attrs: SmallVec<[Attr; 2]> = node.attrs.iter().cloned().collect();
    set(op, &mut attrs, "wanted", Attr::List(wanted.into()));
    set(op, &mut attrs, "results", Attr::List(results.into()));
    for (name, list) in [("saves", saves.into()), ("cuts", cuts), ("windows", windows)] {
        let list: Box<[i64]> = list;
        set(op, &mut attrs, name, if list.is_empty() { Attr::Absent } else { Attr::List(list) });
    }
    attrs
}

fn set(op: Op, attrs: &mut SmallVec<[Attr; 2]>, name: &str, value: Attr) {
    let info = op.info();
    let Some(place) = info.attr_index(name) else { unreachable!("{} without {name}", info.name) };
    // Attributes that were added to the row after its release may be missing.
    if place >= attrs.len() {
        attrs.resize(place + 1, Attr::Absent);
    }
    attrs[place] = value;
}

fn signed(value: usize) -> i64 {
    i64::try_from(value).expect("places and ranks are small")
}
