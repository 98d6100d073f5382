//! Writes by index tensors: local where the target is sharded. The source may be sharded as its
//! indices are: each member adds its part to its share of the target.

use super::index::{Picks, along, masked};
use super::spec::{Driving, OpSpec, Strategy, cut};
use crate::Dtype;
use crate::placement::{Placement, ReduceOp};

const SUM: Placement = Placement::Partial(ReduceOp::Sum);

/// Returns true if the writes are added. Writes that replace are not: of two to one element the
/// last one wins.
fn adds(spec: &OpSpec<'_>) -> bool {
    let sums = spec.term(spec.op.info().linear, 0).is_some();
    sums && spec.meta(0).is_some_and(|target| target.dtype != Dtype::Bool)
}

pub(super) fn scatter(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dim = spec.dim("dim", spec.rank(0)?)?;
    if dim != driving.dim {
        return spec.alike(driving, driving.dim);
    }
    let here = || cut(dim, driving.ranges);
    if driving.position == 0 {
        return masked(spec, driving, spec.strategy([here()], [here()]));
    }
    // The source may be larger than the index: its shards then differ from those of the part that
    // is read.
    let same = |position| {
        spec.meta(position).is_some_and(|meta| meta.dims.get(dim) == Some(&driving.size))
    };
    let shares = adds(spec) && same(1) && same(2);
    shares.then(|| spec.strategy([SUM, here(), here()], [SUM]))
}

/// Keeps a sharding of any dimension other than the one that is written along.
pub(super) fn scatter_reduce(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dim = spec.dim("dim", spec.rank(0)?)?;
    if dim == driving.dim {
        return None;
    }
    spec.alike(driving, driving.dim)
}

pub(super) fn index_add(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dim = spec.dim("dim", spec.rank(0)?)?;
    let at = |dim: usize| cut(dim, driving.ranges);
    match driving.position {
        0 if driving.dim == dim => masked(spec, driving, spec.strategy([at(dim)], [at(dim)])),
        0 | 2 if driving.dim != dim => {
            let whole = Placement::Replicate;
            Some(spec.strategy([at(driving.dim), whole, at(driving.dim)], [at(driving.dim)]))
        }
        _ => adds(spec).then(|| spec.strategy([SUM, at(0), at(dim)], [SUM])),
    }
}

pub(super) fn index_put(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let picks = Picks::new(spec, 2)?;
    let rank = spec.rank(0)?;
    let here = || cut(driving.dim, driving.ranges);
    if driving.position == 0 {
        let Some(to) = picks.kept(driving.dim) else {
            return along(spec, driving, spec.strategy([here()], [here()]));
        };
        let values = spec.aligned(picks.part(rank) - to, driving).get(1)?.clone();
        return Some(spec.strategy([here(), values], [here()]));
    }
    // Position of the sharded dimension in the written part.
    let from_end = spec.rank(driving.position)? - driving.dim;
    let end = if driving.position == 1 { picks.part(rank) } else { picks.at + picks.shared };
    let to = end.checked_sub(from_end)?;
    if !picks.among_shared(to) {
        let dim = (0..rank).find(|&dim| picks.kept(dim) == Some(to))?;
        let fits = spec.meta(0)?.dims.get(dim) == Some(&driving.size);
        return fits.then(|| {
            spec.strategy([cut(dim, driving.ranges), here()], [cut(dim, driving.ranges)])
        });
    }
    // A sharded dimension of size 1 may be a broadcast one.
    let from_end = picks.at + picks.shared - to;
    let size = |meta: &crate::Meta| {
        let dim = meta.dims.len().checked_sub(from_end)?;
        meta.dims.get(dim).copied()
    };
    let indices = spec.args.iter().skip(2).filter_map(|arg| size(arg.meta?));
    let mut expanded = indices.filter(|&size| size != 1);
    if !adds(spec) || expanded.next().unwrap_or(1) != driving.size {
        return None;
    }
    let values = spec.aligned(picks.part(rank) - to, driving).get(1)?.clone();
    let mut input_specs = spec.aligned(from_end, driving);
    *input_specs.get_mut(0)? = SUM;
    *input_specs.get_mut(1)? = values;
    Some(spec.strategy(input_specs, [SUM]))
}
