//! Views keep a sharding where possible: of a dimension that stays, is merged with those after it,
//! or is split.

use super::edges::INTERVALS_MAX;
use super::spec::{Driving, LocalAttr, OpSpec, Strategy, cut, normal};
use crate::meta::DIMS_MAX;
use crate::placement::{Interval, Intervals, Placement, ShardRanges};
use crate::rules::infer::infer;
use crate::rules::outputs::RuleArg;
use crate::rules::strided::ViewCall;
use crate::{Dims, Meta};
use smallvec::SmallVec;

/// A dimension that a view passes on unchanged, whatever its size: the strides of the result show
/// it.
pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let view = spec.op.info().strided.as_ref()?;
    let (from, result) = (spec.meta(0)?, spec.outputs.first()?.dims);
    // Strides of the result where the driving dimension has one stride and all others another.
    let place = |along: i64, others: i64| {
        let mut strides = Dims::new([others; DIMS_MAX].get(..from.dims.len())?)?;
        *strides.as_mut_slice().get_mut(driving.dim)? = along;
        let sizes = &from.dims;
        view.place(&ViewCall { attrs: spec.attrs, sizes, strides: &strides, result: &result })
    };
    let (steps, offset) = place(1, 0)?;
    let to = steps.iter().position(|&step| step == 1)?;
    // A diagonal runs along several dimensions at once.
    if place(0, 1)?.0.get(to) != Some(&0) {
        return None;
    }
    let once = offset == 0 && steps.iter().filter(|step| **step != 0).count() == 1;
    let resized = |size| {
        let part = Meta::new(from.dtype, with_size(from.dims, driving.dim, size)?);
        let outputs = infer(spec.op, &[RuleArg::Value(&part)], spec.attrs).ok()?;
        (outputs.first()?.dims == with_size(result, to, size)?).then_some(())
    };
    // Checked with other sizes, too: a larger one, and an empty one.
    resized(driving.size + 1)?;
    resized(0)?;
    if once { spec.alike(driving, to) } else { None }
}

fn with_size(mut dims: Dims, dim: usize, size: i64) -> Option<Dims> {
    *dims.as_mut_slice().get_mut(dim)? = size;
    Some(dims)
}

pub(super) fn reshape(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let to = spec.outputs.first()?.dims;
    let (dim, ranges) = regrouped(&spec.meta(0)?.dims, &to, driving.dim, driving.ranges)?;
    Some(resized(spec, driving, dim, ranges))
}

pub(super) fn expand(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let to = spec.outputs.first()?.dims;
    let dim = driving.dim + to.len().checked_sub(spec.rank(0)?)?;
    // A sharded dimension of size 1 may be a broadcast one.
    let stays = to.get(dim) == Some(&driving.size);
    stays.then(|| resized(spec, driving, dim, driving.ranges.clone()))
}

pub(super) fn cat(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    if spec.dim("dim", spec.rank(0)?)? == driving.dim {
        return joined(spec, driving);
    }
    spec.alike(driving, driving.dim)
}

/// Every dimension but the last keeps its size.
pub(super) fn bitcast(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let stays = spec.meta(0)?.dims == spec.outputs.first()?.dims;
    if stays || driving.dim + 1 < spec.rank(0)? { spec.alike(driving, driving.dim) } else { None }
}

pub(super) fn stack(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let dim = spec.dim("dim", spec.rank(0)? + 1)?;
    spec.alike(driving, driving.dim + usize::from(dim <= driving.dim))
}

pub(super) fn flip(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let rank = spec.rank(0)?;
    let dims = spec.ints("dims")?;
    let flipped = dims.iter().any(|&dim| normal(dim, rank) == Some(driving.dim));
    if flipped { Some(mirrored(spec, driving)) } else { spec.alike(driving, driving.dim) }
}

/// Each member reverses its own shard.
fn mirrored(spec: &OpSpec<'_>, driving: Driving<'_>) -> Strategy {
    let turned = |intervals: &[Interval]| {
        let turn = |one: &Interval| Interval {
            start: driving.size - one.end,
            end: driving.size - one.start,
        };
        intervals.iter().rev().map(turn).collect::<Intervals>()
    };
    let ranges = ShardRanges::new(driving.ranges.iter().map(turned));
    spec.strategy([cut(driving.dim, driving.ranges)], [cut(driving.dim, &ranges)])
}

/// The attribute has the member's size in place of the result's sharded dimension.
fn resized(spec: &OpSpec<'_>, driving: Driving<'_>, dim: usize, ranges: ShardRanges) -> Strategy {
    let mut strategy = spec.strategy([cut(driving.dim, driving.ranges)], [cut(dim, &ranges)]);
    strategy.local_attrs.push(LocalAttr::Size { attr: 0, entry: dim, ranges });
    strategy
}

/// Concatenated shards: each member joins its own.
fn joined(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let mut offset = 0;
    let mut held: Vec<Intervals> = vec![Intervals::new(); spec.members];
    let mut input_specs: SmallVec<[Placement; 4]> = SmallVec::new();
    for arg in spec.args {
        let size = *arg.meta?.dims.get(driving.dim)?;
        let ranges = match arg.placement {
            Placement::Shard { dim, ranges } if *dim == driving.dim => ranges.clone(),
            _ => ShardRanges::even(size, spec.members),
        };
        for (list, intervals) in held.iter_mut().zip(ranges.iter()) {
            for Interval { start, end } in intervals {
                list.push(Interval { start: start + offset, end: end + offset });
            }
        }
        input_specs.push(cut(driving.dim, &ranges));
        offset += size;
    }
    let ranges = ShardRanges::new(held);
    Some(spec.strategy(input_specs, [cut(driving.dim, &ranges)]))
}

