//! Local unless a normalised dimension is sharded (see `decomposition`); the weights' gradients are
//! partial sums.

use super::spec::{Driving, InputSpec, OpSpec, Strategy, cut};
use crate::Meta;
use crate::placement::{Placement, ReduceOp};

pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let rank = spec.rank(0)?;
    let Some(normalized) = spec.ints("normalized_shape") else {
        return (spec.dim("dim", rank)? != driving.dim)
            .then(|| spec.alike(driving, driving.dim))
            .flatten();
    };
    let is_data = |meta: &Meta| meta.dims.len() == rank;
    // A sharded parameter does not determine the sharding of rows.
    let rows = rank.checked_sub(normalized.len())?;
    if driving.dim >= rows || !is_data(spec.meta(driving.position)?) {
        return None;
    }
    let here = || cut(driving.dim, driving.ranges);
    let need = |arg: &InputSpec<'_>| arg.meta.filter(|meta| is_data(meta)).map(|_| here());
    let give = |meta: &Meta| if is_data(meta) { here() } else { Placement::Partial(ReduceOp::Sum) };
    Some(spec.strategy(
        spec.args.iter().map(|arg| need(arg).unwrap_or_default()),
        spec.outputs.iter().map(give),
    ))
}

/// Local where the channels are sharded: dimension 1 of operands with several dimensions, the only
/// one of operands with one number for each channel.
pub(super) fn channels(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let channel = |meta: &Meta| usize::from(meta.dims.len() > 1);
    let here = |meta: &Meta| cut(channel(meta), driving.ranges);
    let fits = |meta: &Meta| meta.dims.get(channel(meta)) == Some(&driving.size);
    let metas = || spec.args.iter().filter_map(|arg| arg.meta);
    if driving.dim != channel(spec.meta(driving.position)?) || !metas().all(fits) {
        return None;
    }
    Some(spec.strategy(
        spec.args.iter().map(|arg| arg.meta.map(here).unwrap_or_default()),
        spec.outputs.iter().map(here),
    ))
}
