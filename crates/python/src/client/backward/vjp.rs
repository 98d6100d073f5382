//! The instruction that gives the gradients of all operands of another one, by the library that executes both.

use crate::client::tape::Node;
use gt_protocol::{Attr, Op};
use smallvec::SmallVec;

/// What ends the places of one derivative.
const END: i64 = -1;

/// The attributes of the product: the instruction's own, but for the operands at `places`, whose gradients it gives.
pub(super) fn attrs(
    op: Op,
    node: &Node,
    places: impl Iterator<Item = usize>,
) -> SmallVec<[Attr; 2]> {
    let (mut wanted, mut results) = (listed(op, node, "wanted").to_vec(), Vec::new());
    for place in places {
        wanted.push(signed(place));
        let meta = node.inputs.get(place).and_then(|input| input.meta.as_ref());
        let Some(meta) = meta else {
            unreachable!("operand {place} has a gradient and no metadata")
        };
        results.extend([i64::from(meta.dtype.code()), signed(meta.dims.len())]);
        results.extend_from_slice(meta.dims.as_slice());
    }
    wanted.push(END);
    let mut attrs: SmallVec<[Attr; 2]> = node.attrs.iter().cloned().collect();
    for (name, list) in [("wanted", wanted), ("results", results)] {
        attrs[place_of(op, name)] = Attr::List(list.into());
    }
    attrs
}

fn listed<'a>(op: Op, node: &'a Node, name: &str) -> &'a [i64] {
    match node.attrs.get(place_of(op, name)) {
        Some(Attr::List(list)) => list,
        other => unreachable!("{name} of {} is {other:?}", op.info().name),
    }
}

fn place_of(op: Op, name: &str) -> usize {
    let info = op.info();
    let Some(place) = info.attr_index(name) else { unreachable!("{} without {name}", info.name) };
    place
}

fn signed(value: usize) -> i64 {
    i64::try_from(value).expect("places and ranks are small")
}