/// Dimension to which a sharded dimension `cut` goes when `from` is reshaped to `to`, and its
/// shards.
fn regrouped(
    from: &Dims,
    to: &Dims,
    cut: usize,
    ranges: &ShardRanges,
) -> Option<(usize, ShardRanges)> {
    if from.contains(&0) {
        return None;
    }
    let (from_group, to_group) = group(from, to, cut)?;
    let product = |dims: &[i64]| dims.iter().product::<i64>();
    let flat = spread(
        ranges,
        product(from.get(from_group.start..cut)?),
        *from.get(cut)?,
        product(from.get(cut + 1..from_group.end)?),
    )?;
    to_group.clone().find_map(|dim| {
        let size = *to.get(dim)?;
        let outer = product(to.get(to_group.start..dim)?);
        let inner = product(to.get(dim + 1..to_group.end)?);
        let block = Interval { start: 0, end: size * inner };
        let ranges = flat.window(block).divided(inner)?;
        (ranges.cover(size) && spread(&ranges, outer, size, inner)? == flat)
            .then_some((dim, ranges))
    })
}

/// The shards in units of the group's elements: `outer` blocks of `size`, each index of which is
/// `inner` elements.
fn spread(ranges: &ShardRanges, outer: i64, size: i64, inner: i64) -> Option<ShardRanges> {
    let most = ranges.iter().map(<[Interval]>::len).max()?;
    if usize::try_from(outer).ok()?.checked_mul(most)? > INTERVALS_MAX {
        return None;
    }
    let blocks = |intervals: &[Interval]| {
        let mut all = Intervals::new();
        for block in 0..outer {
            for Interval { start, end } in intervals {
                let at = |index: i64| (block * size + index) * inner;
                let next = Interval { start: at(*start), end: at(*end) };
                match all.last_mut() {
                    Some(last) if last.end == next.start => last.end = next.end,
                    Some(_) | None if next.is_empty() => {}
                    Some(_) | None => all.push(next),
                }
            }
        }
        all
    };
    Some(ShardRanges::new(ranges.iter().map(blocks)))
}

type DimRange = std::ops::Range<usize>;

/// The shortest runs of dimensions around `cut` that hold the same elements in both shapes.
fn group(from: &Dims, to: &Dims, cut: usize) -> Option<(DimRange, DimRange)> {
    let (mut from_end, mut to_end) = (0, 0);
    while from_end < from.len() {
        let (from_start, to_start) = (from_end, to_end);
        let mut left = *from.get(from_end)?;
        from_end += 1;
        let mut right = 1;
        loop {
            if left == right && (to_end > to_start || left == 1) {
                break;
            }
            if left <= right {
                left *= from.get(from_end)?;
                from_end += 1;
            } else {
                right *= to.get(to_end)?;
                to_end += 1;
            }
        }
        if (from_start..from_end).contains(&cut) {
            // Dimensions of size 1 that follow belong to no group; a sharded one needs a target.
            if to_end == to_start {
                to_end = (to_end + 1).min(to.len());
            }
            return (to_end > to_start).then_some((from_start..from_end, to_start..to_end));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::spec::{InputSpec, OpSpec};
    use super::{Driving, follow};
    use crate::placement::{Placement, ShardRanges};
    use crate::rules::{RuleArg, infer};
    use crate::{Attr, Dims, Dtype, Meta, Op};

    /// Returns true if the row's strides alone show that a sharding of `dim` stays.
    fn follows(op: Op, attrs: &[Attr], dims: &[i64], dim: usize) -> Option<bool> {
        let meta = Meta::new(Dtype::F32, Dims::new(dims)?);
        let outputs = infer(op, &[RuleArg::Value(&meta)], attrs).ok()?;
        let size = *dims.get(dim)?;
        let ranges = ShardRanges::even(size, 2);
        let placement = Placement::Shard { dim, ranges: ranges.clone() };
        let args = [InputSpec { meta: Some(&meta), placement: &placement }];
        let spec = OpSpec { op, args: &args, attrs, outputs: &outputs, members: 2 };
        Some(follow(&spec, Driving { position: 0, dim, size, ranges: &ranges }).is_some())
    }

    #[test]
    fn a_result_that_goes_along_two_dimensions_follows_neither() {
        let attrs = [0, 0, 1].map(Attr::Int);
        assert_eq!(follows(Op::Diagonal, &attrs, &[3, 5, 4], 0), Some(false));
        assert_eq!(follows(Op::Diagonal, &attrs, &[5, 3, 4], 1), Some(false));
        assert_eq!(follows(Op::Diagonal, &attrs, &[3, 5, 4], 2), Some(true));
        let swapped = [Attr::Ints(Dims::new(&[1, 0]).expect("a shape of two dimensions"))];
        assert_eq!(follows(Op::Permute, &swapped, &[3, 5], 0), Some(true));
    }
}
