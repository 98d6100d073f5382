//! Operators with windows over an image (convolutions, pools) where the image is sharded: each
//! member gets the elements that its windows read, computes on them, and keeps its own results.
//! Only the rows around a shard boundary are transferred.
//!
//! The attribute `windows` begins with the position of the first result's gradient among the
//! operands (0 where the instruction is no gradient) and the position of the first operand's
//! gradient among the results (-1: none). Eight numbers follow for each dimension of the image: an
//! [`ImageWindow`]. As with `cuts`, a client that states something false gets wrong numbers.
//!
//! A member runs the operator with the arguments of the whole. Its input begins at a multiple of
//! the stride and is long enough that none of its own windows is padded where the whole's is not;
//! the attribute `parts` says which part of the result it keeps. So no operator needs separate
//! paddings for the two sides.

use super::spec::{Driving, LocalAttr, OpSpec, Strategy, cut};
use crate::placement::{Interval, Intervals, Placement, ReduceOp, ShardRanges};
use crate::{Attr, Dtype};
use smallvec::SmallVec;
use std::sync::Arc;

/// Number of entries for each dimension in the attribute.
const WIDTH: usize = 8;
/// Maximum size, stride or padding, so that sums and products of two fit.
const NUMBER_MAX: i64 = 1 << 30;

// Kinds of entries in `parts`. An entry has six numbers: the kind, the operand or result, its
// dimension, and three more.
/// Keeps a part of a result: from the first number on, this many elements.
const KEPT: i64 = 0;
/// Pads an operand of the third number's size with this many zeros before and behind it.
const GROWN: i64 = 1;
/// Marks the part of an operand that counts in gradients that are sums over all members.
const OWN: i64 = 2;
/// Marks an operand or result that holds indices of elements of an image: the shard begins at the
/// first number of a whole of the second one's size; the third one is the number of dimensions of
/// the image.
const PLACES: i64 = 3;

/// Dependence of results on the operand along one dimension.
#[derive(Clone, Copy, Debug)]
enum WindowKind {
    /// Result `o` reads from element `o * stride - low` on.
    Reads,
    /// Operand element `i` is added to the results from `i * stride - low` on.
    Adds,
    /// Like `Reads`, and the second result holds the indices of the first one's elements in the
    /// image.
    Places,
}

#[derive(Clone, Copy, Debug)]
struct ImageWindow {
    kind: WindowKind,
    /// The dimension of the first operand, and that of the results.
    from: usize,
    to: usize,
    /// Distance from the first element of a window to the last one, plus one, and distance between
    /// windows.
    extent: i64,
    stride: i64,
    /// Padding before and behind the image.
    low: i64,
    high: i64,
    /// True if the last window may reach beyond the padding when it begins before it.
    rounds_up: bool,
}

/// A dimension of the first operand and of the results.
#[derive(Clone, Copy)]
struct Sizes {
    given: i64,
    made: i64,
}

/// Input and output of one member.
struct ImageShard {
    /// The member's shard of the first operand, and of the results.
    given: Interval,
    made: Interval,
    /// Part of the first operand that it gets: at least its shard.
    region: Interval,
    /// Part of the results' gradients that it gets: at least its shard.
    cotangents: Interval,
    /// The first result that its region determines, and their number.
    first: i64,
    count: i64,
}

impl ImageWindow {
    fn read(numbers: &[i64]) -> Option<Self> {
        let &[kind, from, to, extent, stride, low, high, rounds_up] = numbers else { return None };
        let kind = match kind {
            0 => WindowKind::Reads,
            1 => WindowKind::Adds,
            2 => WindowKind::Places,
            _ => return None,
        };
        let is_size = |number: i64| (1..=NUMBER_MAX).contains(&number);
        let is_padding = |number: i64| (-NUMBER_MAX..=NUMBER_MAX).contains(&number);
        let fits = is_size(extent) && is_size(stride) && is_padding(low) && is_padding(high);
        let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        let rounds_up = rounds_up != 0;
        fits.then_some(Self { kind, from, to, extent, stride, low, high, rounds_up })
    }

