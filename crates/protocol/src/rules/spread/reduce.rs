//! A reduction over other dimensions is local; over the sharded one its result is partial where the
//! reduction is known.

use super::spec::{Driving, OpSpec, Strategy, cut, normal};
use crate::Attr;
use crate::placement::Placement;
use smallvec::{SmallVec, smallvec};

/// The dimensions that are reduced.
pub(super) fn reduced_dims(spec: &OpSpec<'_>) -> Option<SmallVec<[usize; 8]>> {
    let rank = spec.rank(0)?;
    match spec.attr("dim") {
        Attr::Absent => Some((0..rank).collect()),
        Attr::Int(dim) => Some(smallvec![normal(*dim, rank)?]),
        Attr::Ints(dims) if dims.is_empty() => Some((0..rank).collect()),
        Attr::Ints(dims) => dims.iter().map(|&dim| normal(dim, rank)).collect(),
        _ => None,
    }
}

pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dims = reduced_dims(spec)?;
    if !dims.contains(&driving.dim) {
        let before = dims.iter().filter(|&&dim| dim < driving.dim).count();
        let stays = spec.out_rank() == spec.rank(0);
        let to = if stays { driving.dim } else { driving.dim - before };
        // `argmax` without a dimension returns an index into the whole tensor.
        return spec.alike(driving, to);
    }
    let info = spec.op.info();
    // A member without elements has no maximum.
    let fits = !info.nonempty || driving.ranges.sizes().all(|size| size > 0);
    let combined = info.combines.filter(|_| fits)?;
    Some(spec.strategy([cut(driving.dim, driving.ranges)], [Placement::Partial(combined)]))
}
