//! Elementwise operators: operands are sharded where they are aligned with the result's sharded
//! dimension.

use super::spec::{Driving, OpSpec, Strategy, cut};

pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let from_end = spec.rank(driving.position)? - driving.dim;
    let out_dim = spec.out_rank()?.checked_sub(from_end)?;
    for output in spec.outputs {
        // A sharded dimension of size 1 may be a broadcast one.
        if output.dims.len().checked_sub(from_end) != Some(out_dim)
            || output.dims.get(out_dim) != Some(&driving.size)
        {
            return None;
        }
    }
    let input_specs = spec.aligned(from_end, driving);
    Some(spec.strategy(input_specs, spec.outputs.iter().map(|_| cut(out_dim, driving.ranges))))
}