    /// The first result whose window has its middle at or behind `given`.
    fn boundary(&self, given: i64, sizes: Sizes) -> i64 {
        if given <= 0 || given >= sizes.given {
            return if given <= 0 { 0 } else { sizes.made };
        }
        let boundary = match self.kind {
            WindowKind::Reads | WindowKind::Places => {
                ceiling(2 * (given + self.low) - (self.extent - 1), 2 * self.stride)
            }
            WindowKind::Adds => {
                ceiling(2 * (given * self.stride - self.low) + self.extent - self.stride, 2)
            }
        };
        boundary.clamp(0, sizes.made)
    }

    /// The results that depend on these elements of the operand.
    fn readers(&self, given: Interval, sizes: Sizes) -> Interval {
        let (start, end) = match self.kind {
            WindowKind::Reads | WindowKind::Places => (
                ceiling(given.start + self.low - self.extent + 1, self.stride),
                (given.end - 1 + self.low).div_euclid(self.stride) + 1,
            ),
            WindowKind::Adds => (
                given.start * self.stride - self.low,
                (given.end - 1) * self.stride - self.low + self.extent,
            ),
        };
        Interval { start: start.clamp(0, sizes.made), end: end.clamp(0, sizes.made) }
    }

    /// Part of the operand for a member that computes the results `made` and holds `given`.
    fn region(&self, made: Interval, given: Interval, sizes: Sizes) -> Interval {
        let Self { extent, stride, low, high, .. } = *self;
        let (start, end) = match self.kind {
            WindowKind::Reads | WindowKind::Places => {
                let start = (made.start * stride - low).min(given.start).max(0);
                let end = ((made.end - 1) * stride - low + extent).max(given.end);
                // Some kernels do not accept an image smaller than a window.
                let end = end.max(start + extent).min(sizes.given);
                let start = start.min(end - extent).max(0);
                (start.div_euclid(stride) * stride, end)
            }
            WindowKind::Adds => {
                let start = ceiling(made.start + low - extent + 1, stride);
                let end = (made.end - 1 + low).div_euclid(stride) + 1;
                // The results begin and end with those of the region's ends.
                let covered = ceiling(made.end + low + high - extent, stride) + 1;
                let start = start.min(made.start.div_euclid(stride)).min(given.start);
                (start, end.max(covered).max(given.end))
            }
        };
        Interval { start: start.max(0), end: end.min(sizes.given) }
    }

    /// The first result that a region determines, and their number.
    fn results(&self, region: Interval, sizes: Sizes) -> (i64, i64) {
        let all = self.low + self.high - self.extent;
        let (first, count) = match self.kind {
            WindowKind::Adds => {
                (region.start * self.stride, (region.len() - 1) * self.stride - all)
            }
            WindowKind::Reads | WindowKind::Places => {
                let mut steps = (region.len() + all).div_euclid(self.stride);
                if self.rounds_up {
                    let up = ceiling(region.len() + all, self.stride);
                    steps = if up * self.stride < region.len() + self.low { up } else { steps };
                }
                (region.start / self.stride, steps + 1)
            }
        };
        let is_last = region.end == sizes.given;
        (first, if is_last { sizes.made - first } else { count })
    }

    /// `None` where a member would have no elements, or where the attribute is inconsistent.
    fn member(&self, given: Interval, sizes: Sizes, reads_cotangents: bool) -> Option<ImageShard> {
        let made = Interval {
            start: self.boundary(given.start, sizes),
            end: self.boundary(given.end, sizes),
        };
        if made.is_empty() {
            return None;
        }
        let mut cotangents = made;
        if reads_cotangents {
            let readers = self.readers(given, sizes);
            if !readers.is_empty() {
                let (start, end) = (made.start.min(readers.start), made.end.max(readers.end));
                cotangents = Interval { start, end };
            }
        }
        let region = self.region(cotangents, given, sizes);
        let (first, count) = self.results(region, sizes);
        let is_inside = first <= cotangents.start && cotangents.end <= first + count;
        is_inside.then_some(ImageShard { given, made, region, cotangents, first, count })
    }
}

