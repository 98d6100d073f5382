//! Operators described by PyTorch's schemas: the instruction states the dimensions along which they
//! run on shards.
//!
//! The attribute `cuts` has, for each index letter, one number for each operand and result of the
//! instruction: the dimension that has the letter, or one of the constants below. A client that
//! states something false gets wrong numbers, and sees nothing else: members run on shards of that
//! client's operands only, and compare their results with the stated ones.

use super::spec::{Driving, LocalAttr, OpSpec, Strategy, cut};
use super::windows;
use crate::placement::{Placement, ReduceOp, ShardRanges};
use crate::{Attr, Dtype, Meta};
use smallvec::SmallVec;

/// The operand, or the result, is whole on each member.
const WHOLE: i64 = -1;
/// The members' results are added.
const ADDED: i64 = -2;
/// Only one member gets the operand.
const FIRST: i64 = -3;

/// Strategy by the letter of the driving dimension, or by its windows.
pub(super) fn follow(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    by_letter(spec, driving).or_else(|| windows::follow(spec, driving))
}

/// Strategy in which every operand and result with the letter of the driving dimension is sharded
/// there. No shard may be empty, because some kernels do not accept it.
fn by_letter(spec: &OpSpec<'_>, driving: Driving<'_>) -> Option<Strategy> {
    let Attr::List(cuts) = spec.attr("cuts") else { return None };
    let width = spec.args.len() + spec.outputs.len();
    if width == 0 || cuts.len() % width != 0 || driving.ranges.sizes().any(|size| size == 0) {
        return None;
    }
    let dim = i64::try_from(driving.dim).ok()?;
    let mut letters = cuts.chunks_exact(width);
    let letter = letters.find(|letter| letter.get(driving.position) == Some(&dim))?;
    let (given, made) = letter.split_at_checked(spec.args.len())?;
    let mut input_specs: SmallVec<[Placement; 4]> = SmallVec::new();
    let mut local_attrs: SmallVec<[LocalAttr; 1]> = SmallVec::new();
    for (position, (arg, &entry)) in spec.args.iter().zip(given).enumerate() {
        let Some(meta) = arg.meta else {
            input_specs.push(Placement::Replicate);
            continue;
        };
        if entry == FIRST {
            local_attrs.push(LocalAttr::First { operand: position });
        }
        input_specs.push(placement(entry, meta, driving)?);
    }
    let mut output_specs: SmallVec<[Placement; 2]> = SmallVec::new();
    let attr = spec.op.info().attr_index("results")?;
    let mut offset = 2;
    for (meta, &entry) in spec.outputs.iter().zip(made) {
        output_specs.push(match entry {
            ADDED if meta.dtype != Dtype::Bool => Placement::Partial(ReduceOp::Sum),
            FIRST | ADDED => return None,
            entry => placement(entry, meta, driving)?,
        });
        if let Ok(dim) = usize::try_from(entry) {
            let ranges: ShardRanges = driving.ranges.clone();
            local_attrs.push(LocalAttr::Stated { attr, entry: offset + dim, ranges });
        }
        offset += 2 + meta.dims.len();
    }
    Some(Strategy { local_attrs, ..spec.strategy(input_specs, output_specs) })
}

/// Placement of an operand or a result of `meta`, if it has that dimension with the driving one's
/// size.
fn placement(entry: i64, meta: &Meta, driving: Driving<'_>) -> Option<Placement> {
    match usize::try_from(entry) {
        Ok(dim) if meta.dims.get(dim) == Some(&driving.size) => Some(cut(dim, driving.ranges)),
        Err(_) if entry == WHOLE || entry == FIRST => Some(Placement::Replicate),
        Ok(_) | Err(_) => None,
    }
}

/// The `cuts` of the gradient of an instruction with these `cuts`. The gradient's operands are the
/// instruction's without the last `dropped` ones, the gradients of its results, and the results
/// `saved`; its results are the gradients at `places`. Sharded values stay sharded; the gradient of
/// a whole value is a sum of the members' contributions.
pub fn cuts_of_gradient(
    cuts: &[i64],
    (operands, dropped): (usize, usize),
    results: usize,
    saved: &[usize],
    places: &[usize],
) -> Box<[i64]> {
    let mut of_gradient = Vec::new();
    for letter in cuts.chunks_exact((operands + results).max(1)) {
        let (given, made) = letter.split_at(operands.min(letter.len()));
        // Every member has such a result whole, so its gradient would count once for each member.
        if made.contains(&WHOLE) {
            continue;
        }
        let dim_of = |entry: &i64| (*entry).max(WHOLE);
        let gradient = |place: &usize| match given.get(*place) {
            Some(&FIRST) => WHOLE,
            Some(&WHOLE) | None => ADDED,
            Some(&dim) => dim,
        };
        of_gradient.extend(given.iter().take(operands.saturating_sub(dropped)).map(dim_of));
        of_gradient.extend(made.iter().map(dim_of));
        of_gradient.extend(saved.iter().map(|place| made.get(*place).map_or(WHOLE, dim_of)));
        of_gradient.extend(places.iter().map(gradient));
    }
    of_gradient.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// conv2d(input, weight, bias): n, the channels of the result, those of the input.
    const CONVOLUTION: [i64; 12] = [0, -1, -1, 0, -1, 0, 0, 1, 1, 1, -3, -2];

    #[test]
    fn a_gradient_is_cut_as_its_operand_and_contributions_where_that_is_whole() {
        let all = cuts_of_gradient(&CONVOLUTION, (3, 0), 1, &[], &[0, 1, 2]);
        // input, weight, bias, gradient of the result -> theirs
        let expected: [&[i64]; 3] =
            [&[0, -1, -1, 0, 0, -2, -2], &[-1, 0, 0, 1, -2, 0, 0], &[1, 1, -1, -1, 1, 1, -1]];
        assert_eq!(*all, *expected.concat());
        // The gradient of the bias is whole on each member: a second derivative does not keep that
        // sharding.
        let second = cuts_of_gradient(&all, (4, 0), 3, &[], &[3]);
        let expected: [&[i64]; 2] = [&[0, -1, -1, 0, 0, -1, -1, 0], &[-1, 0, 0, 1, -1, 0, 0, 1]];
        assert_eq!(*second, *expected.concat());
    }

    #[test]
    fn results_that_are_saved_stand_behind_the_gradients() {
        // One operand, two results, of which the second is saved.
        let first = cuts_of_gradient(&[0, 0, 0], (1, 0), 2, &[1], &[0]);
        assert_eq!(*first, [0, 0, 0, 0, 0]);
        let second = cuts_of_gradient(&first, (4, 1), 1, &[], &[0, 1]);
        assert_eq!(*second, [0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        assert!(cuts_of_gradient(&[0, 0], (3, 0), 1, &[7], &[0]).is_empty());
        assert!(cuts_of_gradient(&[], (0, 0), 0, &[], &[]).is_empty());
        assert_eq!(*cuts_of_gradient(&[0], (0, 3), 1, &[7], &[9]), [0, -1, -2]);
    }
}
