//! Creation of shards of tensors that follow from attributes alone.

use super::spec::{LocalAttr, OpSpec, Strategy, cut};
use crate::placement::ShardRanges;
use crate::{Attr, Dtype, Scalar};
use smallvec::smallvec;

/// Doubles, in which ranges are computed, represent integers exactly up to here.
const EXACT_MAX: i64 = 1 << 53;

pub(super) fn made(spec: &OpSpec<'_>, dim: usize, ranges: &ShardRanges) -> Option<Strategy> {
    let info = spec.op.info();
    let local = match (info.attr_index("size"), info.attr_index("step")) {
        (_, Some(_)) => steps(spec, dim, ranges)?,
        // One number for all positions.
        (Some(attr), None) => {
            info.attr_index("value")?;
            LocalAttr::Size { attr, entry: dim, ranges: ranges.clone() }
        }
        (None, None) => return None,
    };
    let mut strategy = spec.whole();
    strategy.output_specs = smallvec![cut(dim, ranges)];
    strategy.local_attrs = smallvec![local];
    Some(strategy)
}

/// Only where `start + step * k` is the same number whatever shard it is computed in: exact
/// integers.
fn steps(spec: &OpSpec<'_>, dim: usize, ranges: &ShardRanges) -> Option<LocalAttr> {
    let info = spec.op.info();
    let (start, end) = (info.attr_index("start")?, info.attr_index("end")?);
    let whole = |name: &str| match spec.attrs.get(info.attr_index(name)?)? {
        Attr::Scalar(Scalar::Int(value)) => Some(*value),
        _ => None,
    };
    let (first, step) = (whole("start")?, whole("step")?);
    let length = *spec.outputs.first()?.dims.get(dim)?;
    let last = first.checked_add(step.checked_mul(length)?)?;
    let exact = [first, last].iter().all(|bound| bound.unsigned_abs() < EXACT_MAX.unsigned_abs());
    let wide =
        spec.outputs.first().is_some_and(|meta| !matches!(meta.dtype, Dtype::F16 | Dtype::Bf16));
    let intervals = ranges.iter().all(|intervals| intervals.len() <= 1);
    let ranges = ranges.clone();
    (exact && wide && intervals).then_some(LocalAttr::Steps { start, end, step, ranges })
}
