//! Operators described by PyTorch's schemas: the instruction states their results.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, one, several};
use crate::operator::OUTPUTS_MAX;
use crate::{Dims, Dtype, Meta};
use smallvec::SmallVec;

/// Bytes of the answer to a query for results.
const ANSWER_BYTES: i64 = 4096;

/// The results that the attribute `results` states.
pub(super) fn stated(call: &Call<'_>) -> Inferred {
    let mut results: SmallVec<[Meta; 2]> = SmallVec::new();
    let place = call.info.attr_index("results").unwrap_or(call.info.attrs.len());
    let mut rest = call.list(place)?;
    while !rest.is_empty() && results.len() < OUTPUTS_MAX {
        let Some((meta, others)) = first(rest) else {
            let text = format!("{}: {rest:?} describes no result", call.info.name);
            return Err(RuleError::runtime(text));
        };
        results.push(meta);
        rest = others;
    }
    if !rest.is_empty() || results.is_empty() {
        let text = format!("{}: an instruction has 1 to {OUTPUTS_MAX} results", call.info.name);
        return Err(RuleError::runtime(text));
    }
    several(&results)
}

/// The metadata at the front of the list: the dtype's number, the number of dimensions, sizes.
fn first(list: &[i64]) -> Option<(Meta, &[i64])> {
    let &[dtype, rank, ref rest @ ..] = list else { return None };
    let dtype = Dtype::from_code(u32::try_from(dtype).ok()?)?;
    let (sizes, rest) = rest.split_at_checked(usize::try_from(rank).ok()?)?;
    let is_shape = sizes.iter().all(|&size| size >= 0);
    let dims = Dims::new(sizes).filter(|_| is_shape)?;
    Some((Meta::new(dtype, dims), rest))
}

pub(super) fn answer(_call: &Call<'_>) -> Inferred {
    let mut dims = Dims::EMPTY;
    assert!(dims.push(ANSWER_BYTES), "{dims} has no room");
    one(Meta::new(Dtype::U8, dims))
}