/// Strategy of an instruction with windows that keeps the sharding of its first operand along the
/// image.
pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let Attr::List(numbers) = spec.attr("windows") else { return None };
    let &[gradient, result, ref windows @ ..] = &**numbers else { return None };
    if driving.position != 0 || windows.len() % WIDTH != 0 || !driving.ranges.in_order() {
        return None;
    }
    let planes = windows.len() / WIDTH;
    let mut windows = windows.chunks_exact(WIDTH).filter_map(ImageWindow::read);
    let window = windows.find(|window| window.from == driving.dim)?;
    let call = WindowedCall {
        spec,
        window,
        gradient: usize::try_from(gradient).ok()?,
        result: usize::try_from(result).ok(),
        planes: i64::try_from(planes).ok()?,
    };
    let made = match call.gradient {
        0 => spec.outputs.first()?,
        place => spec.meta(place)?,
    };
    let made = *made.dims.get(window.to)?;
    let sizes = Sizes { given: driving.size, made };
    if sizes.given > NUMBER_MAX || sizes.made > NUMBER_MAX {
        return None;
    }
    let member = |intervals: &[Interval]| match *intervals {
        [given] if !given.is_empty() => window.member(given, sizes, call.result.is_some()),
        _ => None,
    };
    let members: Vec<ImageShard> = driving.ranges.iter().map(member).collect::<Option<_>>()?;
    if call.gradient == 0 { call.forward(&members, sizes) } else { call.backward(&members, sizes) }
}

struct WindowedCall<'a, 's> {
    spec: &'s OpSpec<'a>,
    window: ImageWindow,
    /// Position of the first result's gradient among the operands; 0 if the instruction is no
    /// gradient.
    gradient: usize,
    /// Position of the first operand's gradient among the results.
    result: Option<usize>,
    /// Number of dimensions of the image.
    planes: i64,
}

impl WindowedCall<'_, '_> {
    fn forward(&self, members: &[ImageShard], sizes: Sizes) -> Option<Strategy> {
        let mut parts = PartLists::of(members);
        let (mut outputs, mut local_attrs) = (SmallVec::<[Placement; 2]>::new(), SmallVec::new());
        let made = ranges(members, |member| member.made);
        for (place, meta) in self.spec.outputs.iter().enumerate() {
            if meta.dims.get(self.window.to) != Some(&sizes.made) {
                return None;
            }
            outputs.push(cut(self.window.to, &made));
            local_attrs.push(self.stated(place, self.window.to, &made)?);
            parts.add(KEPT, place, self.window.to, |member| {
                [member.made.start - member.first, member.made.len(), 0]
            });
        }
        if matches!(self.window.kind, WindowKind::Places) {
            self.add_places(&mut parts, 1, sizes);
        }
        let inputs = [cut(self.window.from, &ranges(members, |member| member.region))];
        local_attrs.push(parts.attr(self.spec)?);
        Some(Strategy { local_attrs, ..self.spec.strategy(inputs, outputs) })
    }

