//! Views keep what can be kept: a cut dimension that stays, is merged with those after it, or is split.

use super::edges::INTERVALS_MAX;
use super::{Lead, Local, Question, Strategy, cut};
use crate::Dims;
use crate::placement::{Interval, Intervals, Placement, ShardRanges};
use smallvec::SmallVec;

pub(super) fn reshape(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let to = question.outputs.first()?.dims;
    let (dim, ranges) = regrouped(&question.meta(0)?.dims, &to, lead.dim, lead.ranges)?;
    Some(resized(question, lead, dim, ranges))
}

pub(super) fn expand(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let to = question.outputs.first()?.dims;
    let dim = lead.dim + to.len().checked_sub(question.rank(0)?)?;
    // A cut dimension of size 1 may be what is stretched.
    let stays = to.get(dim) == Some(&lead.size);
    stays.then(|| resized(question, lead, dim, lead.ranges.clone()))
}

pub(super) fn permute(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let dims = question.ints("dims")?;
    let place = dims.iter().position(|&dim| super::normal(dim, rank) == Some(lead.dim))?;
    question.alike(lead, place)
}

pub(super) fn cat(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    if question.dim("dim", question.rank(0)?)? == lead.dim {
        return joined(question, lead);
    }
    question.alike(lead, lead.dim)
}

pub(super) fn select(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)?)?;
    let to = lead.dim.checked_sub(usize::from(dim < lead.dim))?;
    if dim == lead.dim { None } else { question.alike(lead, to) }
}

pub(super) fn stack(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let dim = question.dim("dim", question.rank(0)? + 1)?;
    question.alike(lead, lead.dim + usize::from(dim <= lead.dim))
}

pub(super) fn flip(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let rank = question.rank(0)?;
    let dims = question.ints("dims")?;
    let flipped = dims.iter().any(|&dim| super::normal(dim, rank) == Some(lead.dim));
    if flipped { Some(mirrored(question, lead)) } else { question.alike(lead, lead.dim) }
}

/// Each member turns its own shard round.
fn mirrored(question: &Question<'_>, lead: Lead<'_>) -> Strategy {
    let turned = |intervals: &[Interval]| {
        let turn =
            |one: &Interval| Interval { start: lead.size - one.end, end: lead.size - one.start };
        intervals.iter().rev().map(turn).collect::<Intervals>()
    };
    let ranges = ShardRanges::new(lead.ranges.iter().map(turned));
    question.answer([cut(lead.dim, lead.ranges)], [cut(lead.dim, &ranges)])
}

/// The result's cut dimension has the member's size there.
fn resized(question: &Question<'_>, lead: Lead<'_>, dim: usize, ranges: ShardRanges) -> Strategy {
    let mut strategy = question.answer([cut(lead.dim, lead.ranges)], [cut(dim, &ranges)]);
    strategy.locals.push(Local::Size { attr: 0, entry: dim, ranges });
    strategy
}

/// Shards one after the other: each member joins its own.
fn joined(question: &Question<'_>, lead: Lead<'_>) -> Option<Strategy> {
    let mut offset = 0;
    let mut held: Vec<Intervals> = vec![Intervals::new(); question.members];
    let mut needs: SmallVec<[Placement; 4]> = SmallVec::new();
    for arg in question.args {
        let size = *arg.meta?.dims.get(lead.dim)?;
        let ranges = match arg.placement {
            Placement::Shard { dim, ranges } if *dim == lead.dim => ranges.clone(),
            _ => ShardRanges::even(size, question.members),
        };
        for (list, intervals) in held.iter_mut().zip(ranges.iter()) {
            for Interval { start, end } in intervals {
                list.push(Interval { start: start + offset, end: end + offset });
            }
        }
        needs.push(cut(lead.dim, &ranges));
        offset += size;
    }
    let ranges = ShardRanges::new(held);
    Some(question.answer(needs, [cut(lead.dim, &ranges)]))
}

/// Where a cut of dimension `cut` goes when `from` is seen as `to`: the dimension there, and its shards.
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

/// The shards in units of the group's elements: `outer` blocks of `size`, each index of which is `inner` elements.
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

type Range = std::ops::Range<usize>;

/// The shortest runs of dimensions around `cut` that hold the same elements in both shapes.
fn group(from: &Dims, to: &Dims, cut: usize) -> Option<(Range, Range)> {
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
            // Dimensions of size 1 that follow belong to nobody; a cut one may need a place to go.
            if to_end == to_start {
                to_end = (to_end + 1).min(to.len());
            }
            return (to_end > to_start).then_some((from_start..from_end, to_start..to_end));
        }
    }
    None
}
