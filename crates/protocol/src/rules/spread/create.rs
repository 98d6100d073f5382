//! Tensors of attributes alone, in shards.

use super::{Local, Question, Strategy, cut};
use crate::placement::ShardRanges;
use crate::{Attr, Dtype, Scalar};
use smallvec::smallvec;

/// Doubles, in which ranges are computed, hold whole numbers up to here exactly.
const EXACT_MAX: i64 = 1 << 53;

pub(super) fn made(question: &Question<'_>, dim: usize, ranges: &ShardRanges) -> Option<Strategy> {
    let info = question.op.info();
    let local = match (info.attr_index("size"), info.attr_index("step")) {
        (_, Some(_)) => steps(question, dim, ranges)?,
        // One number everywhere.
        (Some(attr), None) => {
            info.attr_index("value")?;
            Local::Size { attr, entry: dim, ranges: ranges.clone() }
        }
        (None, None) => return None,
    };
    let mut strategy = question.whole();
    strategy.gives = smallvec![cut(dim, ranges)];
    strategy.locals = smallvec![local];
    Some(strategy)
}

/// Only where `start + step * k` is the same number whichever shard it is counted in: whole numbers that no rounding
/// touches.
fn steps(question: &Question<'_>, dim: usize, ranges: &ShardRanges) -> Option<Local> {
    let info = question.op.info();
    let (start, end) = (info.attr_index("start")?, info.attr_index("end")?);
    let whole = |name: &str| match question.attrs.get(info.attr_index(name)?)? {
        Attr::Scalar(Scalar::Int(value)) => Some(*value),
        _ => None,
    };
    let (first, step) = (whole("start")?, whole("step")?);
    let length = *question.outputs.first()?.dims.get(dim)?;
    let last = first.checked_add(step.checked_mul(length)?)?;
    let exact = [first, last].iter().all(|bound| bound.unsigned_abs() < EXACT_MAX.unsigned_abs());
    let wide = question
        .outputs
        .first()
        .is_some_and(|meta| !matches!(meta.dtype, Dtype::F16 | Dtype::Bf16));
    let intervals = ranges.iter().all(|intervals| intervals.len() <= 1);
    let ranges = ranges.clone();
    (exact && wide && intervals).then_some(Local::Steps { start, end, step, ranges })
}
