//! Look-ups: local along the dimensions without an index, and along those of the indices.

use super::spec::{Driving, LocalAttr, OpSpec, Strategy, cut};
use crate::Attr;
use crate::placement::{Placement, ReduceOp};
use smallvec::SmallVec;

const SUM: Placement = Placement::Partial(ReduceOp::Sum);

pub(super) fn embedding(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let at = |dim: usize| cut(dim, driving.ranges);
    match (driving.position, driving.dim) {
        (0, 0) => masked(spec, driving, spec.strategy([at(0)], [SUM])),
        (0, _) => Some(spec.strategy([at(1)], [at(spec.out_rank()?.checked_sub(1)?)])),
        (_, dim) => Some(spec.strategy([Placement::Replicate, at(dim)], [at(dim)])),
    }
}

pub(super) fn embedding_backward(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let here = || cut(driving.dim, driving.ranges);
    if driving.dim < spec.rank(1)? {
        return Some(spec.strategy([here(), here()], [SUM]));
    }
    Some(spec.strategy([here()], [cut(1, driving.ranges)]))
}

pub(super) fn index_select(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dim = spec.dim("dim", spec.rank(0)?)?;
    let at = |dim: usize| cut(dim, driving.ranges);
    match driving.position {
        0 if dim == driving.dim => masked(spec, driving, spec.strategy([at(dim)], [SUM])),
        0 => Some(spec.strategy([at(driving.dim)], [at(driving.dim)])),
        _ => (driving.dim == 0).then(|| spec.strategy([Placement::Replicate, at(0)], [at(dim)])),
    }
}

/// Strategy of a sort: the sorted dimension stays whole.
pub(super) fn sort(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dim = spec.dim("dim", spec.rank(0)?)?;
    if dim == driving.dim { None } else { spec.alike(driving, driving.dim) }
}

pub(super) fn gather(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dim = spec.dim("dim", spec.rank(0)?)?;
    let here = cut(driving.dim, driving.ranges);
    if driving.dim != dim {
        return spec.alike(driving, driving.dim);
    }
    if driving.position == 1 {
        return Some(spec.strategy([Placement::Replicate, here.clone()], [here]));
    }
    masked(spec, driving, spec.strategy([here], [SUM]))
}

/// Position of an advanced index's dimensions among those of its result.
pub(super) struct Picks {
    /// True for each dimension of the operand with an index, as far as there are index operands.
    picked: SmallVec<[bool; 8]>,
    /// Number of dimensions of the broadcast indices, and their first position in the result.
    pub shared: usize,
    pub at: usize,
}

impl Picks {
    pub fn new(spec: &OpSpec<'_>, first: usize) -> Option<Self> {
        let indices = spec.args.get(first..)?;
        let picked: SmallVec<[bool; 8]> = indices.iter().map(|arg| arg.meta.is_some()).collect();
        let shared = indices.iter().filter_map(|arg| Some(arg.meta?.dims.len())).max()?;
        let before = picked.iter().position(|&picked| picked)?;
        let run = picked.iter().skip(before).take_while(|&&picked| picked).count();
        let adjacent = run == picked.iter().filter(|&&picked| picked).count();
        Some(Self { picked, shared, at: if adjacent { before } else { 0 } })
    }

    /// Position in the result of an operand's dimension without an index.
    pub fn kept(&self, dim: usize) -> Option<usize> {
        if self.picked.get(dim) == Some(&true) {
            return None;
        }
        let before = dim - self.picked.iter().take(dim).filter(|&&picked| picked).count();
        Some(if before < self.at { before } else { before + self.shared })
    }

    /// Number of dimensions of the result, for an operand of `rank`.
    pub fn part(&self, rank: usize) -> usize {
        let picked = self.picked.iter().filter(|&&picked| picked).count();
        rank.saturating_sub(picked) + self.shared
    }

    /// Returns true if a dimension of the result comes from the indices.
    pub fn among_shared(&self, dim: usize) -> bool {
        (self.at..self.at + self.shared).contains(&dim)
    }
}

/// Advanced indexing: local along dimensions without an index and along those of the indices; where
/// an index looks up in a sharded dimension, each member looks up in its own shard.
pub(super) fn index(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let picks = Picks::new(spec, 1)?;
    let here = cut(driving.dim, driving.ranges);
    if driving.position == 0 {
        return match picks.kept(driving.dim) {
            Some(to) => Some(spec.strategy([here], [cut(to, driving.ranges)])),
            None => along(spec, driving, spec.strategy([here], [SUM])),
        };
    }
    let from_end = spec.rank(driving.position)? - driving.dim;
    let to = picks.at + picks.shared - from_end;
    // A sharded dimension of size 1 may be a broadcast one.
    if spec.outputs.first()?.dims.get(to) != Some(&driving.size) {
        return None;
    }
    let mut input_specs = spec.aligned(from_end, driving);
    *input_specs.first_mut()? = Placement::Replicate;
    Some(spec.strategy(input_specs, [cut(to, driving.ranges)]))
}

/// Strategy like [`masked`], along one of several dimensions with an index.
pub(super) fn along(
    spec: &OpSpec<'_>,
    driving: Driving<'_>,
    strategy: Strategy,
) -> Option<Strategy> {
    let attr = spec.op.info().attr_index("along")?;
    let mut strategy = masked(spec, driving, strategy)?;
    strategy.local_attrs.push(LocalAttr::Value { attr, value: i64::try_from(driving.dim).ok()? });
    Some(strategy)
}

/// Each member looks up in its own shard; elements outside of it count as zero, so that the sum is
/// the result.
pub(super) fn masked(
    spec: &OpSpec<'_>,
    driving: Driving<'_>,
    mut strategy: Strategy,
) -> Option<Strategy> {
    let info = spec.op.info();
    let (start, total) = (info.attr_index("start")?, info.attr_index("total")?);
    // An operand that is a shard of something larger already keeps its own range.
    let is_shard = *spec.attr("total") != Attr::Absent;
    if is_shard || driving.ranges.iter().any(|intervals| intervals.len() > 1) {
        return None;
    }
    let ranges = driving.ranges.clone();
    strategy.local_attrs.push(LocalAttr::Range { start, total, size: driving.size, ranges });
    Some(strategy)
}

/// The offset of the diagonal moves with the shard's first row or column.
pub(super) fn triangle(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let rank = spec.rank(0)?;
    let mut strategy = spec.alike(driving, driving.dim)?;
    if driving.dim + 2 >= rank {
        if driving.ranges.iter().any(|intervals| intervals.len() > 1) {
            return None;
        }
        let attr = spec.op.info().attr_index("diagonal")?;
        let factor = if driving.dim + 2 == rank { 1 } else { -1 };
        strategy.local_attrs.push(LocalAttr::Shift {
            attr,
            factor,
            ranges: driving.ranges.clone(),
        });
    }
    Some(strategy)
}
