//! Execution of operators on shards, one file for each family: the operands that must be sharded or
//! whole, and the placements of the results.
//!
//! A [`Strategy`] describes one dimension of a mesh. A mesh of several dimensions takes one
//! strategy for each: an operator on shards is the same operator on smaller shapes. Strategies are
//! derived from an operand that is sharded or partial already; the planner computes their costs. An
//! operator without a strategy gets whole operands, which is slow and correct.
//!
//! Decompositions of operators that reduce a sharded dimension in several steps are in
//! `decomposition`.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "an operator without a rule here is gathered, which is slow and correct"
)]

mod contract;
mod create;
mod edges;
mod elementwise;
mod generated_strategies;
mod generic;
mod index;
mod loss;
mod normalize;
mod partial;
mod random;
mod reduce;
pub(super) mod spec;
mod view;
mod windows;
mod writes;

use crate::Family;
use crate::placement::{Placement, ShardRanges};
pub use generic::cuts_of_gradient;
use smallvec::SmallVec;
use spec::Driving;
pub use spec::{InputSpec, LocalAttr, OpSpec, Strategy};
pub use windows::windows_of_gradient;

/// All strategies that follow from the operands' placements. The last one always exists: everything
/// whole.
pub fn strategies(spec: &OpSpec<'_>) -> SmallVec<[Strategy; 4]> {
    let mut found: SmallVec<[Strategy; 4]> = SmallVec::new();
    for (position, arg) in spec.args.iter().enumerate() {
        let Some(meta) = arg.meta else { continue };
        let strategy = match arg.placement {
            Placement::Replicate => None,
            Placement::Partial(reduce_op) => partial::partial(spec, position, *reduce_op),
            Placement::Shard { dim, ranges } => meta.dims.get(*dim).and_then(|&size| {
                generated_strategies::TABLE.get(spec.op.place())?(
                    spec,
                    Driving { position, dim: *dim, size, ranges },
                )
            }),
        };
        if let Some(strategy) = strategy.filter(|strategy| !found.contains(strategy)) {
            found.push(strategy);
        }
    }
    found.push(spec.whole());
    found
}

/// Strategy that creates the shards of dimension `dim` of a result without operands; `None` where
/// the result is created whole and then sharded.
pub fn made(spec: &OpSpec<'_>, dim: usize, ranges: &ShardRanges) -> Option<Strategy> {
    match spec.op.info().family {
        Family::Random => random::made(spec, dim, ranges),
        Family::Create => create::made(spec, dim, ranges),
        _ => None,
    }
}