    /// Gradients of values that every member has whole are sums; each member adds for the results
    /// that are its own.
    fn backward(&self, members: &[ImageShard], sizes: Sizes) -> Option<Strategy> {
        let (from, to) = (self.window.from, self.window.to);
        let mut parts = PartLists::of(members);
        let mut inputs: SmallVec<[Placement; 4]> = self.spec.whole().input_specs;
        *inputs.first_mut()? = cut(from, &ranges(members, |member| member.region));
        let cotangents = ranges(members, |member| member.cotangents);
        for place in self.gradient..self.spec.args.len() {
            let Some(meta) = self.spec.meta(place) else { continue };
            if meta.dims.get(to) != Some(&sizes.made) {
                return None;
            }
            *inputs.get_mut(place)? = cut(to, &cotangents);
            parts.add(OWN, place, to, |member| {
                [member.made.start - member.cotangents.start, member.made.len(), 0]
            });
            parts.add(GROWN, place, to, |member| {
                let before = member.cotangents.start - member.first;
                let size = member.cotangents.len();
                [before, member.count - before - size, size]
            });
        }
        if matches!(self.window.kind, WindowKind::Places) {
            self.add_places(&mut parts, self.spec.args.len() - 1, sizes);
        }
        let mut local_attrs = SmallVec::new();
        let mut outputs = SmallVec::<[Placement; 2]>::new();
        let given = ranges(members, |member| member.given);
        for (place, meta) in self.spec.outputs.iter().enumerate() {
            if Some(place) != self.result {
                let is_sum = meta.dtype != Dtype::Bool;
                outputs.push(is_sum.then_some(Placement::Partial(ReduceOp::Sum))?);
                continue;
            }
            if meta.dims.get(from) != Some(&sizes.given) {
                return None;
            }
            outputs.push(cut(from, &given));
            local_attrs.push(self.stated(place, from, &given)?);
            parts.add(KEPT, place, from, |member| {
                [member.given.start - member.region.start, member.given.len(), 0]
            });
        }
        local_attrs.push(parts.attr(self.spec)?);
        Some(Strategy { local_attrs, ..self.spec.strategy(inputs, outputs) })
    }

    fn add_places(&self, parts: &mut PartLists<'_>, place: usize, sizes: Sizes) {
        parts.add(PLACES, place, self.window.from, |member| {
            [member.region.start, sizes.given, self.planes]
        });
    }

    /// The size of a result's shard, for the sizes that the instruction states.
    fn stated(&self, place: usize, dim: usize, ranges: &ShardRanges) -> Option<LocalAttr> {
        let attr = self.spec.op.info().attr_index("results")?;
        let before = self.spec.outputs.get(..place)?;
        let entry = before.iter().map(|meta| 2 + meta.dims.len()).sum::<usize>() + 2 + dim;
        Some(LocalAttr::Stated { attr, entry, ranges: ranges.clone() })
    }
}

/// Builder of the attribute `parts`.
struct PartLists<'m> {
    members: &'m [ImageShard],
    numbers: Vec<Vec<i64>>,
}

impl<'m> PartLists<'m> {
    fn of(members: &'m [ImageShard]) -> Self {
        Self { members, numbers: vec![Vec::new(); members.len()] }
    }

    fn add(&mut self, part: i64, place: usize, dim: usize, of: impl Fn(&ImageShard) -> [i64; 3]) {
        for (member, numbers) in self.members.iter().zip(&mut self.numbers) {
            numbers.extend([part, signed(place), signed(dim)]);
            numbers.extend(of(member));
        }
    }

    fn attr(self, spec: &OpSpec<'_>) -> Option<LocalAttr> {
        let attr = spec.op.info().attr_index("parts")?;
        let numbers: Arc<[Box<[i64]>]> = self.numbers.into_iter().map(Vec::into).collect();
        Some(LocalAttr::Listed { attr, numbers })
    }
}

fn ranges(members: &[ImageShard], of: impl Fn(&ImageShard) -> Interval) -> ShardRanges {
    ShardRanges::new(members.iter().map(|member| Intervals::from(of(member))))
}

fn ceiling(number: i64, divisor: i64) -> i64 {
    -(-number).div_euclid(divisor)
}

/// The `windows` of the gradient, for the operands at `places`, of an instruction with these
/// `windows` and this many operands.
pub fn windows_of_gradient(windows: &[i64], operands: usize, places: &[usize]) -> Box<[i64]> {
    let (Some(&0), Some(dims)) = (windows.first(), windows.get(2..)) else {
        return Box::default(); // second derivatives run on whole values
    };
    let result = places.iter().position(|&place| place == 0).map_or(-1, signed);
    [signed(operands), result].iter().chain(dims).copied().collect()
}

/// A position as a signed number, as attributes have it.
fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or_else(|_| unreachable!("a count of {count}"))
}
