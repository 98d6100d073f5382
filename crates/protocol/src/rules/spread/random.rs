//! A random number depends on its position in the whole tensor: each member draws its own box of
//! it.

use super::spec::{Driving, LocalAttr, OpSpec, Strategy, cut};
use crate::placement::ShardRanges;
use smallvec::smallvec;

pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let mut strategy = spec.alike(driving, driving.dim)?;
    strategy.local_attrs.push(random_box(spec, driving.dim, driving.ranges)?);
    Some(strategy)
}

pub(super) fn made(spec: &OpSpec<'_>, dim: usize, ranges: &ShardRanges) -> Option<Strategy> {
    let attr = spec.op.info().attr_index("size")?;
    let mut strategy = spec.whole();
    strategy.output_specs = smallvec![cut(dim, ranges)];
    strategy.local_attrs = smallvec![
        LocalAttr::Size { attr, entry: dim, ranges: ranges.clone() },
        random_box(spec, dim, ranges)?,
    ];
    Some(strategy)
}

/// A box has one interval for each dimension.
fn random_box(spec: &OpSpec<'_>, dim: usize, ranges: &ShardRanges) -> Option<LocalAttr> {
    let info = spec.op.info();
    let (global, start) = (info.attr_index("global")?, info.attr_index("start")?);
    let boxes = ranges.iter().all(|intervals| intervals.len() <= 1);
    boxes.then(|| LocalAttr::Box { global, start, dim, ranges: ranges.clone() })
}
