//! Local unless a normalised dimension is cut (see `decomposition`); the weights' gradients are partial sums.

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
    // A cut of a parameter says nothing of the rows.
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
